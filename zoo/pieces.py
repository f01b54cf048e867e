"""What long work has found, piece by piece, each in a file of its own, so that a kill costs one.

Knows no content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from zoo.files import remove_folder, write_json

__all__ = ["UNKEPT", "Pieces"]


class Pieces:
    """Pieces of one work, each a plain value of JSON's types under a name. Without a `folder` none
    is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def of(cls, place: Path, identity: Mapping[str, Any]) -> Pieces:
        """Beside `place`, in a folder whose name says what the work is of: no piece of another is
        ever taken."""
        described = json.dumps(identity, sort_keys=True)
        name = hashlib.sha256(described.encode()).hexdigest()[:16]
        return cls(place.with_name(f"{place.name}-{name}"))

    def part(self, name: str) -> Pieces:
        """Pieces that have names of their own; they go with this one's."""
        return Pieces(None if self._folder is None else self._folder / name)

    def has(self, name: str) -> bool:
        """True if `once` needs not find it."""
        return self._folder is not None and self._path(self._folder, name).is_file()

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """The piece of that name, found where it is not there yet. ConfigError for one that is
        damaged."""
        if self._folder is None:
            return find()
        path = self._path(self._folder, name)
        if not path.is_file():
            write_json(path, find())
        try:
            return json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError.of(
                "out", str(path), "a piece of what was found; remove it"
            ) from error

    def forget(self) -> None:
        """The work is done: it begins anew when it is asked for again."""
        if self._folder is not None:
            remove_folder(self._folder)

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.json"


UNKEPT = Pieces(None)
