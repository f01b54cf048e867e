"""The Sessions tab in a real Chromium: what a visitor does with past runs."""

from __future__ import annotations

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from tests.ui.sites import (
    OpenPage,
    number_box,
    ready,
    said,
    sessions,
    shows,
    text_box,
)
from ui.context import Context

pytestmark = pytest.mark.browser

ASKED = Request(
    "A line\nand <b>another</b>",
    SamplingParams(max_new_tokens=33, temperature=0.7, seed=12, stop=("END", "x y")),
    SpeculationConfig(
        ("ssm-code", "ngram"), combine="vote", length="goodput", weight_bounds=(0.125, 3.5)
    ),
)


def made(context: Context, request: Request = ASKED) -> str:
    """A run of the request in the log; its id."""
    source = context.hub.start(request, "")
    source.wait_done(20.0)
    return source.run_id


def opened(page: object, place: int = 0) -> None:
    """The run at a place of the list, opened."""
    sessions(page)
    page.locator(".sp-open").nth(place).click()  # type: ignore[attr-defined]
    said(page, "Finished: ", "sessions")


def test_a_past_runs_settings_open_in_live_and_nothing_runs(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    made(context)
    page = ready(browser_page(url))
    page.locator("#live-onchange").click()
    opened(page)
    page.click("#sessions-into-live")
    said(page, '"Run on change" is switched off for that.')
    assert page.input_value("#prompt textarea") == ASKED.prompt
    page.get_by_text("Sampling", exact=True).click()
    page.get_by_text("Every setting of the engine").click()
    number_box(page, "sampling-top_p").wait_for()
    assert number_box(page, "sampling-max_new_tokens").input_value() == "33"
    assert number_box(page, "sampling-temperature").input_value() == "0.7"
    assert text_box(page, "sampling-seed").input_value() == "12"
    assert text_box(page, "sampling-stop").input_value() == "END\nx y"
    shows(page, "combine", "vote")
    shows(page, "length", "goodput")
    assert text_box(page, "field-weight_bounds").input_value() == "0.125,3.5"
    assert page.input_value("#preset input") == "own settings"
    page.wait_for_timeout(800)  # a run on change would have begun
    assert len(context.hub.worker.requests) == 1  # type: ignore[attr-defined]
    page.click("#live-run")
    said(page, "Finished: ")
    assert context.hub.worker.requests[1] == ASKED  # type: ignore[attr-defined]
