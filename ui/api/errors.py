"""Errors of ours as clients of the endpoints hear them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from core.errors import SpecScopeError

__all__ = ["spoken_errors"]


@contextmanager
def spoken_errors() -> Iterator[None]:
    """Errors of ours become gr.Error with the same text; others are bugs and stay what they are."""
    try:
        yield
    except SpecScopeError as error:
        raise gr.Error(str(error), print_exception=False) from error
