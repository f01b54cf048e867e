"""The number that `max_tree_nodes=auto` resolves to in a study, the same for all its cells.

An engine times its LLM's passes when it first drafts and derives a node budget from them. After a
restart the engine may derive another budget; then one point of a grid would be measured with two
configurations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from core.config import Request, SpeculationConfig
from core.config.mechanisms import length_policy
from core.events import Event, RunStarted

__all__ = ["depends_on_timings", "stored_nodes", "resolved_nodes", "with_nodes"]


def depends_on_timings(speculation: SpeculationConfig) -> bool:
    """Whether the configuration's node budget depends on measured times. A length policy that
    chooses the length during the run has the largest tree whose pass was timed as its budget."""
    auto = speculation.max_tree_nodes == "auto" and not speculation.never_drafts
    return auto and length_policy(speculation.length).set_by_user


def with_nodes(request: Request, nodes: int | None) -> Request:
    """The request with the study's number for `auto`. Unchanged if the number is not known yet, or
    if the request's node budget does not depend on measured times."""
    if nodes is None or not depends_on_timings(request.speculation):
        return request
    speculation = dataclasses.replace(request.speculation, max_tree_nodes=nodes)
    return dataclasses.replace(request, speculation=speculation)


def resolved_nodes(events: Iterable[Event]) -> int | None:
    """The number that `auto` resolved to in a run, from its first event."""
    started = next(iter(events), None)
    if not isinstance(started, RunStarted):
        return None
    nodes = started.config.get("speculation", {}).get("max_tree_nodes")
    return nodes if isinstance(nodes, int) else None


def stored_nodes(results: Iterable[Mapping[str, Any]]) -> int | None:
    """The number that `auto` resolved to in the stored cells (lab.measured.Measured, as plain
    values)."""
    return next((one["auto_nodes"] for one in results if one.get("auto_nodes")), None)
