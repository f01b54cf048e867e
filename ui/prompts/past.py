"""Past runs prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import UnknownStudyError
from ui.prompts.rows import PromptLine, of_runs
from ui.prompts.run_figures import PastRun, RunFigures
from ui.server.context import Context, StoreApi

__all__ = ["MOST_RUNS", "FoundPrompts", "PastSearch", "read_past_runs"]

MOST_RUNS = 200
"""How many runs a search covers at first, and how many `PastSearch.more` adds."""
MOST_PLAIN = 1000
"""The number of latest plain runs among which baselines are searched."""
SHOWN_EVERY = 25
"""The number of runs read between two updates of the table."""


@dataclass(frozen=True, slots=True)
class PastSearch:
    """A search for runs. `owner`: None for all owners; `search`: words of prompt, output or note;
    `drafter`: empty for any; `taken`: how many of the latest matches are read."""

    owner: str | None
    search: str = ""
    drafter: str = ""
    taken: int = MOST_RUNS

    def more(self) -> PastSearch:
        """The same search over more runs."""
        return replace(self, taken=self.taken + MOST_RUNS)


@dataclass(frozen=True, slots=True)
class FoundPrompts:
    """The result of a search so far. `total`: how many runs match; `num_read`: how many matching
    runs the search covers in all; `num_speculative`: how many runs with drafters were read so far;
    `lines`: the rows of these runs."""

    lines: tuple[PromptLine, ...]
    num_speculative: int
    num_read: int
    total: int
    is_complete: bool

    @property
    def more(self) -> bool:
        """Whether the search is complete and older runs match too."""
        return self.is_complete and self.num_read < self.total


def read_past_runs(
    context: Context, figures: RunFigures, domain_of: Mapping[str, str], past_search: PastSearch
) -> Iterator[FoundPrompts]:
    """Yields the result so far after every SHOWN_EVERY runs; the last result is complete and has
    the speed-ups. `domain_of`: a prompt's text -> the prompt's domain."""
    owner = past_search.owner
    filters = {"text": past_search.search, "drafter": past_search.drafter}
    page = _completed_runs(context, owner, past_search.taken, **filters)
    with_drafters = [summary for summary in page.rows if summary.drafters]
    domains = _Domains(context.store, domain_of)
    runs: list[PastRun] = []
    for i, run in enumerate(figures.of(with_drafters), start=1):
        runs.append(run)
        if i % SHOWN_EVERY == 0 and i < len(with_drafters):
            yield FoundPrompts(
                of_runs(runs, domains.of), i, len(page.rows), page.total, is_complete=False
            )
    num_speculative, texts = len(runs), {run.prompt for run in runs}
    # No filters, since the filters may exclude a prompt's plain runs.
    plain = _completed_runs(context, owner, MOST_PLAIN, drafter="none").rows
    runs += figures.of(summary for summary in plain if summary.prompt in texts)
    yield FoundPrompts(
        of_runs(runs, domains.of), num_speculative, len(page.rows), page.total, is_complete=True
    )


def _completed_runs(context: Context, owner: str | None, limit: int, **filters: str) -> Any:
    query = context.query(status="completed", owner=owner, limit=limit, **filters)
    return context.store.runs(query)


class _Domains:
    """The domain of a prompt in the run's study, else the domain known for the prompt's text."""

    def __init__(self, store: StoreApi, domain_of: Mapping[str, str]) -> None:
        self._store = store
        self._known = domain_of
        self._by_run: dict[str, str] = {}
        self._studies: dict[str, dict[str, str]] = {"": {}}

    def of(self, run: PastRun) -> str:
        run_id = run.figures.run_id
        if run_id not in self._by_run:
            domain = self._of_study(self._store.studies.of_run(run_id)).get(run.prompt, "")
            self._by_run[run_id] = domain or self._known.get(run.prompt, "")
        return self._by_run[run_id]

    def _of_study(self, study_id: str) -> dict[str, str]:
        if study_id not in self._studies:
            try:
                _, plain = self._store.studies.study(study_id)
            except UnknownStudyError:
                return {}  # deleted meanwhile
            prompts = plain.get("prompts", ())
            self._studies[study_id] = {one["text"]: one.get("domain", "") for one in prompts}
        return self._studies[study_id]
