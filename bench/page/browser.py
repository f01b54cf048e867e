"""This machine's Chromium, tabs that record problems of the page, and the steps of a visit.

A first visit in a new tab takes seconds, mostly to compile scripts: tabs are reused.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from core.errors import ConfigError

WAIT_MS = 60_000  # long: the machine may be busy
LIMIT_MS = 120_000  # longer: a step may wait for a run
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The second callback runs after the first frame was drawn.
TWO_FRAMES = """() => new Promise((resolve) =>
  requestAnimationFrame(() => requestAnimationFrame(resolve)))"""
ALL_DRAWN = """() => !document.querySelector("[data-pending]")
  && [...document.querySelectorAll(".ss-shell[data-picture]")].every(
    (shell) => shell.querySelector(".ss-panel") || !shell.checkVisibility())"""


@contextmanager
def chromium(suite: str) -> Iterator[Any]:
    """Raises ConfigError, naming the suite, if playwright is missing or Chromium does not start."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise ConfigError.of("suite", suite, "playwright (requirements-dev.txt)") from error
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        try:
            # Chromium's sandbox does not start for root.
            browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        except Error as error:
            reason = str(error).splitlines()[0]
            raise ConfigError.of("suite", suite, f"a Chromium that starts ({reason})") from error
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """Records errors, and requests to other hosts."""

    host: str
    problems: list[str] = field(default_factory=list)

    def on_console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def on_error(self, error: Any) -> None:
        self.problems.append(f"page error: {error}")

    def on_request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self.host:
            self.problems.append(f"request to another host: {request.url[:200]}")


class Tab:
    """A tab with its own browser context."""

    def __init__(self, chromium: Any) -> None:
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        self.page = context.new_page()
        self.watch = Watch("")
        self._tools = context.new_cdp_session(self.page)
        self._origins: set[str] = set()
        # Every visit sets a new `self.watch`.
        self.page.on("console", lambda message: self.watch.on_console(message))
        self.page.on("pageerror", lambda error: self.watch.on_error(error))
        self.page.on("request", lambda request: self.watch.on_request(request))

    def visit(
        self,
        url: str,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        still: bool = False,
    ) -> Any:
        """`still`: with reduced motion."""
        self.watch = Watch(urlsplit(url).netloc)
        self._origins.add(url.rstrip("/"))
        self.page.set_viewport_size({"width": width, "height": height})
        scheme = "dark" if dark else "light"
        motion = "reduce" if still else "no-preference"
        self.page.emulate_media(color_scheme=scheme, reduced_motion=motion)
        self.page.goto(f"{url}?__theme={scheme}")
        return self.page

    def leave(self) -> list[str]:
        """Clears the page's storage; returns the page's problems."""
        problems = self.watch.problems
        self.watch = Watch("")
        # An open page would store values again.
        self.page.goto("about:blank")
        for origin in self._origins:
            request = {"origin": origin, "storageTypes": "all"}
            self._tools.send("Storage.clearDataForOrigin", request)
        self._origins.clear()
        return problems


class Tabs:
    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._free: list[Tab] = []

    def take(self) -> Tab:
        return self._free.pop() if self._free else Tab(self._chromium)

    def give_back(self, tab: Tab) -> list[str]:
        problems = tab.leave()
        self._free.append(tab)
        return problems


def frames(page: Any) -> None:
    """Waits for two animation frames."""
    page.evaluate(TWO_FRAMES)


def at_rest(page: Any) -> None:
    """Waits until every visible picture is drawn."""
    frames(page)
    page.wait_for_function(ALL_DRAWN)


def open_page(tab: Tab, url: str, **options: Any) -> Any:
    """Opens the page and waits for its pictures. `options`: see `Tab.visit`."""
    page = tab.visit(url, **options)
    page.set_default_timeout(LIMIT_MS)
    page.locator("#live-notice").get_by_text("Press Run").first.wait_for()
    page.locator("#live-tree .ss-panel").wait_for()
    at_rest(page)
    return page


def choose(page: Any, preset: str, tokens: int) -> None:
    """Sets preset and tokens; the run ignores the end-of-text token."""
    page.locator("#preset input").click()
    option = re.compile(rf"^{re.escape(preset)}( \(|$)")  # a description in brackets may follow
    page.locator("#preset").get_by_role("option", name=option).click()
    page.click("#live-drawer")
    page.locator("#sampling-max_new_tokens input").fill(str(tokens))
    page.locator("#sampling-ignore_eos input").check()
    page.click("#live-drawer-close")


def start_run(page: Any) -> None:
    """Clicks Run and waits for the first words."""
    page.click("#live-run")
    page.locator("#live-notice").get_by_text("Writing: ").first.wait_for()


def wait_for_end(page: Any, words: str = "Finished: ") -> None:
    """Waits until the run has ended and every visible picture is drawn."""
    page.locator("#live-notice").get_by_text(words).first.wait_for()
    at_rest(page)
