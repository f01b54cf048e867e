"""Past runs on the Sessions tab, for browser tests."""

from __future__ import annotations

from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from storage import RunQuery
from tests.ui.sites import sessions, wait_notice
from ui.server.context import Context

REQUEST = Request(
    "A line\nand <b>another</b>",
    SamplingParams(max_new_tokens=33, temperature=0.7, seed=12, stop=("END", "x y")),
    SpeculationConfig(
        ("ssm-code", "ngram"), combine="vote", length="goodput", weight_bounds=(0.125, 3.5)
    ),
)


def record_run(context: Context, request: Request = REQUEST) -> str:
    source = context.hub.start(request, "")
    source.wait_done(20.0)
    assert source.is_done
    return source.run_id


def open_run(page: Any, run_id: str) -> None:
    """Open the first run of the list, which must be `run_id`."""
    sessions(page)
    page.locator(".sp-open").first.click()
    about(page, f"Opened: {run_id}")
    wait_notice(page, "Finished: ", "sessions")


def about(page: Any, words: str) -> None:
    """Wait until the lines about the opened run contain `words`."""
    page.locator("#sessions-about").get_by_text(words).first.wait_for()


def run_ids(context: Context) -> list[str]:
    """The ids of the log's newest runs, newest first."""
    return [row.run_id for row in context.store.runs(RunQuery()).rows]
