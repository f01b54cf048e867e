"""Every named endpoint of the page, from the files that have them."""

from __future__ import annotations

from ui.context import Context
from ui.pages.api import add_generate_endpoint
from ui.pages.api_models import add_model_endpoints
from ui.pages.api_prompts import add_prompt_endpoints
from ui.pages.api_proof import add_proof_endpoints
from ui.pages.api_runs import add_run_endpoints
from ui.pages.api_studies import add_study_endpoints
from ui.pages.api_tune import add_tune_endpoint

__all__ = ["add_endpoints"]


def add_endpoints(context: Context) -> None:
    """Inside Blocks. docs/api.md lists them with their arguments and results."""
    add_generate_endpoint(context)
    add_study_endpoints(context)
    add_tune_endpoint(context)
    add_prompt_endpoints(context)
    add_run_endpoints(context)
    add_proof_endpoints(context)
    add_model_endpoints(context)
