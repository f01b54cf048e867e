"""A browser page that keeps account of what it must not do, and a port to serve it on."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Watch", "free_port", "open_watched"]

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


def open_watched(
    chromium: Any,
    url: str,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    **context: Any,
) -> tuple[Any, Watch]:
    """A page of its own context at `url`, and what it did that it must not."""
    scheme = "dark" if dark else "light"
    size = {"width": width, "height": height}
    made = chromium.new_context(viewport=size, color_scheme=scheme, **context)
    made.set_default_timeout(WAIT_MS)
    page = made.new_page()
    watch = Watch(urlsplit(url).netloc)
    page.on("console", watch.on_console)
    page.on("pageerror", watch.on_error)
    page.on("request", watch.on_request)
    page.goto(f"{url}?__theme={scheme}")
    return page, watch


def free_port() -> int:
    """A port nobody listens on. Gradio's own search leaks a socket for each port that is taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
