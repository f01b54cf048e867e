"""Figures measured during a training run, one JSON line for each measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zoo.files import replace_file

__all__ = ["LearningCurve"]


class LearningCurve:
    """One file; its lines are in the order of their steps."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, step: int, figures: dict[str, Any]) -> None:
        """Adds a line; removes an interrupted run's lines of this step and of later steps."""
        earlier = [line for line in self.lines() if line["step"] < step]
        # The file is replaced, since a kill could cut an appended line.
        text = "".join(json.dumps(line) + "\n" for line in [*earlier, {"step": step, **figures}])
        replace_file(self._path, lambda file: file.write(text.encode()))

    def begin(self) -> None:
        """Removes all lines."""
        self._path.unlink(missing_ok=True)

    def lines(self) -> tuple[dict[str, Any], ...]:
        """All lines; none if there is no file."""
        if not self._path.is_file():
            return ()
        return tuple(map(json.loads, self._path.read_text("utf-8").splitlines()))
