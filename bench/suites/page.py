"""`page`: how fast the page is in a real Chromium. `--tokens`: the length of the run that is
stopped.

Needs playwright and a Chromium (requirements-dev.txt).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

from bench.context import Context, Report, Suite
from bench.machine import load_average
from bench.results import Results
from bench.settings import Settings
from bench.tables import NOTHING, table

# Rounds of a synthetic run, and rounds per second.
SPEEDS = {"60 rounds a second": (240, 60), "300 rounds a second": (900, 300)}
FACTS = ("frames", "frames at once", *SPEEDS, "stop")
FRAMES = (("frames", "run when loaded"), ("frames at once", "run while it loads"))
NOTE = (
    "Medians over the repeats; in brackets the lowest and the highest. Engine, server, browser and "
    "measurement share the machine. The runs are SYNTHETIC, except for Stop: a real engine's run."
)
Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class Page(Suite):
    one_dtype: ClassVar[bool] = True

    name: str = "page"
    about: str = "the page in a Chromium: delays of tokens, gaps between frames, Stop"
    defaults: Settings = Settings(prompts=1, tokens=400, repeats=5, dtypes=("float32",))
    facts: tuple[str, ...] = FACTS

    def measure(self, context: Context) -> None:
        # With repeats outermost, a noisy moment affects all facts alike.
        repeats = range(context.settings.repeats)
        keys = [{"fact": fact, "repeat": repeat} for repeat in repeats for fact in self.facts]
        todo = [key for key in keys if not context.results.has(**key)]
        if not todo:
            return
        from bench.page.browser import chromium

        with chromium(self.name) as browser:
            for key in todo:
                figures = _measure_fact(str(key["fact"]), browser, context)
                context.results.add({**key, "load": load_average(), **figures})
                context.say(f"{key['fact']}, repeat {key['repeat']}")

    def report(self, context: Context) -> Report:
        return tables(context.results)


def _measure_fact(fact: str, browser: Any, context: Context) -> dict[str, Any]:
    from bench.page import gaps
    from bench.page.browser import Tab
    from bench.page.site import open_site
    from core.engine.engine import Engine
    from core.engine.worker import Worker

    measures: Mapping[str, Callable[..., Any]] = {
        "frames": partial(gaps.measure_gaps, loaded=True),
        "frames at once": gaps.measure_gaps,
        "stop": partial(gaps.measure_stop, tokens=context.settings.tokens),
        **dict.fromkeys(SPEEDS, gaps.token_delays),
    }
    models, tab = context.load(context.settings.dtypes[0]), Tab(browser)
    worker: Any = Worker(Engine(models)) if fact == "stop" else None
    try:
        with open_site(
            worker or gaps.playback_worker(models, *SPEEDS.get(fact, (500, 60)))
        ) as site:
            figures = measures[fact](tab, site)
            return {"figures": figures, "problems": tab.leave()}
    finally:
        tab.page.context.close()


def tables(results: Results) -> Report:
    """A row for each figure; a failure for each missed target."""
    rows = [*_rows(results), *_problems(results)]
    loads = [load for sample in results.samples if (load := sample["load"]) is not None]
    note = f"{NOTE} Load average {min(loads)} to {max(loads)}." if loads else NOTE
    failures = tuple(f"{what}: {measured}" for what, _, measured, holds in rows if holds == "no")
    heads = ("what", "target", "measured", "holds")
    return Report((table("How quick the page is", heads, rows, note),), failures)


def _rows(results: Results) -> Iterator[Row]:
    for fact in SPEEDS:
        engine = f"engine of {fact}"
        delays_by_run = [sorted(one["late_ms"]) for one in _figures(results, fact)]
        for name, share in (("median", 0.5), ("95 %", 0.95)):
            delays = [each[int(share * len(each))] for each in delays_by_run]
            yield from _row(
                f"token on the page, {engine}: {name}", "<= 100 ms", delays, "ms", most=100
            )
        rates = [one for one in _figures(results, fact, "updates_per_second") if one]
        yield from _row(
            f"updates of the text, {engine}", "10 to 20", rates, "a second", most=20, least=10
        )
        shifts = _figures(results, fact, "shift")
        yield from _row(f"layout shift of a run, {engine}", "0", shifts, "", 0.001)
    for fact, when in FRAMES:
        run = f"500 rounds, {when}"
        under = [100 * share for share in _figures(results, fact, "under_50")]
        yield from _row(f"{run}: gaps of at most 50 ms", ">= 95 %", under, "%", least=95)
        p95 = _figures(results, fact, "p95")
        yield from _row(f"{run}: 95 % of gaps", "<= 50 ms", p95, "ms", most=50)
        for name, field in (("worst gap", "worst"), ("longest task", "longest_task")):
            yield from _row(f"{run}: {name}", "", _figures(results, fact, field), "ms")
    rounds = _figures(results, "stop", "rounds")
    yield from _row("Stop: rounds after the server has it", "<= 1", rounds, "", most=1)
    for name, field in (("click", "ms"), ("server", "ms_in_the_engine")):
        yield from _row(f"Stop: {name} to engine free", "", _figures(results, "stop", field), "ms")


def _problems(results: Results) -> Iterator[Row]:
    all_problems = [problem for sample in results.samples for problem in sample["problems"]]
    hosts = [one for one in all_problems if one.startswith("request to another host")]
    errors = [one for one in all_problems if one not in hosts]
    for what, problems in (("request to another host", hosts), ("error in the console", errors)):
        listed = "; ".join(" ".join(one.split()) for one in problems[:3]) or "none"
        yield f"no {what}, over all visits", "yes", listed, "no" if problems else "yes"


def _figures(results: Results, fact: str, field: str = "") -> list[Any]:
    figures = [sample["figures"] for sample in results.where(fact=fact)]
    return [one[field] for one in figures] if field else figures


def _row(
    what: str, target: str, values: Sequence[float], unit: str, most: float = inf, least: float = 0
) -> Iterator[Row]:
    if not values:
        return
    in_order = sorted(values)
    middle = in_order[len(in_order) // 2]
    digits = 1 if unit or most >= 1 else 4
    low, high = (f"{value:.{digits}f}" for value in (in_order[0], in_order[-1]))
    measured = " ".join(f"{middle:.{digits}f} {unit} ({low} to {high})".split())
    holds = "yes" if least <= middle <= most else "no"
    yield what, target or NOTHING, measured, holds if target else NOTHING
