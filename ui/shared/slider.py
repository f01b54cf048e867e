"""A slider whose handler also gets typed numbers beyond its ends. Gradio's own slider answers such
numbers with an HTTP error that names no field."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

import gradio as gr
from gradio.component_meta import ComponentMeta
from gradio.components.number import Number

__all__ = ["Slider"]


class _NoStub(ComponentMeta):
    """Gradio's metaclass, except that it writes no `.pyi` next to the class's file."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any], **options: Any
    ) -> _NoStub:
        return ABCMeta.__new__(cls, name, bases, attributes, **options)


class Slider(gr.Slider, metaclass=_NoStub):
    """`gr.Slider` that passes on any typed number, and None for an empty box."""

    # The browser draws the parent class.
    is_template = True

    def preprocess(self, payload: float | None) -> Any:
        """The typed number, rounded to `precision`, without a range check."""
        if not isinstance(payload, (int, float)) or isinstance(payload, bool):
            return payload
        return Number.round_to_precision(payload, self.precision)
