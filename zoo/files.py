"""Atomic writes by rename. If the process is killed, a file has either the old or the new content,
and a folder is either complete or absent. After a power failure this holds only for single files,
since only they are fsynced."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "is_whole",
    "remove_folder",
    "replace_file",
    "replace_folder",
    "write_json",
]

PARTIAL, DELETING = ".partial", ".going"
"""Suffixes of files and folders that are unfinished, or being deleted."""


def is_whole(path: Path) -> bool:
    """False for the leftovers of an interrupted write or deletion."""
    return path.suffix not in (PARTIAL, DELETING)


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replaces `path` by what `write` writes; the old file stays until the rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}{PARTIAL}")
    with partial.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())  # else the rename may reach the disk before the content
    partial.replace(path)


def replace_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Replaces the folder at `path` by a new one that `fill` fills."""
    partial = path.with_name(f"{path.name}{PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    remove_folder(path)
    partial.replace(path)


def remove_folder(path: Path) -> None:
    """Removes the folder, if there is one. It is renamed first, so that a kill while its files are
    removed leaves no incomplete folder under its name."""
    deleting = path.with_name(f"{path.name}{DELETING}")
    shutil.rmtree(deleting, ignore_errors=True)
    if path.is_dir():
        path.replace(deleting)
        shutil.rmtree(deleting, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON to `path`."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, lambda file: file.write(text.encode("utf-8")))
