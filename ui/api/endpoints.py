"""Registers every named endpoint of the page."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import gradio as gr
from gradio.events import api

from core.errors import SpecScopeError
from ui.api import generate, models, prompts, requests, run_questions, runs, studies, tune
from ui.server.context import Context

__all__ = ["add_endpoints"]


def add_endpoints(context: Context) -> None:
    """Registers the endpoints under their functions' names; must be called inside `gr.Blocks`."""
    for module in (generate, studies, tune, prompts, runs, run_questions, models, requests):
        for build in module.ENDPOINTS:
            endpoint = build(context)
            name = endpoint.__name__
            api(_with_gradio_errors(endpoint), api_name=name, concurrency_limit=None)


def _with_gradio_errors(endpoint: Callable[..., Any]) -> Callable[..., Any]:

    @contextmanager
    def gradio_errors() -> Iterator[None]:
        try:
            yield
        except SpecScopeError as error:
            raise gr.Error(str(error), print_exception=False) from error

    # Gradio reads names, types and defaults of the arguments through `__wrapped__`.
    @wraps(endpoint)
    def call(*arguments: Any) -> Any:
        with gradio_errors():
            return endpoint(*arguments)

    @wraps(endpoint)
    async def call_async(*arguments: Any) -> Any:
        with gradio_errors():
            return await endpoint(*arguments)

    return call_async if inspect.iscoroutinefunction(endpoint) else call
