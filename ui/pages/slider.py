"""A slider whose bounds are the form's, not the law: what is typed past them is for core.config.

Gradio's own answers a number outside its bounds with an HTTP error that names no field. Here the
number goes on to the handler, whose checks name the field, the value and what is allowed. Knows no
field.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

import gradio as gr
from gradio.component_meta import ComponentMeta
from gradio.components.number import Number

__all__ = ["Slider"]


class _NoStub(ComponentMeta):
    """Gradio's metaclass without its file: for a class in a file it writes a `.pyi` beside it."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any], **options: Any
    ) -> _NoStub:
        return ABCMeta.__new__(cls, name, bases, attributes, **options)


class Slider(gr.Slider, metaclass=_NoStub):
    """`gr.Slider` that hands on whatever number was typed, and None for an emptied box."""

    # As Gradio's own templates (gr.TextArea and others) do: the browser draws the class above.
    is_template = True

    def preprocess(self, payload: float | None) -> Any:
        """The number as it was typed, rounded as `precision` says; nothing is out of bounds."""
        if not isinstance(payload, (int, float)) or isinstance(payload, bool):
            return payload
        return Number.round_to_precision(payload, self.precision)
