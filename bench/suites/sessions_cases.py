"""What the `sessions` suite measures: calls of RunStore as the page makes them, each with the
milliseconds that it may take (None: it is told, not judged)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.sessions_log import LLMS, RARE, Made
from bench.sessions_run import DRAFTERS
from storage import NO_DRAFTER, ORDERS, RunQuery, RunStore
from storage.exports import EXPORTS

__all__ = ["Calls", "Case", "cases"]

LIST_MS = 50.0
OPEN_MS = 100.0
THINNED_AT_ONCE = 20


class Calls:
    """The store, and which run each repeat may open, change or delete."""

    def __init__(self, store: RunStore, made: Made) -> None:
        self.store, self.made = store, made
        self._kept = made.runs

    def warm(self) -> None:
        """What the first call of a process sets up is no call's cost."""
        self.store.runs(RunQuery())
        self.store.events(self.usual(0))

    def usual(self, repeat: int) -> str:
        """A run of usual size, another one each time."""
        return self.made.usual[-1 - repeat % len(self.made.usual)]

    def large(self, repeat: int) -> str:
        """One of the longest runs."""
        return self.made.large[repeat % len(self.made.large)]

    def victim(self, repeat: int) -> str:
        """A run that is deleted; no other case uses it."""
        return f"synthetic-{self.made.runs - 1 - repeat}"

    def thin(self) -> int:
        """The oldest runs that are still whole."""
        self._kept = max(0, self._kept - THINNED_AT_ONCE)
        return self.store.thin(self._kept)


@dataclass(frozen=True, slots=True)
class Case:
    """`prepare(calls, repeat)` gives the call that is timed; it returns how many were found."""

    name: str
    limit_ms: float | None
    prepare: Callable[[Calls, int], Callable[[], int]]


def _listed(calls: Calls, repeat: int, *, asked: dict[str, Any]) -> Callable[[], int]:
    last = max(0, calls.made.runs - 100)
    query = RunQuery(**{**asked, "offset": last if asked.get("offset") else 0})
    return lambda: calls.store.runs(query).total


def _a_list(name: str, **asked: Any) -> Case:
    return Case(name, LIST_MS, partial(_listed, asked=asked))


def _opened(calls: Calls, repeat: int, *, large: bool = False) -> Callable[[], int]:
    run_id = calls.large(repeat) if large else calls.usual(repeat)
    return lambda: len(calls.store.events(run_id))


def _exported(calls: Calls, repeat: int, *, name: str, large: bool = False) -> Callable[[], int]:
    events = calls.store.events(calls.large(repeat) if large else calls.usual(repeat))
    return lambda: len(EXPORTS[name].write(events))


def _chosen(calls: Calls, repeat: int) -> Callable[[], int]:
    return lambda: len(calls.store.choices().llms)


def _summary(calls: Calls, repeat: int) -> Callable[[], int]:
    return lambda: calls.store.run(calls.usual(repeat)).num_rounds


def _annotated(calls: Calls, repeat: int) -> Callable[[], int]:
    note = f"SYNTHETIC note of repeat {repeat}"

    def call() -> int:
        calls.store.annotate(calls.usual(repeat), note)
        return 1

    return call


def _deleted(calls: Calls, repeat: int) -> Callable[[], int]:
    def call() -> int:
        calls.store.delete(calls.victim(repeat))
        return 1

    return call


def cases() -> tuple[Case, ...]:
    """All of them, in the order in which they are measured."""
    last: dict[str, Any] = {"offset": True}
    days = {"since_utc": "2026-01-05", "until_utc": "2026-01-08"}
    everything = {"text": "SYNTHETIC", "status": "completed", "owner": "visitor-3"}
    everything |= {"llm": LLMS[0], "drafter": DRAFTERS[0], "order": "fastest"}
    return (
        *(_a_list(f"{order}, first page", order=order) for order in ORDERS),
        *(_a_list(f"{order}, last page", order=order, **last) for order in ORDERS),
        _a_list("one visitor's, newest", owner="visitor-3"),
        _a_list("one visitor's, fastest", owner="visitor-3", order="fastest"),
        _a_list("by status", status="cancelled"),
        _a_list("by LLM", llm=LLMS[1]),
        _a_list("by drafter, fastest", drafter=DRAFTERS[1], order="fastest"),
        _a_list("without a drafter", drafter=NO_DRAFTER),
        _a_list("three days, fastest", order="fastest", **days),
        _a_list("with a note", noted=True),
        _a_list("search: a rare word", text=RARE),
        _a_list("search: a word of every run", text="SYNTHETIC"),
        _a_list("search: the same, fastest, last page", text="SYNTHETIC", order="fastest", **last),
        _a_list("search: a piece of no run", text="狐"),
        _a_list("search: a word and a piece", text="synthetic ,"),
        _a_list("search and all filters, fastest", **everything),
        Case("names to filter by", LIST_MS, _chosen),
        Case("one run's summary", LIST_MS, _summary),
        Case("open a run of 16 to 24 rounds", OPEN_MS, _opened),
        Case("open one of 500 rounds", None, partial(_opened, large=True)),
        *(Case(f"export: {name}", OPEN_MS, partial(_exported, name=name)) for name in EXPORTS),
        *(
            Case(f"export: {name}, 500 rounds", None, partial(_exported, name=name, large=True))
            for name in EXPORTS
        ),
        Case("put a note on a run", None, _annotated),
        Case("delete a run", None, _deleted),
        Case(f"thin {THINNED_AT_ONCE} runs", None, lambda calls, _: calls.thin),
    )
