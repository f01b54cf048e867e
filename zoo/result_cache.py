"""Results of long work, each in a file of its own, so that an interruption loses at most one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from zoo.files import remove_folder, write_json

__all__ = ["NO_CACHE", "ResultCache"]


class ResultCache:
    """The results of one work, by name; each is a value of JSON's types. Without a `folder` nothing
    is stored."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def of(cls, place: Path, identity: Mapping[str, Any]) -> ResultCache:
        """A cache next to `place`, in a folder whose name has a hash of `identity`: results of
        other inputs are never returned."""
        description = json.dumps(identity, sort_keys=True)
        name = hashlib.sha256(description.encode()).hexdigest()[:16]
        return cls(place.with_name(f"{place.name}-{name}"))

    def part(self, name: str) -> ResultCache:
        """A cache within this one, with names of its own; `clear` of this one removes it too."""
        return ResultCache(None if self._folder is None else self._folder / name)

    def has(self, name: str) -> bool:
        """Whether the result is stored."""
        return self._folder is not None and self._path(self._folder, name).is_file()

    def get_or_compute(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of that name, computed and stored if there is none yet. ConfigError for a
        damaged file."""
        if self._folder is None:
            return compute()
        path = self._path(self._folder, name)
        # Read even where it was computed just now: JSON's lists for tuples, as when resumed.
        if not path.is_file():
            write_json(path, compute())
        try:
            return json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError.of(
                "out", str(path), "a piece of what was found; remove it"
            ) from error

    def clear(self) -> None:
        """Removes all results: the same work begins anew next time."""
        if self._folder is not None:
            remove_folder(self._folder)

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.json"


NO_CACHE = ResultCache(None)
