"""What one tab has measured in each lesson. Kept in its session, not in the browser."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ui.learn.lessons.measured import Evidence, Measured

__all__ = ["Lecture"]


@dataclass(slots=True)
class Runs:
    """The rows of one lesson by label, all made with the same models."""

    rows: dict[str, Measured] = field(default_factory=dict)
    latest: str = ""


@dataclass(slots=True)
class Lecture:
    """`evidence` of a lesson is empty before its first run; a run of the same label replaces the
    older one and keeps its place.

    Runs of different models are no evidence together: seen are those of the models that `follow`
    named last. `models` is whatever tells two sets of models apart. `may_schedule`: whether this
    visitor may choose how all requests share the LLM.
    """

    models: Hashable = None
    may_schedule: bool = True
    _runs: dict[tuple[str, Hashable], Runs] = field(default_factory=dict)

    def follow(self, models: Hashable) -> bool:
        """From now on these models count. Whether they are others than before."""
        changed = self.models != models
        self.models = models
        return changed

    def evidence(self, lesson: str) -> Evidence:
        """What this tab has measured in a lesson so far, with the models that count."""
        runs = self._runs.get((lesson, self.models), Runs())
        rows: Mapping[str, Measured] = MappingProxyType(dict(runs.rows))
        return Evidence(rows, runs.latest)

    def others(self, lesson: str) -> int:
        """How many rows of the lesson other models have made, which are out of sight."""
        return sum(
            len(runs.rows)
            for (key, models), runs in self._runs.items()
            if key == lesson and models != self.models
        )

    def look(self, lesson: str, label: str) -> bool:
        """That run is the one on the board again. Whether there is one."""
        runs = self._runs.get((lesson, self.models), Runs())
        if label in runs.rows:
            runs.latest = label
        return label in runs.rows

    def keep(self, lesson: str, row: Measured, models: Hashable = None) -> None:
        """One more finished run of `models`; it is the one on the board."""
        runs = self._runs.setdefault((lesson, models), Runs())
        runs.rows[row.label] = row
        runs.latest = row.label
