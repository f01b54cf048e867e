"""Reads and compares values of a Playwright page in one step, so that the page cannot change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.ui.browser.looks import at_rest, frames

LOOKS = ((390, False), (390, True), (1280, True), (1280, False))
"""Pairs of a width and whether the page is dark; the last pair is how a page opens."""
TEXTS = """([css, count]) => {
  const found = [...document.querySelectorAll(css)].map((one) => one.innerText.trim());
  return (count === null ? found.length > 0 : found.length === count) && found;
}"""
STEADY = """() => {
  const value = SCRIPT(), now = JSON.stringify(value), before = window.specscopeSteady;
  const count = before?.now === now ? before.count + 1 : 0;
  window.specscopeSteady = { now, count };
  return document.fonts.status === "loaded" && count >= 15 && [value];
}"""
FADED = "() => !document.getAnimations().some((one) => one instanceof CSSTransition)"


def read(page: Any, script: str, arg: Any = None) -> Any:
    """The first true value that the JavaScript function `script` returns.

    An exception in the script counts as false, since the page may still be loading.
    """
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    try:
        return page.wait_for_function(_patient(script), arg=arg).json_value()
    except PlaywrightTimeout:
        raise AssertionError(f"it gives {page.evaluate(script, arg)!r}") from None


def becomes(
    page: Any, script: str, expected: Any, arg: Any = None, every_ms: float | None = None
) -> None:
    """`every_ms`: the interval between evaluations of `script` (None: every frame)."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    equals = f"([arg, wanted]) => JSON.stringify(({script})(arg)) === wanted"
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    try:
        polling = every_ms or "raf"
        page.wait_for_function(_patient(equals), arg=[arg, text], polling=polling)
    except PlaywrightTimeout:
        result = page.evaluate(script, arg)
        assert result == expected, _differs(result, expected)


def _patient(script: str) -> str:
    return f"(arg) => {{ try {{ return ({script})(arg); }} catch {{ return null; }} }}"


def _differs(result: Any, expected: Any) -> str:
    if isinstance(result, list) and isinstance(expected, list) and len(result) == len(expected):
        pairs = enumerate(zip(result, expected, strict=True))
        place, pair = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        return f"[{place}]{_differs(*pair)}"
    return f": {result!r} instead of {expected!r}"


def steady(page: Any, script: str) -> Any:
    """The value of `script` once 15 frames have not changed the value."""
    page.evaluate("() => { delete window.specscopeSteady; }")
    return read(page, STEADY.replace("SCRIPT", f"({script})"))[0]


def texts(page: Any, css: str, count: int | None = None) -> list[str]:
    return list(read(page, TEXTS, [css, count]))


def in_looks(page: Any, *looks: tuple[int, bool]) -> Iterator[str]:
    """Yields a name like `1280-light` for each width and colour scheme (default: LOOKS)."""
    for width, dark in looks or LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", dark)
        frames(page)
        page.wait_for_function(FADED)
        at_rest(page)
        yield f"{width}-{'dark' if dark else 'light'}"


def click_in_motion(page: Any, css: str) -> None:
    """Playwright's own click waits until the element stands still, too long during a run."""
    page.evaluate("(css) => document.querySelector(css).click()", css)


def saved_file(page: Any, press: Callable[[], object]) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        press()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def words_of(drawing: bytes) -> str:
    return " ".join(re.sub("<[^>]+>", " ", drawing.decode("utf-8")).split())
