"""`sessions`: what lists, searches and exports of past runs cost when there are thousands of them.

Measured on a log that the suite makes in a temporary folder: SYNTHETIC runs, labelled so. Each
figure is the wall time of one call of RunStore, as the page makes it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.context import Context, Report, Suite
from bench.machine import load_average
from bench.results import Results
from bench.sessions_log import LLMS, RARE, LogContents, make_log
from bench.settings import Settings
from bench.tables import column, table
from core.models.loading.catalog import bundled_ssms
from lab.figures import median
from storage import NO_DRAFTER, ORDERS, RunQuery, RunStore
from storage.exports import EXPORTS

__all__ = ["Sessions", "failures"]

MADE = "made"
LIST_MS = 50.0
OPEN_MS = 100.0
THINNED_AT_ONCE = 20
NOTE = "Wall time of one call, in milliseconds. SYNTHETIC runs: no model made them."


@dataclass(frozen=True)
class Sessions(Suite):
    """See Suite. `runs`, `nodes`: how large the log is."""

    name: str = "sessions"
    about: str = "lists, search, opening, exports and upkeep of a log of 10,000 runs; minutes"
    defaults: Settings = Settings(prompts=60, tokens=1, repeats=9, dtypes=("float32",))
    runs: int = 10_000
    nodes: int = 1_000_000

    def measure(self, context: Context) -> None:
        repeats = range(context.settings.repeats)
        todo = [r for r in repeats if not context.results.has(case=cases()[-1].name, repeat=r)]
        if not todo:
            return
        with tempfile.TemporaryDirectory(prefix="specscope-sessions-") as folder:
            path = Path(folder) / "log.db"
            made = self._make(context, path)
            with RunStore(path) as store:
                calls = Calls(store, made)
                calls.warm()
                for repeat in todo:
                    _measure(context, calls, repeat)
                    context.say(f"repeat {repeat}")

    def _make(self, context: Context, path: Path) -> LogContents:
        start = time.perf_counter()
        words = [word for prompt in context.prompts for word in prompt.text.split()]
        models = context.load(context.settings.dtypes[0])
        made = make_log(path, models, self.runs, self.nodes, words)
        seconds = time.perf_counter() - start
        megabytes = path.stat().st_size / 1e6
        context.say(f"made {made.runs} runs, {made.nodes} nodes in {seconds:.0f} s")
        sample: dict[str, Any] = {"case": MADE, "runs": made.runs, "nodes": made.nodes}
        sample |= {"rows": made.rows, "seconds": seconds, "megabytes": megabytes}
        context.results.add(sample)
        return made

    def report(self, context: Context) -> Report:
        return Report(_tables(context.results, cases()), failures(context.results, cases()))


def _measure(context: Context, calls: Calls, repeat: int) -> None:
    for case in cases():
        call: Callable[[], object] = case.prepare(calls, repeat)
        start = time.perf_counter()
        found = call()
        ms = 1000 * (time.perf_counter() - start)
        sample = {"case": case.name, "repeat": repeat, "ms": ms, "load": load_average()}
        context.results.add({**sample, "found": found if isinstance(found, int) else None})


# -- calls --


class Calls:
    """The store, and which run each repeat may open, change or delete."""

    def __init__(self, store: RunStore, made: LogContents) -> None:
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
class StoreCall:
    """`prepare(calls, repeat)` gives the call that is timed; it returns how many were found."""

    name: str
    limit_ms: float | None
    prepare: Callable[[Calls, int], Callable[[], int]]


def _list_call(calls: Calls, repeat: int, *, asked: dict[str, Any]) -> Callable[[], int]:
    last = max(0, calls.made.runs - 100)
    query = RunQuery(**{**asked, "offset": last if asked.get("offset") else 0})
    return lambda: calls.store.runs(query).total


def _a_list(name: str, **asked: Any) -> StoreCall:
    return StoreCall(name, LIST_MS, partial(_list_call, asked=asked))


def _open_call(calls: Calls, repeat: int, *, large: bool = False) -> Callable[[], int]:
    run_id = calls.large(repeat) if large else calls.usual(repeat)
    return lambda: len(calls.store.events(run_id))


def _export_call(calls: Calls, repeat: int, *, name: str, large: bool = False) -> Callable[[], int]:
    events = calls.store.events(calls.large(repeat) if large else calls.usual(repeat))
    return lambda: len(EXPORTS[name].write(events))


def _choices_call(calls: Calls, repeat: int) -> Callable[[], int]:
    return lambda: len(calls.store.choices().llms)


def _summary(calls: Calls, repeat: int) -> Callable[[], int]:
    return lambda: calls.store.run(calls.usual(repeat)).num_rounds


def _annotate_call(calls: Calls, repeat: int) -> Callable[[], int]:
    note = f"SYNTHETIC note of repeat {repeat}"

    def call() -> int:
        calls.store.annotate(calls.usual(repeat), note)
        return 1

    return call


def _delete_call(calls: Calls, repeat: int) -> Callable[[], int]:
    def call() -> int:
        calls.store.delete(calls.victim(repeat))
        return 1

    return call


def cases() -> tuple[StoreCall, ...]:
    """All of them, in the order in which they are measured."""
    last: dict[str, Any] = {"offset": True}
    drafters = [folder.name for folder in bundled_ssms()]
    days = {"since_utc": "2026-01-05", "until_utc": "2026-01-08"}
    everything = {"text": "SYNTHETIC", "status": "completed", "owner": "visitor-3"}
    everything |= {"llm": LLMS[0], "drafter": drafters[0], "order": "fastest"}
    return (
        *(_a_list(f"{order}, first page", order=order) for order in ORDERS),
        *(_a_list(f"{order}, last page", order=order, **last) for order in ORDERS),
        _a_list("one visitor's, newest", owner="visitor-3"),
        _a_list("one visitor's, fastest", owner="visitor-3", order="fastest"),
        _a_list("by status", status="cancelled"),
        _a_list("by LLM", llm=LLMS[1]),
        _a_list("by drafter, fastest", drafter=drafters[1], order="fastest"),
        _a_list("without a drafter", drafter=NO_DRAFTER),
        _a_list("three days, fastest", order="fastest", **days),
        _a_list("with a note", noted=True),
        _a_list("search: a rare word", text=RARE),
        _a_list("search: a word of every run", text="SYNTHETIC"),
        _a_list("search: the same, fastest, last page", text="SYNTHETIC", order="fastest", **last),
        _a_list("search: a piece of no run", text="狐"),
        _a_list("search: a word and a piece", text="synthetic ,"),
        _a_list("search and all filters, fastest", **everything),
        StoreCall("names to filter by", LIST_MS, _choices_call),
        StoreCall("one run's summary", LIST_MS, _summary),
        StoreCall("open a run of 16 to 24 rounds", OPEN_MS, _open_call),
        StoreCall("open one of 500 rounds", None, partial(_open_call, large=True)),
        *(
            StoreCall(f"export: {name}", OPEN_MS, partial(_export_call, name=name))
            for name in EXPORTS
        ),
        *(
            StoreCall(
                f"export: {name}, 500 rounds", None, partial(_export_call, name=name, large=True)
            )
            for name in EXPORTS
        ),
        StoreCall("put a note on a run", None, _annotate_call),
        StoreCall("delete a run", None, _delete_call),
        StoreCall(f"thin {THINNED_AT_ONCE} runs", None, lambda calls, _: calls.thin),
    )


# -- tables --


def _tables(results: Results, cases: Sequence[StoreCall]) -> tuple[str, ...]:
    """What the log holds, and every case's median, best and worst."""
    logs = [
        (one["runs"], one["nodes"], one["rows"], f"{one['seconds']:.1f}", f"{one['megabytes']:.0f}")
        for one in results.where(case=MADE)
    ]
    rows = []
    for case in cases:
        samples = list(results.where(case=case.name))
        if samples:
            figures = (f"{f(column(samples, 'ms')):.1f}" for f in (median, min, max))
            limit = "" if case.limit_ms is None else f"{case.limit_ms:.0f}"
            rows.append((case.name, samples[0]["found"], *figures, len(samples), limit))
    heads = ("runs", "nodes", "rows of rounds", "seconds to make", "MB")
    timed = ("call", "found", "median ms", "least", "most", "repeats", "may take")
    return (table("The log", heads, logs), table("Calls", timed, rows, NOTE))


def failures(results: Results, cases: Sequence[StoreCall]) -> tuple[str, ...]:
    """One sentence for each case whose median is above what it may take."""
    found = []
    for case in cases:
        times = column(results.where(case=case.name), "ms")
        if times and case.limit_ms is not None and median(times) > case.limit_ms:
            found.append(f"{case.name}: {median(times):.1f} ms, {case.limit_ms:.0f} ms are allowed")
    return tuple(found)
