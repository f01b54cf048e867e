"""A Chromium and its driver in a process of their own: otherwise the driver would compete with the
engine for the GIL."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from bench.application import BenchError
from bench.page.browser import Tab, choose, chromium, open_page, wait_for_end
from core.errors import SpecScopeError

# Milliseconds between typing and the click on Run: the server receives the text meanwhile.
TYPED_MS = 300
CLOSE_TIMEOUT_S = 10.0  # for the browser to close


class BrowserClient:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def call(self, method: str, *values: Any) -> Any:
        """Calls a method of `_PageActions` in the browser's process. Raises the SpecScopeError that
        was raised there, or BenchError if the process has ended."""
        try:
            with suppress(OSError):  # if the process has ended, its error may still be in the pipe
                self._pipe.send((method, values))
            result = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise BenchError(f"the browser's process ended at {method!r}") from error
        if isinstance(result, SpecScopeError):
            raise result
        return result


@contextmanager
def browser_client(suite: str, url: str) -> Iterator[BrowserClient]:
    """A client of a new browser process; its first call raises ConfigError if Chromium does not
    start."""
    spawn = multiprocessing.get_context("spawn")
    client_end, server_end = spawn.Pipe()
    process = spawn.Process(target=_serve_calls, args=(server_end, suite, url), daemon=True)
    process.start()
    # With this copy open, `recv` would not notice the end of the process.
    server_end.close()
    try:
        yield BrowserClient(client_end)
    finally:
        client_end.close()
        process.join(CLOSE_TIMEOUT_S)
        process.terminate()


def _serve_calls(pipe: Connection, suite: str, url: str) -> None:
    """Serves calls until the pipe is closed or a call fails; sends a SpecScopeError back."""
    try:
        with chromium(suite) as browser:
            actions = _PageActions(Tab(browser), url)
            while True:
                method, values = pipe.recv()
                pipe.send(getattr(actions, method)(*values))
    except (EOFError, OSError, KeyboardInterrupt):  # the client has ended
        return
    except SpecScopeError as error:
        pipe.send(error)


class _PageActions:
    def __init__(self, tab: Tab, url: str) -> None:
        self._tab, self._url = tab, url

    def prepare(self, preset: str, tokens: int) -> None:
        page = open_page(self._tab, self._url)
        choose(page, preset, tokens)

    def run(self, prompt: str) -> None:
        page = self._tab.page
        page.fill("#prompt textarea", prompt)
        page.wait_for_timeout(TYPED_MS)
        page.click("#live-run")

    def wait_for_end(self) -> None:
        wait_for_end(self._tab.page)

    def problems(self) -> list[str]:
        """Leaves the page and returns its problems."""
        return self._tab.leave()
