"""`page`: how the page behaves, in a real Chromium: delays, frames, Stop, what survives an update,
every tab at every width. `--repeats` is how often what takes time is measured; `--tokens` how long
the run is that is stopped.

Needs playwright and a Chromium (requirements-dev.txt). What is looked at is bench/page/; here is
only what is measured in which order. Every fact meets every repeat in turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.context import Context, Report
from bench.machine import load_average
from bench.settings import Settings
from bench.suites.page_tables import tables
from core.errors import ConfigError

__all__ = ["FACTS", "Page"]

# Engines by how many rounds a second they give; "frames" is the synthetic run of 500 rounds.
SPEEDS = {"60 rounds a second": (240, 1.0), "300 rounds a second": (900, 0.2)}
TIMED = ("frames", "frames at once", *SPEEDS, "stop")
ONCE = ("place", "reload", "two tabs", "keys", "still")
SEEN = ("looks", "axe", "files")
FACTS = (*TIMED, *ONCE, *(f"{name}, {theme}" for name in SEEN for theme in ("light", "dark")))


@dataclass(frozen=True)
class Page:
    """See Suite. `facts` can be fewer, for a quick look."""

    name: str = "page"
    about: str = (
        "the page in a Chromium: delays, frame gaps, Stop, what survives, every tab's looks"
    )
    defaults: Settings = Settings(prompts=1, tokens=400, repeats=5, dtypes=("float32",))
    facts: tuple[str, ...] = FACTS

    def check(self, settings: Settings) -> None:
        """One dtype, one process, and a browser."""
        settings.alone()
        if len(settings.dtypes) != 1:
            raise ConfigError.of("dtype", " ".join(settings.dtypes), "one dtype a run")

    def measure(self, context: Context) -> None:
        todo = [
            key for key in self._keys(context.settings.repeats) if not context.results.has(**key)
        ]
        if not todo:
            return
        from bench.page.chromium import chromium

        with chromium(self.name) as browser:
            for key in todo:
                found = _measured(key["fact"], browser, context)
                context.results.add({**key, "load": load_average(), **found})
                context.say(f"{key['fact']}, repeat {key['repeat']}")

    def report(self, context: Context) -> Report:
        return tables(context.results)

    def _keys(self, repeats: int) -> list[dict[str, Any]]:
        """Repeats outermost, so that a noisy moment hits all facts alike."""
        return [
            {"fact": fact, "repeat": repeat}
            for repeat in range(repeats)
            for fact in self.facts
            if repeat == 0 or fact in TIMED
        ]


def _measured(fact: str, browser: Any, context: Context) -> dict[str, Any]:
    """The figures of one fact, and what its page did that it must not."""
    from bench.page.watched import Tabs

    tabs = Tabs(browser)
    used = [tabs.take(), tabs.take()] if fact == "two tabs" else [tabs.take()]
    try:
        figures = _works(context)[fact](*used)
        problems = [problem for tab in used for problem in tab.watch.problems]
    finally:
        for tab in used:
            tab.leave()
            tab.page.context.close()
    return {"figures": figures, "problems": problems}


def _works(context: Context) -> Mapping[str, Callable[..., Any]]:
    """Fact -> what measures it, given an open tab (two for "two tabs")."""
    from bench.page import acts, shown
    from bench.page.gaps import measured

    works: dict[str, Callable[..., Any]] = {
        "frames": partial(_played, partial(measured, loaded=True), 500, 1.0),
        "frames at once": partial(_played, measured, 500, 1.0),
        "stop": partial(_stopped, context),
        "place": partial(_played, acts.own_place_stays, 2000, 1.0),
        "reload": partial(_played, acts.bears_reload, 2000, 1.0),
        "two tabs": partial(_played_twice, acts.bears_two_tabs),
        "keys": partial(_played, acts.keys_work, 2000, 1.0),
        "still": partial(_played, acts.stands_still, 2000, 1.0),
    }
    for name, (rounds, speed) in SPEEDS.items():
        works[name] = partial(_played, _delays, rounds, speed)
    for theme in ("light", "dark"):
        dark = theme == "dark"
        works[f"looks, {theme}"] = partial(_played, partial(shown.looks, dark=dark), 20, 0.2)
        works[f"axe, {theme}"] = partial(_played, partial(shown.serious, dark=dark), 20, 0.2)
        works[f"files, {theme}"] = partial(_played, partial(_filed, dark), 20, 0.2)
    return works


def _delays(tab: Any, site: Any) -> dict[str, Any]:
    from bench.page.moving import token_delays

    return token_delays(tab, site)


def _filed(dark: bool, tab: Any, site: Any) -> dict[str, Any]:
    from bench.page.shown import files_of

    with tempfile.TemporaryDirectory() as folder:
        return files_of(tab, site, dark, Path(folder))


def _played(work: Callable[..., Any], rounds: int, speed: float, tab: Any) -> Any:
    """`work` before an engine that plays a SYNTHETIC run of `rounds`; 2 plays half as fast."""
    from bench.made.worker import FakeWorker, recorded
    from bench.page.site import open_site

    with open_site(FakeWorker(recorded(rounds), speed)) as site:
        found = work(tab, site)
        tab.leave()
    return found


def _played_twice(work: Callable[..., Any], one: Any, two: Any) -> Any:
    return _played(lambda tab, site: work(tab, two, site), 60, 1.0, one)


def _stopped(context: Context, tab: Any) -> dict[str, Any]:
    """Before the real engine with the bundled models."""
    from bench.page.moving import stopped
    from bench.page.site import open_site
    from core.engine import Engine
    from core.worker import Worker

    models = context.load(context.settings.dtypes[0])
    with open_site(Worker(Engine(models))) as site:
        return stopped(tab, site, context.settings.tokens)
