"""The named endpoints: functions with typed defaults that return plain objects.

`gr.api` checks no types, so every value goes through core.config; an error of ours comes back to
the client with the same words. The same rules of who sees what hold as on the page.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.events import api

from core.checks import choice, integer, text
from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from core.events import Event, event_to_plain
from core.outcome import Outcome
from ui.context import Context
from ui.pages.api_models import add_model_endpoints
from ui.pages.history import ORDERS, STATUSES, allowed, asker_of
from ui.pages.spoken import spoken_errors
from ui.source import LiveSource

__all__ = ["add_endpoints"]

WAIT_S = 0.02
MAX_ROWS = 1000
"""A page of `/runs`: more rows than this are read in pages, by `offset`."""


def add_endpoints(context: Context) -> None:
    """Inside Blocks: `/generate`, `/runs`, `/run`, and those of other files."""
    api(_generate(context), api_name="generate", concurrency_limit=None)
    api(_runs(context), api_name="runs", concurrency_limit=None)
    api(_run(context), api_name="run", concurrency_limit=None)
    add_model_endpoints(context)


def request_from(
    prompt: str, preset: str, sampling: dict[str, Any], fields: dict[str, Any], chat: bool
) -> Request:
    """The endpoint's arguments as a Request. ConfigError names the field."""
    choice("preset", preset, PRESETS)
    if not isinstance(fields, dict):
        raise ConfigError.of("fields", fields, "an object with fields of SpeculationConfig")
    checked = SamplingParams(**sampling)
    base = SpeculationConfig.preset(preset, checked.temperature)
    speculation = SpeculationConfig.from_plain({**base.to_plain(), **fields})
    return Request(prompt, checked, speculation, chat)


def _generate(context: Context) -> Callable[..., Any]:
    async def generate(
        gradio_request: gr.Request,
        prompt: str,
        preset: str = context.preset,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: list[str] | None = None,
        ignore_eos: bool = False,
        chat: bool = False,
        fields: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Continue `prompt`; `fields` set fields of SpeculationConfig over those of `preset`.

        Returns text, token_ids, prompt_token_ids, summary, config, models, and the run's id, under
        which it is in Sessions. A client that cancels stops the engine.
        """
        with spoken_errors():
            sampling = {
                "max_new_tokens": max_new_tokens,
                "temperature": temperature,
                "top_k": top_k,
                "top_p": top_p,
                "seed": seed,
                "stop": () if stop is None else tuple(stop) if isinstance(stop, list) else stop,
                "ignore_eos": ignore_eos,
            }
            request = request_from(prompt, preset, sampling, {} if fields is None else fields, chat)
            owner = context.access.key(gradio_request)
            events = await finished(context.hub.start(request, owner))
            return outcome(events)

    return generate


async def finished(source: LiveSource) -> tuple[Event, ...]:
    """The events of a run when it is done; leaving early stops the engine. Holds no thread."""
    try:
        while not source.done:
            await asyncio.sleep(WAIT_S)
    finally:
        source.cancel()
    return source.events(0, source.count)


def outcome(events: tuple[Event, ...]) -> dict[str, Any]:
    """The object of `python -m core --json`."""
    folded = Outcome()
    for event in events:
        folded.observe(event)
    return folded.to_plain()


def _runs(context: Context) -> Callable[..., Any]:
    def runs(
        gradio_request: gr.Request,
        search: str = "",
        status: str = "",
        order: str = "newest",
        limit: int = 50,
        offset: int = 0,
    ) -> dict[str, Any]:
        """Past runs, newest first: `rows` and the `total` of all that match `search` and `status`.

        `status` is all (or empty), completed, running, cancelled, failed or interrupted;
        `order` is newest, oldest, fastest, longest or acceptance; `limit` at most 1000.
        """
        with spoken_errors():
            if not isinstance(search, str):
                raise ConfigError.of("search", search, "a text")
            if status != "":
                choice("status", status, (*STATUSES, "all"))
            choice("order", order, ORDERS)
            integer("limit", limit, 1, MAX_ROWS)
            owner = asker_of(context, gradio_request, "").owner
            asked = context.query(
                text=search,
                status="" if status == "all" else status,
                owner=owner,
                order=order,
                limit=limit,
                offset=offset,
            )
            page = context.store.runs(asked)
            return {"rows": [summary_plain(row) for row in page.rows], "total": page.total}

    return runs


def _run(context: Context) -> Callable[..., Any]:
    def run(gradio_request: gr.Request, run_id: str, events: bool = False) -> dict[str, Any]:
        """One past run: the object that `/generate` returned; with `events`, every event too."""
        with spoken_errors():
            text("run_id", run_id)
            if not isinstance(events, bool):
                raise ConfigError.of("events", events, "true or false")
            summary = allowed(context, asker_of(context, gradio_request, ""), run_id)
            recorded = context.store.events(run_id)
            plain = {**outcome(recorded), "status": summary.status}
            if events:
                plain["events"] = [event_to_plain(event) for event in recorded]
            return plain

    return run


def summary_plain(summary: Any) -> dict[str, Any]:
    """A RunSummary as plain values, without the key of whoever made the run."""
    plain = dataclasses.asdict(summary)
    plain.pop("owner", None)
    return plain
