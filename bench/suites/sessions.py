"""`sessions`: what lists, searches and exports of past runs cost when there are thousands of them.

Measured on a log that the suite makes in a temporary folder: SYNTHETIC runs, labelled so. Each
figure is the wall time of one call of RunStore, as the page makes it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.context import Context, Report
from bench.machine import load_average
from bench.sessions_log import Made, make_log, words_of
from bench.settings import Settings
from bench.suites.sessions_cases import Calls, cases
from bench.suites.sessions_tables import failures, tables
from storage import RunStore

__all__ = ["Sessions"]

MADE = "made"


@dataclass(frozen=True)
class Sessions:
    """See Suite. `runs`, `nodes`: how large the log is."""

    name: str = "sessions"
    about: str = "lists, search, opening, exports and upkeep of a log of 10,000 runs; minutes"
    defaults: Settings = Settings(prompts=60, tokens=1, repeats=9, dtypes=("float32",))
    runs: int = 10_000
    nodes: int = 1_000_000

    def check(self, settings: Settings) -> None:
        """Any settings of one process will do; only `repeats` and the prompts' words are used."""
        settings.alone()

    def measure(self, context: Context) -> None:
        repeats = range(context.settings.repeats)
        todo = [r for r in repeats if not context.results.has(case=cases()[-1].name, repeat=r)]
        if not todo:
            return
        with tempfile.TemporaryDirectory(prefix="specscope-sessions-") as folder:
            path = Path(folder) / "log.db"
            made = self._made(context, path)
            with RunStore(path) as store:
                calls = Calls(store, made)
                calls.warm()
                for repeat in todo:
                    _measured(context, calls, repeat)
                    context.say(f"repeat {repeat}")

    def _made(self, context: Context, path: Path) -> Made:
        start = time.perf_counter()
        words = words_of([prompt.text for prompt in context.prompts])
        made = make_log(path, self.runs, self.nodes, words)
        seconds = time.perf_counter() - start
        megabytes = path.stat().st_size / 1e6
        context.say(f"made {made.runs} runs, {made.nodes} nodes in {seconds:.0f} s")
        sample: dict[str, Any] = {"case": MADE, "runs": made.runs, "nodes": made.nodes}
        sample |= {"rows": made.rows, "seconds": seconds, "megabytes": megabytes}
        context.results.add(sample)
        return made

    def report(self, context: Context) -> Report:
        return Report(tables(context.results, cases(), MADE), failures(context.results, cases()))


def _measured(context: Context, calls: Calls, repeat: int) -> None:
    for case in cases():
        call: Callable[[], object] = case.prepare(calls, repeat)
        start = time.perf_counter()
        found = call()
        ms = 1000 * (time.perf_counter() - start)
        sample = {"case": case.name, "repeat": repeat, "ms": ms, "load": load_average()}
        context.results.add({**sample, "found": found if isinstance(found, int) else None})
