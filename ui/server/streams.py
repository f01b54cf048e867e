"""The ends of the page's streams."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

__all__ = ["end_without_changes"]


def end_without_changes(blocks: gr.Blocks) -> None:
    """Lets each stream of the page end with a frame without changes. At its end Gradio sends the
    last frame once more, perhaps after the answer to a later click. The endpoints' streams stay as
    they are: a client reads their last value."""
    for handler in blocks.fns.values():
        fn = handler.fn
        is_stream = fn is not None and inspect.isgeneratorfunction(fn)
        if fn is not None and is_stream and handler.outputs and handler.api_visibility == "private":
            handler.fn = _with_last_frame(fn, len(handler.outputs))


def _with_last_frame(
    stream: Callable[..., Iterator[Any]], num_outputs: int
) -> Callable[..., Iterator[Any]]:
    skips = [gr.skip() for _ in range(num_outputs)]

    # `wraps`: Gradio reads the signature, for `gr.Request` and `gr.EventData`.
    @functools.wraps(stream)
    def frames(*args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from stream(*args, **kwargs)
        yield skips if num_outputs > 1 else skips[0]

    return frames
