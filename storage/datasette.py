"""The command that opens a log in Datasette, with its description file."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

__all__ = ["METADATA", "datasette_command"]

METADATA = Path(__file__).with_name("metadata.yaml")
DEFAULT_NAME = "specscope"
# The file is overwritten only if it begins with this.
MARK = "# Written by SpecScope"
FIRST_LINE = f"{MARK}, which overwrites this file when its description changes: edit a copy.\n"


def datasette_command(path: Path) -> str:
    """The command that opens the log at `path`.

    Datasette names a database after its file: for a log with another name than the default, a
    description file is written next to the log. If this fails, the command names no description.
    """
    metadata = METADATA if path.stem == DEFAULT_NAME else _renamed_metadata(path)
    command = ["uvx", "datasette", str(path)]
    if metadata is not None:
        command += ["-m", str(metadata)]
    return subprocess.list2cmdline(command) if sys.platform == "win32" else shlex.join(command)


def _renamed_metadata(path: Path) -> Path | None:
    text = METADATA.read_text(encoding="utf-8")
    # YAML accepts a JSON string as a key, but no escaped surrogates; `ensure_ascii` writes them.
    key = json.dumps(path.stem, ensure_ascii=False)
    renamed = text.replace(f"\n  {DEFAULT_NAME}:\n", f"\n  {key}:\n", 1)
    names = (f"{path.stem}.metadata.yaml", f"{path.stem}.{DEFAULT_NAME}.metadata.yaml")
    candidates = (path.with_name(name) for name in names)
    return next((file for file in candidates if _is_written(file, FIRST_LINE + renamed)), None)


def _is_written(file: Path, text: str) -> bool:
    """Writes `text` to `file` unless another program wrote the file. Returns whether `file` then
    contains `text`."""
    try:
        present = file.read_text(encoding="utf-8") if file.exists() else MARK
        if present != text and present.startswith(MARK):
            file.write_text(text, encoding="utf-8")
            present = text
    except (OSError, ValueError):
        return False
    return present == text
