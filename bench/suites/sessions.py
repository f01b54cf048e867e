"""`sessions`: the times of calls to a log with thousands of runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
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
from bench.timing import time_call
from core.models.loading.catalog import bundled_ssms
from core.plurals import number_of
from lab.figures import median
from storage import NO_DRAFTER, ORDERS, RunQuery, RunStore
from storage.exports import EXPORTS

LOG_CASE = "made"  # the field `case` of the sample that describes the log
THINNED_AT_ONCE = 20  # runs thinned (see RunStore.thin) in one call
LIST_MS, OPEN_MS = 50.0, 100.0  # bounds of a median
Call = Callable[[], int | None]
NOTE = "Wall time of one call, in milliseconds. SYNTHETIC runs: no model made them."


@dataclass(frozen=True)
class SessionsLog(Suite):
    """`runs`, `nodes`: the size of the log."""

    name: str = "sessions"
    about: str = "lists, search, opening, exports and upkeep of a log of 10,000 runs; minutes"
    defaults: Settings = Settings(prompts=60, tokens=1, repeats=9, dtypes=("float32",))
    runs: int = 10_000
    nodes: int = 1_000_000

    def measure(self, context: Context) -> None:
        pairs = [(r, case) for r in range(context.settings.repeats) for case in cases()]
        has = context.results.has
        todo = [(r, case) for r, case in pairs if not has(case=case.name, repeat=r)]
        if not todo:
            return
        with tempfile.TemporaryDirectory(prefix="specscope-sessions-") as folder:
            path = Path(folder) / "log.db"
            contents = self._make(context, path)
            with RunStore(path) as store:
                calls = Calls(store, contents, contents.runs)
                for warm in (calls.find, calls.open):  # the first calls fill caches
                    warm(0)()
                for repeat, case in todo:
                    result, seconds = time_call(case.prepare(calls, repeat))
                    sample = {"case": case.name, "repeat": repeat, "ms": 1000 * seconds}
                    sample |= {"load": load_average(), "found": result}
                    context.results.add(sample)
                    context.say(f"repeat {repeat}: {case.name}")

    def _make(self, context: Context, path: Path) -> LogContents:
        words = [word for prompt in context.prompts for word in prompt.text.split()]
        models = context.load(context.settings.dtypes[0])
        contents, seconds = time_call(lambda: make_log(path, models, self.runs, self.nodes, words))
        context.say(
            f"made {contents.runs} runs, {number_of(contents.nodes, 'node')} in {seconds:.0f} s"
        )
        sample = {
            "runs": contents.runs,
            "nodes": contents.nodes,
            "rows": contents.rows,
            "seconds": seconds,
        }
        context.results.add({"case": LOG_CASE, **sample, "megabytes": path.stat().st_size / 1e6})
        return contents

    def report(self, context: Context) -> Report:
        return _tables(context.results)


@dataclass
class Calls:
    store: RunStore
    log: LogContents
    whole: int  # number of runs that are not thinned

    def run_id(self, repeat: int, *, large: bool = False) -> str:
        """A run of usual size or, with `large`, one of the longest runs."""
        # The newest usual runs first: `thin` thins the oldest runs.
        run_ids = self.log.large if large else self.log.usual[::-1]
        return run_ids[repeat % len(run_ids)]

    def find(self, repeat: int, *, last: bool = False, **arguments: Any) -> Call:
        query = RunQuery(**arguments, offset=max(0, self.log.runs - 100) if last else 0)
        return lambda: self.store.runs(query).total

    def choices(self, repeat: int) -> Call:
        return lambda: len(self.store.choices().llms)

    def summary(self, repeat: int) -> Call:
        return lambda: self.store.run(self.run_id(repeat)).num_rounds

    def open(self, repeat: int, *, large: bool = False) -> Call:
        run_id = self.run_id(repeat, large=large)
        return lambda: len(self.store.events(run_id))

    def export(self, repeat: int, *, name: str, large: bool = False) -> Call:
        events = self.store.events(self.run_id(repeat, large=large))
        return lambda: len(EXPORTS[name].write(events))

    def annotate(self, repeat: int) -> Call:
        note = f"SYNTHETIC note of repeat {repeat}"
        return partial(self.store.annotate, self.run_id(repeat), note)

    def delete(self, repeat: int) -> Call:
        """Deletes a run that `run_id` does not return."""
        return partial(self.store.delete, f"synthetic-{self.log.runs - 1 - repeat}")

    def thin(self, repeat: int) -> Call:
        """Thins the oldest runs that are not thinned yet."""
        self.whole = max(0, self.whole - THINNED_AT_ONCE)
        return partial(self.store.thin, self.whole)


@dataclass(frozen=True, slots=True)
class StoreCall:
    """The call that `prepare(calls, repeat)` returns is timed. `limit_ms`: the bound of the
    median."""

    name: str
    limit_ms: float | None
    prepare: Callable[[Calls, int], Call]


def _list_call(name: str, **arguments: Any) -> StoreCall:
    return StoreCall(name, LIST_MS, partial(Calls.find, **arguments))


def cases() -> tuple[StoreCall, ...]:
    """The timed calls, in the order of measurement."""
    drafters = [folder.name for folder in bundled_ssms()]
    days = {"since_utc": "2026-01-05", "until_utc": "2026-01-08"}
    all_filters = {"text": "SYNTHETIC", "status": "completed", "owner": "visitor-3"}
    all_filters |= {"llm": LLMS[0], "drafter": drafters[0], "order": "fastest"}
    return (
        *(_list_call(f"{order}, first page", order=order) for order in ORDERS),
        *(_list_call(f"{order}, last page", order=order, last=True) for order in ORDERS),
        _list_call("one visitor's, newest", owner="visitor-3"),
        _list_call("one visitor's, fastest", owner="visitor-3", order="fastest"),
        _list_call("by status", status="cancelled"),
        _list_call("by LLM", llm=LLMS[1]),
        _list_call("by drafter, fastest", drafter=drafters[1], order="fastest"),
        _list_call("without a drafter", drafter=NO_DRAFTER),
        _list_call("three days, fastest", order="fastest", **days),
        _list_call("with a note", noted=True),
        _list_call("search: a rare word", text=RARE),
        _list_call("search: a word of every run", text="SYNTHETIC"),
        _list_call(
            "search: the same, fastest, last page", text="SYNTHETIC", order="fastest", last=True
        ),
        _list_call("search: a piece of no run", text="狐"),
        _list_call("search: a word and a piece", text="synthetic ,"),
        _list_call("search and all filters, fastest", **all_filters),
        StoreCall("names to filter by", LIST_MS, Calls.choices),
        StoreCall("one run's summary", LIST_MS, Calls.summary),
        StoreCall("open a run of 16 to 24 rounds", OPEN_MS, Calls.open),
        StoreCall("open one of 500 rounds", None, partial(Calls.open, large=True)),
        *(
            StoreCall(f"export: {name}{end}", limit, partial(Calls.export, name=name, large=large))
            for end, limit, large in (("", OPEN_MS, False), (", 500 rounds", None, True))
            for name in EXPORTS
        ),
        StoreCall("put a note on a run", None, Calls.annotate),
        StoreCall("delete a run", None, Calls.delete),
        StoreCall(f"thin {THINNED_AT_ONCE} runs", None, Calls.thin),
    )


def _tables(results: Results) -> Report:
    logs = [
        (one["runs"], one["nodes"], one["rows"], f"{one['seconds']:.1f}", f"{one['megabytes']:.0f}")
        for one in results.where(case=LOG_CASE)
    ]
    rows, failures = [], []
    for case in cases():
        samples = list(results.where(case=case.name))
        if samples:
            ms, most = column(samples, "ms"), case.limit_ms
            figures = (f"{f(ms):.1f}" for f in (median, min, max))
            limit = "" if most is None else f"{most:.0f}"
            rows.append((case.name, samples[0]["found"], *figures, len(samples), limit))
            if most is not None and median(ms) > most:
                failures.append(f"{case.name}: {median(ms):.1f} ms, {most:.0f} ms are allowed")
    heads = ("runs", "nodes", "rows of rounds", "seconds to make", "MB")
    columns = ("call", "found", "median ms", "least", "most", "repeats", "may take")
    texts = (table("The log", heads, logs), table("Calls", columns, rows, NOTE))
    return Report(texts, tuple(failures))
