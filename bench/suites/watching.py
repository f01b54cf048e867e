"""`watching`: the engine's speed with a run log and a page in a Chromium, and without both.

If threads can be pinned, the suite also measures with the engine's thread on a core of its own.
Needs playwright and a Chromium (requirements-dev.txt).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from bench.contestants import request
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.tables import claim_row, claims_table, figure, group_rows, long_rows, ratio, table
from core.config import SpeculationConfig
from lab.order import Block

HEADLESS, WATCHED = "headless, no log", "page and log"
APART, SHARED = "engine on a core of its own", "all cores shared"
AT_LEAST = 0.95  # share of the headless speed
# The page's `record_top_k`: both contestants record equally many candidates.
TOP_K = 5


@dataclass(frozen=True)
class Watching(Suite):
    one_dtype: ClassVar[bool] = True

    name: str = "watching"
    about: str = "the engine watched by a page in a Chromium and kept in the log, against headless"
    defaults: Settings = Settings(prompts=4, tokens=256, repeats=5, dtypes=("float32",))
    presets: tuple[str, ...] = ("autoregressive", "specinfer")

    def measure(self, context: Context) -> None:
        items = [prompt.id for prompt in context.prompts]
        for preset in self.presets:
            blocks = Blocks(context, {"preset": preset}, items)
            if blocks.missing_blocks:
                self._measure(blocks, preset)

    def _measure(self, blocks: Blocks, preset: str) -> None:
        from bench.page.browser_process import browser_client
        from bench.page.site import open_site
        from core.engine.engine import Engine
        from core.engine.worker import Worker

        context, first = blocks.context, blocks.missing_blocks[0]
        models = context.load(context.settings.dtypes[0])
        with (
            open_site(Worker(Engine(models))) as site,
            browser_client(self.name, site.url) as browser,
        ):
            browser.call("prepare", preset, context.settings.tokens)
            contestants = _contestants(context, preset, site, browser)
            # Contestants are warmed up first: the engine makes some measurements only once.
            blocks.measure(contestants, warm=first)
            for problem in browser.call("problems")[:1]:
                context.say(f"the page: {problem}")

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), ())


def _request(context: Context, preset: str, prompt: str) -> Any:
    case = context.case(prompt, 0, 0.0, ignore_eos=True)
    return request(case, replace(SpeculationConfig.preset(preset), record_top_k=TOP_K))


def _contestants(
    context: Context, preset: str, site: Any, browser: Any
) -> Mapping[str, Callable[[Block], float]]:
    """Each function returns tokens per second."""
    from bench.page import runs

    def run_headless(block: Block) -> float:
        return runs.headless(site, _request(context, preset, block.item))

    def with_page(block: Block) -> float:
        case = context.case(block.item, 0, 0.0)
        return runs.watched_speed(browser, site, case.prompt.text, case.tokens)

    def on_cores(run: Callable[[Block], float], apart: bool, block: Block) -> float:
        runs.spread_threads()
        if apart:
            runs.pin_thread(runs.engine_thread())
        try:
            return run(block)
        finally:
            runs.spread_threads()

    run_by_name = {HEADLESS: run_headless, WATCHED: with_page}
    run_headless(Block(context.prompts[0].id, 0))  # starts the engine's thread
    if not runs.can_pin():
        return {f"{name}, {SHARED}": run for name, run in run_by_name.items()}
    return {
        f"{name}, {cores}": partial(on_cores, run, cores == APART)
        for cores in (APART, SHARED)
        for name, run in run_by_name.items()
    }


def tables(results: Results) -> tuple[str, ...]:
    """A table of speeds by preset and cores, and a table of the claims."""
    lines: list[list[str]] = []
    claims: list[list[str]] = []
    rows, block = long_rows(results.samples), ("preset", "prompt", "repeat")
    for preset in group_rows(rows, ("preset",), block=block):
        for cores in (APART, SHARED):
            pair = (f"{name}, {cores}" for name in (HEADLESS, WATCHED))
            headless, watched = (preset.of(contestant=name) for name in pair)
            if not watched.rows:
                continue
            cost = watched.ratio("value", contestant=headless["contestant"])
            speeds = (figure(group.median("value"), 0) for group in (headless, watched))
            lines.append([preset["preset"], cores, *speeds, ratio(cost)])
            if cores == APART:
                claims.append(claim_row(f"watched / headless, {preset['preset']}", cost, AT_LEAST))
    speeds = (f"{name}: tokens/s" for name in (HEADLESS, WATCHED))
    heads = ("preset", "cores", *speeds, "watched / headless")
    note = (
        "Engine, server and log share a process; the browser and its driver have one each; the "
        "page streams at up to 20 updates a second. Tokens after the first round, divided by "
        "the time from it to the last; medians, ratios within blocks, 95 % intervals over prompts."
    )
    return (table("Watched and headless", heads, lines, note), claims_table(claims))
