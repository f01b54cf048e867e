"""Figures of a run while it moves: how late a token is seen, how often the page changes, how soon a
Stop frees the engine, how much the layout shifts. Each takes a tab and the `Site` it opens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.page.browser import Tab, open_page, start_run, wait_finished
from bench.page.site import Site

SEEN = Path(__file__).with_name("seen.js")
STOP_AFTER_MS = 400


def token_delays(tab: Tab, site: Site) -> dict[str, Any]:
    """Milliseconds from each token's round to the page, updates a second, shifts of the layout."""
    page = open_page(tab, site.url)
    page.evaluate(SEEN.read_text(encoding="utf-8"))
    page.click("#live-run")
    wait_finished(page)
    told = page.evaluate("() => specscopeSeen")
    made = site.clock.tokens[site.clock.last()]
    late = [shown - there for shown, there in zip(told["tokens"], made, strict=False)]
    # The last update is the whole run's picture, drawn once more at its end.
    during = [at for at in told["updates"] if at <= made[-1]]
    seconds = (during[-1] - during[0]) / 1000 if len(during) > 1 else 0.0
    return {
        "late_ms": [round(value, 1) for value in late],
        "tokens": len(made),
        "updates_per_second": round((len(during) - 1) / seconds, 2) if seconds else None,
        "shift": round(sum(value for value, touched in told["shifts"] if not touched), 5),
        "shift_all": round(sum(value for value, _ in told["shifts"]), 5),
    }


def measure_stop(tab: Tab, site: Site, tokens: int) -> dict[str, Any]:
    """A real run of plain decoding, stopped in its middle: rounds and milliseconds from the click
    to the engine's last word of it."""
    page = open_page(tab, site.url)
    page.evaluate(SEEN.read_text(encoding="utf-8"))
    page.locator("#preset input").click()
    page.get_by_role("option", name="autoregressive").click()
    page.get_by_text("Sampling", exact=True).click()
    page.locator("#sampling-max_new_tokens input").fill(str(tokens))
    page.get_by_label("ignore_eos").check()
    page.get_by_text("Sampling", exact=True).click()
    page.wait_for_timeout(STOP_AFTER_MS)
    start_run(page)
    page.click("#live-stop")
    wait_finished(page, "Stopped: ")
    run = site.clock.last()
    clicked = page.evaluate("() => specscopeSeen.clicked")
    at = site.clock.cancelled[run]
    heard = site.clock.heard[run]
    rounds = [there for there in site.clock.rounds[run] if there > heard]
    return {
        "ms": round(at - clicked, 1),
        "ms_in_the_engine": round(at - heard, 1),
        "rounds": len(rounds),
        "of": len(site.clock.rounds[run]),
    }
