"""What was measured on the way, a JSON line each, so that a run that goes on keeps what it knew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zoo.files import replace_file

__all__ = ["Curve"]


class Curve:
    """One file; lines in the order of their steps."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, step: int, figures: dict[str, Any]) -> None:
        """A line more. Those of as many steps or more are of a run that was begun anew."""
        earlier = [line for line in self.lines() if line["step"] < step]
        text = "".join(json.dumps(line) + "\n" for line in [*earlier, {"step": step, **figures}])
        replace_file(self._path, lambda file: file.write(text.encode()))

    def begin(self) -> None:
        """Nothing is known yet: what there is, is of a run that was begun anew."""
        self._path.unlink(missing_ok=True)

    def lines(self) -> tuple[dict[str, Any], ...]:
        """All of them; none where there is no file."""
        if not self._path.is_file():
            return ()
        return tuple(map(json.loads, self._path.read_text("utf-8").splitlines()))
