"""A suite's samples in one JSON file, rewritten after each sample.

A file is continued only with the same header: samples of other headers are not comparable.
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
    """`found`: the number of samples taken over from an existing file."""

    def __init__(self, path: Path, header: dict[str, Any], samples: list[dict[str, Any]]) -> None:
        self.path = path
        self.header = header
        self.samples = samples
        self.found = len(samples)

    @classmethod
    def open(cls, path: Path, header: dict[str, Any], *, fresh: bool = False) -> Results:
        """Continues the file at `path`. Starts a new file if there is none, or if `fresh` is set.
        Raises ConfigError if the file has another header, or cannot be read or written."""
        # Through JSON, which turns tuples into lists: the header is compared with a file's.
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
        # A path that cannot be written fails here, not after the first hour.
        results._write()
        return results

    @classmethod
    def load(cls, path: Path, field: str = "--out") -> Results:
        """Loads the file at `path`, whatever its header. Raises ConfigError, naming `field`, if the
        file cannot be read or has other contents."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            samples = stored.pop("samples")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"a file of results ({error!r})"
            raise ConfigError.of(field, str(path), reason) from error
        return cls(path, stored, samples)

    def add(self, sample: dict[str, Any]) -> None:
        """`sample` has JSON's types only. It is in the file when this returns."""
        # Through JSON: a sample is the same whether its file was read again or not.
        self.samples.append(json.loads(json.dumps(sample, allow_nan=False)))
        self._write()

    def where(self, **key: Any) -> Iterator[dict[str, Any]]:
        for sample in self.samples:
            if all(sample.get(name) == value for name, value in key.items()):
                yield sample

    def has(self, **key: Any) -> bool:
        return next(self.where(**key), None) is not None

    def _write(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = {"format": FORMAT, **self.header, "written_utc": now, "samples": self.samples}
        write_file("--out", self.path, json.dumps(content))


def write_file(field: str, path: Path, text: str) -> None:
    """Replaces the file atomically. Raises ConfigError, naming `field`, if the file cannot be
    written."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        reason = f"a file that can be written ({error})"
        raise ConfigError.of(field, str(path), reason) from error
