"""The results of each lesson's runs in one browser tab."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ui.learn.lessons.measured import Evidence, Measured

__all__ = ["MOST_WATCHED", "Lecture"]

MOST_WATCHED = 4
"""The most runs whose views of all requests are kept."""


@dataclass(slots=True)
class Runs:
    """One lesson's rows by label, made with the same models. `latest`: the displayed run's
    label."""

    rows: dict[str, Measured] = field(default_factory=dict)
    latest: str = ""


@dataclass(slots=True)
class Lecture:
    """The results of all lessons.

    `models`: any value that identifies the loaded models; only runs of these models are visible.
    `at`: the number of the lesson opened last, 0 before the first. `may_schedule`: whether this
    visitor may choose the schedule of all requests. `requests`: run id -> round (from 1) -> the
    view of all requests in that round.
    """

    models: Hashable = None
    at: int = 0
    may_schedule: bool = True
    requests: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _runs: dict[tuple[str, Hashable], Runs] = field(default_factory=dict)

    def follow(self, models: Hashable) -> bool:
        """Uses these models from now on; returns whether they differ from the models before."""
        is_new = self.models != models
        self.models = models
        return is_new

    def evidence(self, lesson: str) -> Evidence:
        """The results of a lesson in this tab with the present models."""
        runs = self._runs.get((lesson, self.models), Runs())
        rows: Mapping[str, Measured] = MappingProxyType(dict(runs.rows))
        return Evidence(rows, runs.latest)

    def others(self, lesson: str) -> int:
        """The number of the lesson's rows that were made with other models and are hidden."""
        return sum(
            len(runs.rows)
            for (key, models), runs in self._runs.items()
            if key == lesson and models != self.models
        )

    def watch(self, run_id: str, value: dict[str, Any]) -> None:
        """Keeps the view of all requests for the present round of a run in progress. Only the
        latest MOST_WATCHED runs have views."""
        own = next((row for row in value["rows"].values() if row["run"] == run_id), None)
        if own is None or not own["round"]:
            return
        self.requests.setdefault(run_id, {})[own["round"]] = value
        for old in list(self.requests)[:-MOST_WATCHED]:
            del self.requests[old]

    def requests_at(
        self, run_id: str, number: int, chosen: bool
    ) -> tuple[int, dict[str, Any]] | None:
        """(round, view of all requests in that round); None if no round has a view.

        The round is `number`, else the last round before it that has a view, else the first that
        has one. If the visitor has not `chosen` the round, only the rounds with drafted or
        granted nodes and the most requests count, if there are any."""
        seen = self.requests.get(run_id, {})
        most = max((len(value["rows"]) for value in seen.values()), default=0)
        full = [n for n, one in seen.items() if len(one["rows"]) == most and one["most"]]
        rounds = sorted(seen if chosen or not full else full)
        if not rounds:
            return None
        found = max((n for n in rounds if n <= number), default=rounds[0])
        return found, seen[found]

    def display(self, lesson: str, label: str) -> bool:
        """Makes the row with this label the displayed run; returns whether there is such a row."""
        runs = self._runs.get((lesson, self.models), Runs())
        if label in runs.rows:
            runs.latest = label
        return label in runs.rows

    def repeat(
        self, lesson: str, repeats: Mapping[str, Sequence[Measured]], models: Hashable
    ) -> None:
        """Sets the repeats of rows. `repeats`: a row's label -> the row's repeats, in order."""
        rows = self._runs[(lesson, models)].rows
        for label, measured in repeats.items():
            rows[label] = replace(rows[label], repeats=tuple(measured))

    def keep(self, lesson: str, row: Measured, models: Hashable = None) -> None:
        """Adds a finished run of `models` and makes it the displayed run."""
        runs = self._runs.setdefault((lesson, models), Runs())
        runs.rows[row.label] = row
        runs.latest = row.label
