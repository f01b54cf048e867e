"""A page on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from bench.page.watched import free_port
from ui.server.page import page_options

__all__ = ["free_port", "served"]


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
