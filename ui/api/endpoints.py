"""Registers every named endpoint of the page."""

from __future__ import annotations

from gradio.events import api

from ui.api import generate, models, prompts, proof, requests, runs, studies, tune
from ui.server.context import Context

__all__ = ["add_endpoints"]


def add_endpoints(context: Context) -> None:
    """Call it inside `gr.Blocks`. An endpoint has the name of its function; docs/api.md lists them
    with their arguments and results."""
    for module in (generate, studies, tune, prompts, runs, proof, models, requests):
        for make in module.ENDPOINTS:
            endpoint = make(context)
            api(endpoint, api_name=endpoint.__name__, concurrency_limit=None)
