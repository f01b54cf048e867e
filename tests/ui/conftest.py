"""A real Chromium for tests of the page: skipped with the reason where there is none.

With REQUIRE_BROWSER=1 a missing browser is a failure. `serve(demo)` gives a local address,
`browser_page(url)` a page of it; at the end of a test every page must have asked no other host for
anything and have logged no error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 15_000


def _missing(reason: str) -> None:
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"REQUIRE_BROWSER=1, and {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, started once a session."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        _missing("playwright is not installed (requirements-dev.txt)")
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            _missing(f"no Chromium starts here: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@dataclass
class Watch:
    """What a page must not do."""

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


@pytest.fixture
def browser_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`browser_page(url, width=1280, height=900, dark=False, **context)` opens a watched page."""
    opened: list[tuple[Any, Watch]] = []

    def open_page(
        url: str, width: int = 1280, height: int = 900, dark: bool = False, **context: Any
    ) -> Any:
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": height}
        made = chromium.new_context(viewport=size, color_scheme=scheme, **context)
        made.set_default_timeout(WAIT_MS)
        page = made.new_page()
        watch = Watch(urlsplit(url).netloc)
        page.on("console", watch.on_console)
        page.on("pageerror", watch.on_error)
        page.on("request", watch.on_request)
        opened.append((made, watch))
        page.goto(f"{url}?__theme={scheme}")
        return page

    yield open_page
    for made, _ in opened:
        made.close()
    problems = [problem for _, watch in opened for problem in watch.problems]
    assert not problems, "\n".join(problems)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(demo, **launch_arguments)` launches a Blocks on a free local port; closed at the end."""
    served: list[Any] = []

    def start(demo: Any, **arguments: Any) -> str:
        options = {"prevent_thread_lock": True, "quiet": True, "server_name": "127.0.0.1"}
        _, url, _ = demo.launch(**{**options, **arguments})
        served.append(demo)
        return str(url)

    yield start
    for demo in served:
        demo.close()
