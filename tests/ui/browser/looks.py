"""Finds faults that a visitor would see on an open page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.page.browser import at_rest, frames

SCRIPT = Path(__file__).with_name("looks.js")
CHANGED = "() => !document.getAnimations().some((one) => one instanceof CSSTransition)"
PRESSES = 20  # tries of one or two clicks: at most two minutes in all
PRESS_MS = 3000.0  # timeout of one click; a busy machine takes a second to draw a tab


def keep_sizes(page: Any) -> int:
    """Store the sizes of the texts for `small_texts`."""
    return int(_ask(page, "keep()"))


def small_texts(page: Any, least: float = 1.15) -> list[str]:
    """Texts that are now less than `least` times as large as at `keep_sizes`."""
    return list(_ask(page, f"small({least})"))


def cut_texts(page: Any) -> list[str]:
    """Texts with a hidden part, labels that stick out of their button, and broken words."""
    return list(_ask(page, "cut()"))


def overlaps(page: Any) -> list[str]:
    """Pairs of texts that overlap, except texts in sticky or fixed parts."""
    return list(_ask(page, "overlaps()"))


def tiny_texts(page: Any) -> list[str]:
    """Texts below 11.9 pixels, except in drawings that can be zoomed."""
    return list(_ask(page, "tiny()"))


def covered_parts(page: Any) -> list[str]:
    """Texts under the buttons of their own panel, and trees less than 100 pixels high."""
    return list(_ask(page, "coveredParts()"))


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(script))


def large_type(page: Any, on: bool) -> None:
    page.evaluate("(on) => window.specscopeLargeType(on)", on)
    frames(page)
    page.wait_for_function(CHANGED)
    at_rest(page)


def tabs(page: Any) -> list[str]:
    names = page.locator("#tabs [role=tab], #tabs .overflow-dropdown button").all_text_contents()
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def turn_to(page: Any, name: str) -> None:
    """Open a tab from the bar, or else from the overflow menu.

    A click may time out, since resizing the window moves tabs between the bar and the menu. The
    wait at the end is needed because a click in a tab that is still appearing may be lost.
    """
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    page.locator("#tabs [role=tab]").first.wait_for()
    for left in reversed(range(PRESSES)):
        try:
            _press_tab(page, name)
            break
        except PlaywrightTimeout:
            if not left:
                raise
    # The open tab is in the bar, wherever it was before.
    page.get_by_role("tab", name=name, exact=True, selected=True).wait_for()
    frames(page)


def _press_tab(page: Any, name: str) -> None:
    tab = page.get_by_role("tab", name=name, exact=True)
    if not tab.count():
        tab = page.locator("#tabs .overflow-dropdown").get_by_text(name, exact=True)
        if not tab.is_visible():
            page.get_by_label("More tabs").click(timeout=PRESS_MS)
    tab.click(timeout=PRESS_MS)


def _ask(page: Any, question: str) -> Any:
    if not page.evaluate("() => 'specscopeLooks' in window"):
        page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    return page.evaluate(f"() => specscopeLooks.{question}")
