"""The node budget that `max_tree_nodes=auto` derives from measured times, the same for all runs of
a study."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from core.config import Request, SpeculationConfig
from core.config.mechanisms import length_policy
from core.events import Event, RunStarted

__all__ = ["depends_on_timings", "stored_nodes", "resolved_nodes", "with_nodes"]


def depends_on_timings(speculation: SpeculationConfig) -> bool:
    """Whether `max_tree_nodes` is `auto`, and is derived from measured times."""
    auto = speculation.max_tree_nodes == "auto" and not speculation.never_drafts
    return auto and length_policy(speculation.length).set_by_user


def with_nodes(request: Request, nodes: int | None) -> Request:
    """The request with `nodes` in place of an `auto` that depends on timings. Unchanged if `nodes`
    is None."""
    if nodes is None or not depends_on_timings(request.speculation):
        return request
    speculation = dataclasses.replace(request.speculation, max_tree_nodes=nodes)
    return dataclasses.replace(request, speculation=speculation)


def resolved_nodes(events: Iterable[Event]) -> int | None:
    """The node budget in a run's first event; None if the event has no number."""
    started = next(iter(events), None)
    if not isinstance(started, RunStarted):
        return None
    nodes = started.config.get("speculation", {}).get("max_tree_nodes")
    return nodes if isinstance(nodes, int) else None


def stored_nodes(results: Iterable[Mapping[str, Any]]) -> int | None:
    """The first `auto_nodes` of the stored results; None if no result has a number."""
    return next((one["auto_nodes"] for one in results if one.get("auto_nodes")), None)
