"""A run as a Chrome trace, for ui.perfetto.dev, chrome://tracing and Speedscope.

The run is one process; a lane (of a drafter, a drafter node or a stage) is one or more threads.
In Perfetto, slices of one thread must be disjoint or nested. If two slices of a lane overlap, the
later slice goes to another thread of this lane. A slice that SSMs or requests share has its full
length; `share` is the part that counts for this lane and run. Rounds count from 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core.events import (
    EndEvent,
    Event,
    NodeTrip,
    RoundCompleted,
    RunStarted,
    Scheduled,
    Span,
)
from storage.export_csv import FinishedRound, finished_rounds, fused_drafters
from storage.export_json import INTERRUPTED, is_thinned, safe_json, summary_of
from storage.thinned import THINNED

__all__ = ["chrome_trace"]

PID = 1
NS_PER_MS = 1_000_000
LONGEST_MS = 1e10  # four months: a larger value is an error, and is left out
ROUNDS = "rounds"
LAST_LANES = ("combine", "llm", "layers", "verify", "commit")
# The page's words for two lanes.
TITLES = {"llm": "LLM pass", "verify": "verdict"}

Slice = tuple[int, int, str, dict[str, Any]]  # start, end (ns), name, arguments
Entry = dict[str, Any]


def chrome_trace(events: Sequence[Event], status: str = INTERRUPTED) -> str:
    """The trace as JSON: complete events (`X`) in microseconds from the run's start, counters of
    tokens and of the speculation length, and marks at start and end. `otherData` has the run's
    summary without text and token ids."""
    start = events[0] if events else None
    drafters = start.drafters if isinstance(start, RunStarted) else ()
    lanes = _lanes(events, drafters)
    entries = [_name("process_name", 0, name=f"SpecScope run {start.run_id if start else ''}")]
    thread = 0
    for lane, slices in lanes.items():
        for number, thread_slices in enumerate(_threads_without_overlap(slices)):
            thread += 1
            title = lane if lane in drafters else TITLES.get(lane, lane)
            title = title if number == 0 else f"{title} ({number + 1})"
            entries.append(_name("thread_name", thread, name=title))
            entries.append(_name("thread_sort_index", thread, sort_index=thread))
            entries += [_complete(one, thread, lane) for one in thread_slices]
    entries += [*_counters(events), *_marks(events)]
    summary = summary_of(events, status)
    other = {key: value for key, value in summary.items() if key not in ("token_ids", "text")}
    note = {"note": THINNED} if is_thinned(events) else {}
    return safe_json(
        {"displayTimeUnit": "ms", "otherData": {**other, **note}, "traceEvents": entries}
    )


# -- slices --


def _lanes(events: Sequence[Event], drafters: tuple[str, ...]) -> dict[str, list[Slice]]:
    # In the order of display; lanes with other names, such as drafter nodes, follow.
    by_lane: dict[str, list[Slice]] = {name: [] for name in (ROUNDS, *drafters, *LAST_LANES)}
    thinned = is_thinned(events)
    for one in finished_rounds(events):
        completed, number = one.completed, one.completed.round + 1
        round_span = Span(ROUNDS, f"round {number}", one.begin_ms, completed.at_ms)
        nodes = len(one.combined.token_ids) if one.combined and not thinned else None
        _append_slice(by_lane, round_span, {**_round_args(one), "nodes": nodes})
        for span in (*completed.spans, *completed.loads, *map(_trip_span, completed.nodes)):
            shared = {"share": span.share} if span.share < 1 else {}
            _append_slice(by_lane, span, {"round": number, **shared})
    return {lane: slices for lane, slices in by_lane.items() if slices}


def _trip_span(trip: NodeTrip) -> Span:
    name = {"in_time": "round trip", "ahead": "drafted ahead"}.get(trip.state, trip.state)
    return Span(trip.node, name, trip.start_ms, trip.end_ms)


def _append_slice(slices: dict[str, list[Slice]], span: Span, args: dict[str, Any]) -> None:
    start, end = _ns(span.start_ms), _ns(span.end_ms)
    if start is not None and end is not None and end >= start:
        slices.setdefault(span.lane, []).append((start, end, span.name, args))


def _ns(ms: float) -> int | None:
    """Whole nanoseconds, Perfetto's unit; None for a time that is not finite or is longer than
    LONGEST_MS."""
    fits = math.isfinite(ms) and abs(ms) <= LONGEST_MS
    return round(ms * NS_PER_MS) if fits else None


def _round_args(one: FinishedRound) -> dict[str, Any]:
    completed = one.completed
    return {
        "text": "".join(completed.text_deltas),
        "accepted": completed.num_accepted,
        "tokens": len(completed.token_ids),
        "own token": one.verified.own_kind if one.verified else "",
        "speculation length": completed.speculation_length,
        "next length": completed.next_speculation_length,
        "why": completed.length_reason,
        "winner": one.combined.winner if one.combined else "",
        "weights": completed.weights,
        **_routing_args(one),
        **_schedule_args(completed.scheduled),
        "drafted ahead": [
            f"{ahead.drafter}: {'hit' if ahead.hit else ahead.reason or 'miss'}"
            for ahead in completed.ahead
        ],
        "notes": list(completed.notes),
    }


def _routing_args(one: FinishedRound) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if routing := one.completed.routing:
        args["SSMs"] = {ssm.drafter: f"{ssm.role}, {ssm.score:.4g}" for ssm in routing}
        args["why these SSMs"] = one.completed.routing_reason
    if (fused_from := fused_drafters(one)) is not None:
        args["fused from"] = fused_from
    return args


def _schedule_args(part: Scheduled | None) -> dict[str, Any]:
    return {} if part is None else {"scheduled": dataclasses.asdict(part)}


def _threads_without_overlap(slices: Iterable[Slice]) -> list[list[Slice]]:
    threads: list[list[Slice]] = []
    # In order of start, each slice goes to the first free thread.
    for one in sorted(slices, key=lambda slice_: slice_[:2]):
        for thread in threads:
            if thread[-1][1] <= one[0]:
                thread.append(one)
                break
        else:
            threads.append([one])
    return threads


def _complete(one: Slice, thread: int, lane: str) -> Entry:
    start, end, name, args = one
    return {
        "ph": "X",
        "pid": PID,
        "tid": thread,
        "name": name,
        "cat": lane,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


# -- the rest --


def _name(kind: str, thread: int, **args: Any) -> Entry:
    return {"ph": "M", "pid": PID, "tid": thread, "name": kind, "args": args}


def _counters(events: Sequence[Event]) -> Iterator[Entry]:
    # Perfetto labels a counter with its name and the name of its value: "accepted tokens".
    total = 0
    for event in events:
        at = _ns(event.at_ms)
        if isinstance(event, RoundCompleted) and at is not None:
            total += len(event.token_ids)
            for name, unit, value in (
                ("accepted", "tokens", event.num_accepted),
                ("speculation", "length", event.speculation_length),
                ("committed", "tokens", total),
            ):
                entry = {"ph": "C", "pid": PID, "tid": 0, "name": name, "ts": at / 1000}
                yield {**entry, "args": {unit: value}}


def _marks(events: Sequence[Event]) -> Iterator[Entry]:
    for event in events:
        at = _ns(event.at_ms)
        if isinstance(event, RunStarted | EndEvent) and at is not None:
            name = type(event).__name__
            # `s`: the mark goes across all threads of the process.
            yield {"ph": "i", "pid": PID, "tid": 1, "name": name, "ts": at / 1000, "s": "p"}
