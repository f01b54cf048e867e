"""Browser pages that keep account of what they must not do, and a port to serve them on.

A first visit in a new tab takes seconds, most of them for compiling Gradio's and Plotly's scripts.
So a tab is used again for one visit after another: all that a visit leaves behind is cleared.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

__all__ = ["WAIT_MS", "Tab", "Tabs", "Watch", "free_port"]

WAIT_MS = 15_000


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


class Tab:
    """One page in a context of its own, for one visit after another."""

    def __init__(self, chromium: Any) -> None:
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        self.page = context.new_page()
        self.watch = Watch("")
        self._tools = context.new_cdp_session(self.page)
        self._origins: set[str] = set()
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
        """The page at `url`, as a new visitor finds it; `still`: one who wants no motion."""
        self.watch = Watch(urlsplit(url).netloc)
        self._origins.add(url.rstrip("/"))
        self.page.set_viewport_size({"width": width, "height": height})
        scheme = "dark" if dark else "light"
        motion = "reduce" if still else "no-preference"
        self.page.emulate_media(color_scheme=scheme, reduced_motion=motion)
        self.page.goto(f"{url}?__theme={scheme}")
        return self.page

    def leave(self) -> list[str]:
        """What the page did that it must not. It is left, and what it stored is cleared.

        What is said because it is left, as of a stream that was open, is not counted.
        """
        problems = self.watch.problems
        self.watch = Watch("")
        self.page.goto("about:blank")
        for origin in self._origins:
            told = {"origin": origin, "storageTypes": "all"}
            self._tools.send("Storage.clearDataForOrigin", told)
        self._origins.clear()
        return problems


class Tabs:
    """The tabs of a browser; one that was left serves the next visit."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._free: list[Tab] = []

    def take(self) -> Tab:
        return self._free.pop() if self._free else Tab(self._chromium)

    def give_back(self, tab: Tab) -> list[str]:
        problems = tab.leave()
        self._free.append(tab)
        return problems


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on. Gradio's own search leaks a socket for each port that is taken."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
