"""The panel of all requests that the server decodes now, with the menu of schedules.

Of another visitor's request, the panel shows neither the prompt nor the run's id."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.config.mechanisms import SCHEDULES
from core.engine.snapshot import LiveRun, Snapshot
from core.errors import ConfigError, SpecScopeError
from core.plurals import number_of
from ui.run.listed import shorten
from ui.run.scheduling import DECISIONS, nodes_words
from ui.server.context import Context
from ui.shared.event_options import LATEST
from ui.shared.parts import part
from ui.words.visible import visible

__all__ = [
    "NOT_YOURS",
    "AllRequests",
    "build_all_requests",
    "choose_schedule",
    "requests_value",
    "requests_view",
    "wire_all_requests",
    "wire_requests_view",
]

NOT_YOURS = (
    "You may look, not choose: the schedule holds for everybody's requests, so it is changed only "
    "on a server with --auth, or if only the server's machine reaches it, without a proxy."
)
# Milliseconds between updates: PAST_MS while a past run is shown, else BUSY_MS while requests run
# or wait, else REST_MS.
BUSY_MS, PAST_MS, REST_MS = 300, 500, 1500
PROMPT_CHARACTERS = 60
# MEASUREMENT: a request that `context.hub` did not start.
OWN, ANOTHER, MEASUREMENT = "your request", "another visitor's request", "a measurement of the page"


@dataclass(frozen=True, slots=True)
class AllRequests:
    """The panel's components."""

    context: Context
    view: gr.HTML
    schedule: gr.Radio


def build_all_requests(context: Context) -> AllRequests:
    """The panel, and below it the menu of schedules."""
    with gr.Column(elem_id="requests-box"):
        view = requests_view("requests")
        schedule = gr.Radio(
            [(f"{name}: {one.label}", name) for name, one in SCHEDULES.items()],
            value=next(iter(SCHEDULES)),
            label="How requests that run at once share the LLM",
            info=". ".join(f"{name}: {one.meaning}" for name, one in SCHEDULES.items()) + ".",
            elem_id="requests-schedule",
        )
    return AllRequests(context, view, schedule)


def requests_view(elem_id: str) -> gr.HTML:
    """The requests as a table, and how busy each model is; triggers `tick` for an update."""
    return part("requests.js", elem_id, {"ask_ms": REST_MS})


# -- values --


def requests_value(context: Context, owner: str, may_schedule: bool = True) -> dict[str, Any]:
    """The view's value for the visitor whose key is `owner`."""
    snapshot = context.model_host.worker.snapshot()
    rows = [
        _row(i + 1, run, *_whose(context, run.run_id, owner)) for i, run in enumerate(snapshot.runs)
    ]
    most_nodes = max((max(row["drafted"], row["granted"]) for row in rows), default=0)
    return {
        # Microseconds: the browser ignores an answer with a lower number than the shown answer's.
        "n": time.monotonic_ns() // 1000,
        "pool": _pool(snapshot),
        "schedule": snapshot.schedule,
        "meaning": SCHEDULES[snapshot.schedule].meaning,
        "reason": _reason(snapshot),
        "decided": _decision_text(snapshot),
        "rows": {str(i): row for i, row in enumerate(rows)},
        "most": most_nodes,
        "lanes": {
            str(i): {"name": visible(lane.name), "busy": round(lane.busy, 2)}
            for i, lane in enumerate(snapshot.lanes)
        },
        "note": "" if may_schedule else NOT_YOURS,
        "ask_ms": BUSY_MS if snapshot.runs or snapshot.num_waiting else REST_MS,
    }


def _whose(context: Context, run_id: str, owner: str) -> tuple[str, str]:
    """Who made the request, and the prompt (empty unless the request is `owner`'s)."""
    source = context.hub.source_of(run_id)
    if source is None:
        return MEASUREMENT, ""
    return (OWN, source.prompt) if source.owner == owner else (ANOTHER, "")


def _row(number: int, run: LiveRun, who: str, prompt: str) -> dict[str, Any]:
    scheduled = run.scheduled
    own = who == OWN
    return {
        "own": own,
        "number": number,
        "who": who,
        "text": visible(shorten(" ".join(prompt.split()), PROMPT_CHARACTERS)),
        "run": run.run_id if own else "",
        "round": run.round + 1,
        "tokens": run.num_tokens,
        "most_tokens": run.max_tokens,
        "limit": _limit(run),
        "drafted": scheduled.num_drafted if scheduled else run.num_verified,
        "granted": scheduled.num_granted if scheduled else run.num_verified,
        "why": ""
        if run.round < 0
        else nodes_words(scheduled, run.num_verified, run.max_tree_nodes),
        "accepted": run.num_accepted,
        "state": _state(run),
    }


def _limit(run: LiveRun) -> str:
    scheduled = run.scheduled
    if scheduled is None or scheduled.length_limit is None:
        return "as it chooses"
    if not scheduled.length_limit:
        return "nothing"
    tokens = number_of(scheduled.length_limit, "token")
    if scheduled.drafter_limit is None:
        return tokens
    return f"{tokens}, {number_of(scheduled.drafter_limit, 'SSM')}"


def _state(run: LiveRun) -> str:
    if run.round < 0 and run.num_tokens:
        return f"waits for at least {number_of(run.num_waited, 'round')}"
    if run.round < 0:
        return "begins"
    if not run.num_waited:
        return "in the pass"
    return f"waits for {number_of(run.num_waited, 'round')}"


def _pool(snapshot: Snapshot) -> str:
    few = {0: "nothing waits", 1: "1 request waits"}
    queue = few.get(snapshot.num_waiting, f"{snapshot.num_waiting} requests wait")
    if not snapshot.runs:
        return (
            f"No request is decoded now, and {queue} in the queue. Run in two tabs at once to see "
            "requests share the LLM; lesson 10 of Learn starts four."
        )
    return f"{len(snapshot.runs)} of {snapshot.max_live} places are taken; {queue} in the queue."


def _reason(snapshot: Snapshot) -> str:
    # The request that has waited least has the latest reason.
    last = min(snapshot.runs, key=lambda run: run.num_waited, default=None)
    why = last.scheduled.reason if last is not None and last.scheduled is not None else ""
    return visible(why or SCHEDULES[snapshot.schedule].meaning)


def _decision_text(snapshot: Snapshot) -> str:
    last = snapshot.decision
    if last is None:
        return ""
    rounds = "round" if last.passes == 1 else "rounds"
    when = f"{last.passes} {rounds} ago" if last.passes else "in this round"
    kind = DECISIONS.get(last.decision, last.decision)
    return visible(f"{kind}, {when}: {last.reason}")


def choose_schedule(context: Context, name: str, may_schedule: bool) -> None:
    """Sets the schedule from the next round on. Raises ConfigError for an unknown name, or if the
    visitor may not choose."""
    if not may_schedule:
        raise ConfigError(NOT_YOURS)
    context.model_host.schedule = name


# -- wiring --


def wire_all_requests(panel: AllRequests, visitor: gr.BrowserState) -> None:
    """Connects the view and the menu."""
    context = panel.context

    def tick(request: gr.Request, key: str, shown: str | None) -> list[Any]:
        return _values(context, request, key, shown)

    def choose(request: gr.Request, key: str, name: str | None) -> list[Any]:
        try:
            choose_schedule(context, name or "", context.access.may_change(request))
        except SpecScopeError:
            name = None  # the menu goes back to the schedule in use
        return _values(context, request, key, name)

    outputs = [panel.view, panel.schedule]
    inputs = [visitor, panel.schedule]
    panel.view.tick(tick, inputs, outputs, **LATEST)
    panel.schedule.input(choose, inputs, outputs, **LATEST)


def wire_requests_view(
    view: gr.HTML,
    context: Context,
    visitor: gr.BrowserState,
    past: Callable[[gr.Request], dict[str, Any] | None],
) -> None:
    """Connects a view without the menu. `past`: the view's value for the ended run that the tab
    shows, else None."""

    def tick(request: gr.Request, key: str) -> dict[str, Any]:
        live_value = requests_value(context, context.access.key(request, key or ""))
        past_value = past(request)
        if past_value:
            return {**past_value, "n": live_value["n"], "ask_ms": PAST_MS}
        return live_value

    view.tick(tick, visitor, view, **LATEST)


def _values(context: Context, request: gr.Request, key: str, shown: str | None) -> list[Any]:
    allowed = context.access.may_change(request)
    value = requests_value(context, context.access.key(request, key or ""), allowed)
    name = value["schedule"]
    if allowed:
        return [value, gr.skip() if shown == name else name]
    return [value, gr.Radio(value=name, interactive=False)]
