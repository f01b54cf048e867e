"""Registers every named endpoint of the page."""

from __future__ import annotations

from ui.api.generate import add_generate_endpoint
from ui.api.models import add_model_endpoints
from ui.api.prompts import add_prompt_endpoints
from ui.api.proof import add_proof_endpoints
from ui.api.requests import add_request_endpoints
from ui.api.runs import add_run_endpoints
from ui.api.studies import add_study_endpoints
from ui.api.tune import add_tune_endpoint
from ui.server.context import Context

__all__ = ["add_endpoints"]


def add_endpoints(context: Context) -> None:
    """Call it inside `gr.Blocks`. docs/api.md lists the endpoints with their arguments and
    results."""
    add_generate_endpoint(context)
    add_study_endpoints(context)
    add_tune_endpoint(context)
    add_prompt_endpoints(context)
    add_run_endpoints(context)
    add_proof_endpoints(context)
    add_model_endpoints(context)
    add_request_endpoints(context)
