"""What one tab has measured in each lesson. Kept on its desk, not in the browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ui.lessons.measured import Evidence, Measured

__all__ = ["Lecture"]


@dataclass(slots=True)
class Lecture:
    """`evidence` of a lesson is empty before its first run; a run of the same label replaces the
    older one and keeps its place."""

    _rows: dict[str, dict[str, Measured]] = field(default_factory=dict)
    _latest: dict[str, str] = field(default_factory=dict)

    def evidence(self, lesson: str) -> Evidence:
        """What this tab has measured in a lesson so far."""
        rows: Mapping[str, Measured] = MappingProxyType(dict(self._rows.get(lesson, {})))
        return Evidence(rows, self._latest.get(lesson, ""))

    def keep(self, lesson: str, row: Measured) -> None:
        """One more finished run; it is the one on the board."""
        self._rows.setdefault(lesson, {})[row.label] = row
        self._latest[lesson] = row.label
