"""A slider for the playback: how fast the pictures go, and at which round they stand.

In the browser its number box puts the nearest end in the place of what was typed past it, as soon
as it is left; before that Gradio's own slider answers such a number with an HTTP error that names
no field. Here the number goes on to the handler. What a run is asked for stands in number boxes
instead (form.py, fields.py), which keep whatever was typed. Knows no field.
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
