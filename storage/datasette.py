"""How to look into a log with Datasette: the command, and the description that goes with it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

__all__ = ["METADATA", "datasette_command"]

METADATA = Path(__file__).with_name("metadata.yaml")
USUAL = "specscope"


def datasette_command(path: Path) -> str:
    """The command that opens the log at `path`.

    Datasette tells databases by their file's name: for a log of another name than the usual one a
    description is written beside it. Where that cannot be, the command does without.
    """
    described = METADATA if path.stem == USUAL else _beside(path)
    words = ["uvx", "datasette", str(path)]
    if described is not None:
        words += ["-m", str(described)]
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def _beside(path: Path) -> Path | None:
    place = path.with_name(f"{path.stem}.metadata.yaml")
    text = METADATA.read_text(encoding="utf-8")
    own = text.replace(f"\n  {USUAL}:\n", f"\n  {json.dumps(path.stem)}:\n", 1)
    try:
        if not place.exists() or place.read_text(encoding="utf-8") != own:
            place.write_text(own, encoding="utf-8")
    except (OSError, ValueError):
        return None
    return place
