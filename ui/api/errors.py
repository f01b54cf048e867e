"""Errors as clients of the endpoints see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from core.errors import SpecScopeError

__all__ = ["spoken_errors"]


@contextmanager
def spoken_errors() -> Iterator[None]:
    """Turns a SpecScopeError into gr.Error with the same text. Other exceptions are bugs and pass
    through."""
    try:
        yield
    except SpecScopeError as error:
        raise gr.Error(str(error), print_exception=False) from error
