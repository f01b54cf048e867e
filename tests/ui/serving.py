"""A page on a port of its own, for tests that need a real server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import gradio as gr

from ui.page import page_options

__all__ = ["free_port", "served"]


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on; Gradio's own search leaks a socket for each that is taken."""
    with closing(socket.socket()) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(page: gr.Blocks, auth: tuple[str, str] | None = None) -> Iterator[str]:
    """Launch `page` as app.py does; its address."""
    _, url, _ = page.launch(
        server_port=free_port(), auth=auth, prevent_thread_lock=True, quiet=True, **page_options()
    )
    try:
        yield str(url)
    finally:
        page.close(verbose=False)
