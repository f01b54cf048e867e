"""The endpoints for past runs and retention. `gr.api` checks no types, so every value is checked
here or by the function that takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any

import gradio as gr

from core.config.checks import choice, integer, text
from core.errors import ConfigError, StoreError
from core.events import Event, event_to_plain
from core.events.outcome import Outcome
from ui.server.context import Context
from ui.sessions.exporting import write_export
from ui.sessions.history import ORDERS, STATUSES, allowed_run, check_ended, rights_of
from ui.sessions.retention import parse_retention

__all__ = ["MAX_ROWS", "ENDPOINTS", "outcome"]

MAX_ROWS = 1000
"""The most rows in one answer of `/runs` or `/studies`."""


def outcome(events: tuple[Event, ...]) -> dict[str, Any]:
    """The object that `python -m core --json` prints for the run with these events."""
    folded = Outcome()
    for event in events:
        folded.observe(event)
    return folded.to_plain()


# -- list, read, export --


def _runs(context: Context) -> Callable[..., Any]:
    def runs(
        gradio_request: gr.Request,
        search: str = "",
        status: str = "",
        order: str = "newest",
        limit: int = 50,
        offset: int = 0,
        llm: str = "",
        drafter: str = "",
        since: str = "",
        until: str = "",
        noted: bool = False,
    ) -> dict[str, Any]:
        """Past runs in this `order`: `rows` and the `total` of all that match.

        `search`: words of prompt, text or note. `status` is all (or empty), completed, running,
        cancelled, failed or interrupted; `order` is newest, oldest, fastest, longest, acceptance or
        passes (fewest first); `limit` at most 1000. `llm` and `drafter` are names; the drafter
        "none" selects plain decoding. `since` and `until` are ISO dates or times, in UTC unless
        they have an offset. `noted`: only runs with a note.
        """
        if not isinstance(search, str):
            raise ConfigError.must_be("search", search, "a text")
        if status != "":
            choice("status", status, (*STATUSES, "all"))
        choice("order", order, ORDERS)
        integer("limit", limit, 1, MAX_ROWS)
        query = context.query(
            text=search,
            status="" if status == "all" else status,
            owner=rights_of(context, gradio_request, "").owner,
            order=order,
            limit=limit,
            offset=offset,
            llm=llm,
            drafter=drafter,
            since_utc=_moment(since, "since"),
            until_utc=_moment(until, "until"),
            noted=noted,
        )
        page = context.store.runs(query)
        return {"rows": [summary_plain(row) for row in page.rows], "total": page.total}

    return runs


def _moment(value: Any, name: str) -> str:
    try:
        if not isinstance(value, str):
            raise ValueError
        if value:
            datetime.fromisoformat(value.strip())
    except ValueError as error:
        allowed = "empty, or a date or time such as 2026-01-31 or 2026-01-31T18:30"
        raise ConfigError.must_be(name, value, allowed) from error
    return value


def _run(context: Context) -> Callable[..., Any]:
    def run(gradio_request: gr.Request, run_id: str, events: bool = False) -> dict[str, Any]:
        """One past run: the object that `/generate` returned, with its `status`, its `note`, and
        whether it is `thinned` to its accepted paths; with `events`, every event too."""
        text("run_id", run_id)
        if not isinstance(events, bool):
            raise ConfigError.must_be("events", events, "true or false")
        summary = allowed_run(context, rights_of(context, gradio_request, ""), run_id)
        recorded = context.store.events(run_id)
        plain = {
            **outcome(recorded),
            "status": summary.status,
            "note": summary.note,
            "thinned": summary.thinned,
        }
        if events:
            plain["events"] = [event_to_plain(event) for event in recorded]
        return plain

    return run


def summary_plain(summary: Any) -> dict[str, Any]:
    """A RunSummary as plain values, without fields that clients do not get."""
    plain = dataclasses.asdict(summary)
    # `owner` is a visitor's key.
    for name in ("owner", "baseline", "elsewhere", "regret"):
        plain.pop(name, None)
    return plain


def _export(context: Context) -> Callable[..., Any]:
    def export(gradio_request: gr.Request, run_id: str, format: str = "json") -> dict[str, Any]:
        """One past run as a file: its `name`, its `media_type` and its `text`.

        `format` is json (every event), csv (a line a round), trace (for Perfetto) or html (a report
        that replays the run without SpecScope).
        """
        text("run_id", run_id)
        return write_export(context, rights_of(context, gradio_request, ""), run_id, format)

    return export


# -- annotate, delete --


def _annotate(context: Context) -> Callable[..., Any]:
    def annotate(gradio_request: gr.Request, run_id: str, note: str = "") -> dict[str, Any]:
        """Keep a note with a past run; an empty one removes it. Returns `run_id` and `note`."""
        text("run_id", run_id)
        if not isinstance(note, str):
            raise ConfigError.must_be("note", note, "a text")
        allowed_run(context, rights_of(context, gradio_request, ""), run_id)
        context.store.annotate(run_id, note)
        return {"run_id": run_id, "note": context.store.run(run_id).note}

    return annotate


def _delete(context: Context) -> Callable[..., Any]:
    def delete(gradio_request: gr.Request, run_id: str) -> dict[str, Any]:
        """Delete a past run for ever. Returns its `run_id`, and `deleted`, which is true."""
        text("run_id", run_id)
        summary = allowed_run(context, rights_of(context, gradio_request, ""), run_id)
        check_ended(context, summary)
        context.store.delete(run_id)
        return {"run_id": run_id, "deleted": True}

    return delete


# -- retention --


def _retention(context: Context) -> Callable[..., Any]:
    def retention(gradio_request: gr.Request) -> dict[str, Any]:
        """How many of the latest runs keep whole trees: `runs`, null for all."""
        _check_owner(context, gradio_request)
        return {"runs": context.store.retention()}

    return retention


def _set_retention(context: Context) -> Callable[..., Any]:
    def set_retention(
        gradio_request: gr.Request, runs: int | None, sure: bool = False
    ) -> dict[str, Any]:
        """Keep whole trees only for the latest `runs`, null for all. Older runs lose all but their
        accepted paths, for ever: `sure` must be true if a number is given."""
        _check_owner(context, gradio_request)
        keep = parse_retention(runs)
        if not isinstance(sure, bool) or (keep is not None and not sure):
            allowed = "true, since all but these runs lose their rejected branches, for ever"
            raise ConfigError.must_be("sure", sure, allowed)
        context.store.set_retention(keep)
        return {"runs": context.store.retention()}

    return set_retention


def _check_owner(context: Context, request: gr.Request) -> None:
    if not rights_of(context, request, "").paths:
        raise StoreError("retention can be read and set only by the server's owner")


ENDPOINTS = (_runs, _run, _export, _annotate, _delete, _retention, _set_retention)
