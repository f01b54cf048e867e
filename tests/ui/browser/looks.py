"""What a pair of eyes would find wrong with an open page: text that is small, cut or covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.page.browser import at_rest, frames

SCRIPT = Path(__file__).with_name("looks.js")
CHANGED = "() => !document.getAnimations().some((one) => one instanceof CSSTransition)"
PRESSES = 6
PRESS_MS = 3000.0  # what one press may wait for; a busy machine takes a second to draw a tab


def keep_sizes(page: Any) -> int:
    """Remember how large each text is now, for `small_texts`; how many there are."""
    return int(_ask(page, "keep()"))


def small_texts(page: Any, least: float = 1.15) -> list[str]:
    """Texts that are not `least` times as large as at `keep_sizes`; new ones are not judged, those
    of a drawing with a zoom of its own only by whether they are legible."""
    return list(_ask(page, f"small({least})"))


def cut_texts(page: Any) -> list[str]:
    """Texts of which a part is hidden, with no way to scroll to it and no ellipsis; labels wider
    than their button; words of ordinary length broken between two letters."""
    return list(_ask(page, "cut()"))


def overlaps(page: Any) -> list[str]:
    """Pairs of texts that lie on each other."""
    return list(_ask(page, "overlaps()"))


def tiny_texts(page: Any) -> list[str]:
    """Texts below 12 pixels in ordinary type."""
    return list(_ask(page, "tiny()"))


def covered(page: Any) -> list[str]:
    """Texts under the buttons of their own picture, and trees with no room to be seen."""
    return list(_ask(page, "covered()"))


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(script))


def large_type(page: Any, on: bool) -> None:
    """Switch large type and wait until what changes its size by a transition has done so."""
    page.evaluate("(on) => window.specscopeLargeType(on)", on)
    frames(page)
    page.wait_for_function(CHANGED)
    at_rest(page)


def tabs(page: Any) -> list[str]:
    """The names of the page's tabs, in their order; what has no room is in a menu of its own."""
    names = page.locator("#tabs [role=tab], #tabs .overflow-dropdown button").all_text_contents()
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def turn_to(page: Any, name: str) -> None:
    """Open a tab as a visitor does, on a narrow page by the menu of further tabs.

    A window made wider or narrower moves tabs between bar and menu a moment later, so that the tab
    found in one place may be in the other when it is pressed: it is looked for again then. What is
    pressed in a tab that is still appearing may be lost.
    """
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    page.locator("#tabs [role=tab]").first.wait_for()
    for _ in range(PRESSES - 1):
        try:
            _press_tab(page, name)
            return frames(page)
        except PlaywrightTimeout:
            continue
    _press_tab(page, name)
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
