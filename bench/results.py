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
        # As it is read back, tuples as lists: it is compared with a file's.
        header, samples = json.loads(json.dumps(header)), []
        if path.exists() and not fresh:
            old = cls.load(path)
            for name, value in {"format": FORMAT, **header}.items():
                if (existing := old.header.get(name)) != value:
                    allowed = (
                        f"results of the same {name}: the file's is {existing!r}, this run's is "
                    )
                    allowed += f"{value!r}; give another file, or --fresh to begin anew"
                    raise ConfigError.of("--out", str(path), allowed)
            samples = old.samples
        results = cls(path, header, samples)
        # At once: a place that cannot be written fails now, not after the first hour.
        results._write()
        return results

    @classmethod
    def load(cls, path: Path) -> Results:
        """A file of results whatever it is of, to look at. Raises ConfigError where it is none."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            samples = stored.pop("samples")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"a file of results ({error!r})"
            raise ConfigError.of("--out", str(path), reason) from error
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
        return next(self.where(**key), None) is not None

    def _write(self) -> None:
        written = datetime.now(UTC).isoformat(timespec="seconds")
        whole = {"format": FORMAT, **self.header, "written_utc": written, "samples": self.samples}
        write_text("--out", self.path, json.dumps(whole))


def write_text(field: str, path: Path, text: str) -> None:
    """Writes a file; a kill leaves the old one or the new one. Raises ConfigError, naming `field`,
    where it cannot be written."""
    beside = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        reason = f"a file that can be written ({error})"
        raise ConfigError.of(field, str(path), reason) from error
