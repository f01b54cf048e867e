"""Pictures of the tabs beside Live, for the guide: each driven as a visitor would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.ui.browser.looks import turn_to

WAIT_MS = 240_000


def take_tabs(browser: Any, address: str, images: Path, hide: str) -> None:
    """Compare, Tune, Prompts, two past runs, a lesson, Models, at 1280 pixels. `hide` is a script
    that takes paths of this machine off the page."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="light")
    page.goto(f"{address}?__theme=light")
    for drive in (_compare, _tune, _prompts, _pair, _learn, _models):
        name = drive.__name__.removeprefix("_")
        drive(page)
        page.wait_for_timeout(2500)
        page.evaluate(hide)
        whole = name != "pair"  # the board of the opened run would be below the pair
        shown = page if whole else page.locator("#sessions-pair")
        shown.screenshot(path=images / f"{name}.png", **({"full_page": True} if whole else {}))
    page.close()


def _open(page: Any, tab: str) -> None:
    page.evaluate("scrollTo(0, 0)")
    turn_to(page, tab)


def _complete(page: Any, part: str) -> None:
    page.locator(f"#{part} .sp-study", has_text="Complete").wait_for(timeout=WAIT_MS)


def _compare(page: Any) -> None:
    _open(page, "Compare")
    page.locator("#compare-begin").click()
    _complete(page, "compare-progress")


def _tune(page: Any) -> None:
    _open(page, "Tune")
    page.locator("#tune-count input").fill("1")
    page.locator("#tune-start").click()
    _complete(page, "tune-progress")


def _prompts(page: Any) -> None:
    _open(page, "Prompts")
    page.locator("#prompts-measure").click()
    _complete(page, "prompts-progress")


def _pair(page: Any) -> None:
    _open(page, "Sessions")
    page.locator("#sessions-runs .sp-open").nth(0).click()
    page.locator("#sessions-compare").click()
    page.locator("#sessions-runs .sp-open").nth(1).click()
    page.locator("#pair-tables table").first.wait_for(timeout=WAIT_MS)


def _learn(page: Any) -> None:
    _open(page, "Learn")
    page.get_by_role("button", name="Lesson 3:", exact=False).click()
    page.locator("#learn-run").click()
    page.get_by_text("Finished:", exact=False).last.wait_for(timeout=WAIT_MS)


def _models(page: Any) -> None:
    _open(page, "Models")
    page.locator("#models-need").click()
