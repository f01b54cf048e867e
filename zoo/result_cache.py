"""Results of long computations, each in its own file, so that an interruption loses at most one."""

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
    """Results of one computation, by name; each is written as JSON, and returned with JSON's types.
    Without a `folder` nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def for_inputs(cls, path: Path, inputs: Mapping[str, Any]) -> ResultCache:
        """A cache next to `path`, in a folder whose name has a hash of `inputs`."""
        description = json.dumps(inputs, sort_keys=True)
        name = hashlib.sha256(description.encode()).hexdigest()[:16]
        return cls(path.with_name(f"{path.name}-{name}"))

    def subcache(self, name: str) -> ResultCache:
        """A cache within this cache, with its own names. `clear` of this cache removes both."""
        return ResultCache(None if self._folder is None else self._folder / name)

    def has(self, name: str) -> bool:
        """Whether the result is stored."""
        return self._folder is not None and self._path(self._folder, name).is_file()

    def get_or_compute(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result, computed and stored once. Raises ConfigError for an unreadable file."""
        # Without a folder, results go through JSON too, so that tuples become lists as in stored
        # results.
        if self._folder is None:
            return json.loads(json.dumps(compute()))
        path = self._path(self._folder, name)
        if not path.is_file():
            write_json(path, compute())
        try:
            return json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError.of("out", str(path), f"a file that can be read ({error})") from error
        except ValueError as error:
            allowed = "a result file written by this command; delete the damaged file"
            raise ConfigError.of("out", str(path), allowed) from error

    def clear(self) -> None:
        """Removes all results."""
        if self._folder is not None:
            remove_folder(self._folder)

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.json"


NO_CACHE = ResultCache(None)
