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
    sessions(page)
    page.locator(".sp-open").first.click()
    about(page, f"Opened: {run_id}")
    wait_notice(page, "Finished: ", "sessions")


def about(page: Any, words: str) -> None:
    page.locator("#sessions-about").get_by_text(words).first.wait_for()


def run_ids(context: Context) -> list[str]:
    return [row.run_id for row in context.store.runs(RunQuery()).rows]
