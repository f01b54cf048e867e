"""The endpoints `/baseline`, `/prove` and `/regret`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from core.config.checks import text
from core.errors import ConfigError, StoreError
from ui.live.handlers import Question
from ui.run.hindsight import measure_regret
from ui.run.plain_run import race_plain
from ui.run.player import Player
from ui.run.regret_words import regret_plain
from ui.run.source import StoredSource
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.history import allowed_run, rights_of

__all__ = ["ENDPOINTS"]

UNFINISHED = "plain decoding did not finish"
UNFINISHED_REGRET = "the SSMs did not read the text to its end"


def _baseline(context: Context) -> Callable[..., Any]:
    async def baseline(gradio_request: gr.Request, run_id: str) -> dict[str, Any]:
        """Decode a completed run's request plainly, now, and compare the speeds: `speed_up`. The
        plain run is in Sessions too. A client that cancels stops it."""
        summary = _ended_run(context, gradio_request, run_id)
        state = summary.status
        if state == "completed" and summary.num_lost_events:
            state = "incomplete in the log"
        if state != "completed":
            raise ConfigError.of("run", state, "only a completed run can be compared")
        session = await _run_question(context, gradio_request, summary, race_plain)
        if session.baseline is None:
            raise ConfigError(session.trouble or UNFINISHED)
        speed = summary.stats.tokens_per_second
        ratio = session.baseline.speed_up(speed)
        return {
            "run_id": run_id,
            "plain_run_id": session.baseline.run_id,
            "tokens_per_second": speed,
            "plain_tokens_per_second": session.baseline.tokens_per_second,
            "speed_up": ratio.value if ratio else None,
        }

    return baseline


def _prove(context: Context) -> Callable[..., Any]:
    async def prove(gradio_request: gr.Request, run_id: str) -> dict[str, Any]:
        """Decode a run's request plainly and compare the texts: `answer` is identical, tie (a
        rounding tie), bug, or distribution (a rule that keeps the distribution, not the tokens),
        `words` say why, `at` is the index of the first token that differs, null if none does. A
        client that cancels stops it."""
        summary = _ended_run(context, gradio_request, run_id)
        session = await _run_question(context, gradio_request, summary, race_plain)
        if session.answer is None:
            raise ConfigError(session.trouble or UNFINISHED)
        return {
            "run_id": run_id,
            "plain_run_id": session.plain.run_id if session.plain else "",
            "answer": session.answer.kind,
            "words": session.answer.sentence,
            "at": session.answer.at,
        }

    return prove


def _regret(context: Context) -> Callable[..., Any]:
    async def regret(gradio_request: gr.Request, run_id: str) -> dict[str, Any]:
        """What the choice of SSMs of a routed run cost: each SSM reads the recorded text once. The
        result counts the LLM passes that the text takes with each SSM alone (the best is
        `best_fixed`), with the best fixed group (`best_group`) and with the best SSM in each round
        (`oracle`); `words` is the result as a sentence. A client that cancels stops it."""
        summary = _ended_run(context, gradio_request, run_id)
        session = await _run_question(context, gradio_request, summary, measure_regret)
        if session.regret is None:
            raise ConfigError(session.trouble or UNFINISHED_REGRET)
        return {"run_id": run_id, **regret_plain(session.regret)}

    return regret


def _ended_run(context: Context, request: gr.Request, run_id: str) -> Any:
    text("run_id", run_id)
    summary = allowed_run(context, rights_of(context, request, ""), run_id)
    if summary.status == "running":
        raise StoreError("run is still running: wait for its end, or stop it")
    return summary


async def _run_question(
    context: Context, request: gr.Request, summary: Any, question: Question
) -> TabSession:
    # A new session, so that no browser tab is disturbed.
    session = TabSession()
    source = await asyncio.to_thread(StoredSource, context.store, summary.run_id)
    session.look_at(Player(source))
    steps = iter(question(context.hub, session, context.access.key(request)))
    try:
        # A step runs in a thread, since it blocks.
        while await asyncio.to_thread(_step, steps):
            pass
    except asyncio.CancelledError:
        session.cancel()
        raise
    return session


def _step(steps: Iterator[object]) -> bool:
    # `next` has a default, since a future cannot raise StopIteration.
    end = object()
    return next(steps, end) is not end


ENDPOINTS = (_baseline, _prove, _regret)
