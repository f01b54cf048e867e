"""The same request with and without a page to watch it: how fast the engine's rounds follow one
another."""

from __future__ import annotations

import threading
import time
from typing import Any

from bench.application import BenchError
from bench.page.moving import finished, opened
from bench.page.site import Clock, Site
from bench.page.watched import Tab
from core.config import Request

__all__ = ["engine_thread", "headless", "pace", "prepared", "seen"]

ENGINE = "engine"
PATIENCE_S = 120.0
# Until what was typed is known to the server; between looks at how far the run is.
TYPED_MS, LOOK_MS = 300, 50


def headless(site: Site, request: Request) -> float:
    """Tokens a second of a run that nobody watches and nothing keeps."""
    clock = Clock()
    for _ in site.worker.submit(request, clock.see).events():
        pass
    return pace(clock)


def prepared(tab: Tab, site: Site, preset: str, tokens: int) -> Any:
    """The page, set to a preset and so many tokens."""
    page = opened(tab, site)
    page.locator("#preset input").click()
    page.get_by_role("option", name=preset, exact=True).click()
    page.get_by_text("Sampling", exact=True).click()
    page.locator("#sampling-max_new_tokens input").fill(str(tokens))
    page.get_by_label("ignore_eos").check()
    page.get_by_text("Sampling", exact=True).click()
    return page


def seen(page: Any, site: Site, prompt: str, tokens: int) -> float:
    """Tokens a second of a run that is kept and shown; the page is one that is `prepared` for so
    many tokens."""
    site.clock.rounds.clear()
    site.clock.tokens.clear()
    page.fill("#prompt textarea", prompt)
    page.wait_for_timeout(TYPED_MS)
    page.click("#live-run")
    # The page may still say that the run before is finished: the engine tells of this one.
    until = time.monotonic() + PATIENCE_S
    while sum(map(len, site.clock.tokens.values())) < tokens:
        if time.monotonic() > until:
            raise BenchError(f"the run did not come to its {tokens} tokens")
        page.wait_for_timeout(LOOK_MS)
    finished(page)
    return pace(site.clock)


def engine_thread() -> int:
    """The number of the thread that makes the rounds; there is one since the first run."""
    (one,) = (thread for thread in threading.enumerate() if thread.name == ENGINE)
    assert one.native_id is not None
    return one.native_id


def pace(clock: Clock) -> float:
    """Tokens a second of the last run, but those of its first round, which waits for the prompt."""
    run = clock.last()
    tokens, rounds = clock.tokens[run], clock.rounds[run]
    first = tokens.count(rounds[0])
    return (len(tokens) - first) / (rounds[-1] - rounds[0]) * 1000
