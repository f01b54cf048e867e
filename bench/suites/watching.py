"""`watching`: what being watched costs the engine: its rounds with the log on and a page streaming
in a Chromium, against log off and headless. Once with the engine on a core of its own in both, and
server and browser on the others, once with all of them on all cores. What drives the browser is
in a process of its own, as a visitor's is.

Needs playwright and a Chromium (requirements-dev.txt). `--tokens` is how long a run is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.context import Context, Report
from bench.interleave import interleaved
from bench.machine import load_average
from bench.ours import Case, request
from bench.settings import Settings
from bench.suites.watching_tables import APART, HEADLESS, SHARED, WATCHED, tables
from core.config import SpeculationConfig
from core.errors import ConfigError
from lab.order import Block, blocks

__all__ = ["Watching"]

PRESETS = ("autoregressive", "specinfer")
# As the page asks for, so that both keep as much.
TOP_K = 5


@dataclass(frozen=True)
class Watching:
    """See Suite."""

    name: str = "watching"
    about: str = "the engine watched by a page in a Chromium and kept in the log, against headless"
    defaults: Settings = Settings(prompts=4, tokens=256, repeats=5, dtypes=("float32",))
    presets: tuple[str, ...] = PRESETS

    def check(self, settings: Settings) -> None:
        """One dtype, one process."""
        settings.alone()
        if len(settings.dtypes) != 1:
            raise ConfigError.of("dtype", " ".join(settings.dtypes), "one dtype a run")

    def measure(self, context: Context) -> None:
        for preset in self.presets:
            every = blocks([one.id for one in context.prompts], context.settings.repeats)
            todo = [one for one in every if not context.results.has(**_key(preset, one))]
            if todo:
                self._measure(context, preset, todo)

    def _measure(self, context: Context, preset: str, todo: list[Block]) -> None:
        from bench.page.onlooker import onlooker
        from bench.page.runs import headless
        from bench.page.site import open_site
        from core.engine import Engine
        from core.worker import Worker

        models = context.load(context.settings.dtypes[0])
        with (
            open_site(Worker(Engine(models))) as site,
            onlooker(self.name, site.url) as browser,
        ):
            browser.prepared(preset, context.settings.tokens)
            ways = _ways(context, preset, site, browser)
            for way in ways.values():  # what is measured once, is measured before
                way(todo[0])
            headless(site, _request(context, preset, todo[0].item))
            for block, found in interleaved(todo, ways):
                context.results.add(
                    {**_key(preset, block), "load": load_average(), "figures": found}
                )
                context.say(f"{preset}, {block.item}, repeat {block.repeat}")
            for problem in browser.problems()[:1]:
                context.say(f"the page: {problem}")

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), ())


def _key(preset: str, block: Block) -> dict[str, Any]:
    return {"preset": preset, "prompt": block.item, "repeat": block.repeat}


def _request(context: Context, preset: str, prompt: str) -> Any:
    """As the page asks."""
    chosen = next(one for one in context.prompts if one.id == prompt)
    case = Case(chosen, 0, context.settings.tokens, 0.0, ignore_eos=True)
    return request(case, replace(SpeculationConfig.preset(preset), record_top_k=TOP_K))


def _ways(
    context: Context, preset: str, site: Any, browser: Any
) -> Mapping[str, Callable[[Block], float]]:
    """Tokens a second of each way to run a block's prompt."""
    from bench.page.cores import apart, can_part, shared
    from bench.page.runs import engine_thread, headless, seen

    def alone(block: Block) -> float:
        return headless(site, _request(context, preset, block.item))

    def watched(block: Block) -> float:
        text = next(one.text for one in context.prompts if one.id == block.item)
        return seen(browser, site, text, context.settings.tokens)

    def placed(run: Callable[[Block], float], parted: bool, block: Block) -> float:
        shared()
        if parted:
            apart(engine_thread())
        try:
            return run(block)
        finally:
            shared()

    runs = {HEADLESS: alone, WATCHED: watched}
    alone(Block(context.prompts[0].id, 0))  # so that the engine has its thread
    if not can_part():
        return {f"{name}, {SHARED}": run for name, run in runs.items()}
    return {
        f"{name}, {cores}": partial(placed, run, cores == APART)
        for cores in (APART, SHARED)
        for name, run in runs.items()
    }
