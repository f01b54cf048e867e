"""Results: a suite's samples in one JSON file, written whole after each, so that a rerun continues.

Knows nothing of what a sample holds. A file made with other settings, on another machine or with
other code is not continued: its samples would not belong together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import ConfigError

FORMAT = 1


class Results:
    """The samples so far; `add` keeps them on disk. `header` says what they are samples of."""

    def __init__(self, path: Path, header: dict[str, Any], samples: list[dict[str, Any]]) -> None:
        self.path = path
        self.header = header
        self.samples = samples
        self.found = len(samples)

    @classmethod
    def open(cls, path: Path, header: dict[str, Any], *, fresh: bool = False) -> Results:
        """Continues the file at `path`, or begins it (also over an old one, if `fresh`).

        Raises ConfigError where the file is of something else, unreadable or cannot be written.
        """
        header = json.loads(json.dumps(header))
        samples = [] if fresh or not path.exists() else _samples(path, header)
        results = cls(path, header, samples)
        results._write()
        return results

    @classmethod
    def load(cls, path: Path) -> Results:
        """A file of results whatever it is of, to look at. Raises ConfigError where it is none."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            samples = stored.pop("samples")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(path, error) from error
        return cls(path, stored, samples)

    def add(self, sample: dict[str, Any]) -> None:
        """One more sample, JSON's own types only; on disk when this returns."""
        self.samples.append(json.loads(json.dumps(sample, allow_nan=False)))
        self._write()

    def where(self, **key: Any) -> Iterator[dict[str, Any]]:
        """The samples whose fields have these values."""
        for sample in self.samples:
            if all(sample.get(name) == value for name, value in key.items()):
                yield sample

    def has(self, **key: Any) -> bool:
        """True if such a sample is there."""
        return next(self.where(**key), None) is not None

    def _write(self) -> None:
        whole = {
            "format": FORMAT,
            **self.header,
            "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "samples": self.samples,
        }
        beside = self.path.with_name(f"{self.path.name}.partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(whole), encoding="utf-8")
            os.replace(beside, self.path)  # a kill leaves the old file or the new one
        except OSError as error:
            raise ConfigError.of(
                "--out", str(self.path), f"a file that can be written ({error})"
            ) from error


def _samples(path: Path, header: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        samples = stored["samples"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error
    for name, value in {"format": FORMAT, **header}.items():
        if stored.get(name) != value:
            raise ConfigError.of(
                "--out",
                str(path),
                f"results of the same {name}: the file's is {stored.get(name)!r}, this run's is "
                f"{value!r}; give another file, or --fresh to begin anew",
            )
    kept: list[dict[str, Any]] = samples
    return kept


def _unreadable(path: Path, error: Exception) -> ConfigError:
    return ConfigError.of("--out", str(path), f"a file of results ({error!r})")
