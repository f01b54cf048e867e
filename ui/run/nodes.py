"""The drafter nodes of a run (machines with SSMs, core/remote_ssms): their round trips, and the
network time above which a node makes the run slower than plain decoding."""

from __future__ import annotations

import statistics
from typing import Any

from core.events import NodeTrip, Span
from ui.run.view import RoundView, View

__all__ = ["nodes_of", "nodes_value", "trip_spans"]

Value = dict[str, Any]

RECENT_TRIPS = 64
"""Medians and means are over at most this many round trips: the network may change within a run."""
# The states with a round trip to measure: late and absent nodes sent no answer in time.
ANSWERED = ("in_time", "ahead")
TRIP_NAMES = {"in_time": "round trip", "ahead": "drafted ahead", "late": "late", "absent": "absent"}


def nodes_of(view: View) -> tuple[str, ...]:
    """The addresses of the nodes whose SSMs were loaded, in the order of the models."""
    models = view.started.models if view.started else ()
    return tuple(dict.fromkeys(model.node for model in models if model.node))


def trip_spans(round_: RoundView) -> tuple[Span, ...]:
    """A round's trips as spans; each node has its own lane."""
    return tuple(
        Span(trip.node, TRIP_NAMES[trip.state], trip.start_ms, trip.end_ms)
        for trip in round_.trips
        # Both times are 0 if no request was sent.
        if trip.end_ms > trip.start_ms
    )


def nodes_value(view: View) -> Value:
    """For each node: its address (`node`), its SSMs, and these figures.

    `state`: its state in the latest round that needed the node. `in_time`, `ahead`, `late`,
    `absent`: in how many rounds it had this state. `starts`: see NodeTrip. `deadline`: the latest
    deadline, in milliseconds.

    `trip`, `wire`: the round trip and its network part in milliseconds, as medians over at most
    RECENT_TRIPS trips. `even`: see `_break_even`. An unknown time is None."""
    models = view.started.models if view.started else ()
    return {
        str(i): {
            "node": address,
            "ssms": ", ".join(model.name for model in models if model.node == address),
            **_figures(view, address),
        }
        for i, address in enumerate(nodes_of(view))
    }


def _figures(view: View, address: str) -> Value:
    trips_by_round = [
        (round_, trip) for round_ in view.rounds for trip in round_.trips if trip.node == address
    ]
    states = [trip.state for _, trip in trips_by_round]
    last = trips_by_round[-1][1] if trips_by_round else None
    answered = [(round_, trip) for round_, trip in trips_by_round if trip.state in ANSWERED][
        -RECENT_TRIPS:
    ]
    round_trips = [trip.round_trip_ms for _, trip in answered]
    # The times of both directions together; `busy_ms` is the node's own time.
    network_times = [trip.round_trip_ms - trip.busy_ms for _, trip in answered]
    return {
        "state": last.state if last else "",
        "in_time": states.count("in_time"),
        "ahead": states.count("ahead"),
        "late": states.count("late"),
        "absent": states.count("absent"),
        "starts": last.starts if last else 1,
        "trip": round(statistics.median(round_trips), 3) if round_trips else None,
        "wire": round(statistics.median(network_times), 3) if network_times else None,
        "deadline": round(last.deadline_ms, 1) if last else None,
        "even": _break_even(answered),
    }


def _break_even(answered: list[tuple[RoundView, NodeTrip]]) -> float | None:
    """The network time, in milliseconds, at which a round with the node is predicted to take as
    long per token as plain decoding.

    Below 0, plain decoding is faster even without a network. A round with drafts made ahead counts
    0 for the network, since the round has not waited. None before the first answer, and while the
    time of plain decoding is unknown."""
    plain_ms = answered[-1][1].plain_ms if answered else 0.0
    if not plain_ms:
        return None
    tokens = statistics.fmean(round_.emitted for round_, _ in answered)
    round_ms = statistics.fmean(round_.time.ms for round_, _ in answered)
    network_ms = statistics.fmean(
        trip.round_trip_ms - trip.busy_ms if trip.state == "in_time" else 0.0
        for _, trip in answered
    )
    # tokens x plain_ms = (round_ms - network_ms) + even
    return round(tokens * plain_ms - (round_ms - network_ms), 2)
