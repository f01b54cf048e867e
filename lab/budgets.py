"""What `max_tree_nodes=auto` comes to in a study: one number, found out once.

An engine times its LLM's passes when it first drafts, and says by them how many nodes it can
afford. After a restart it may say another number, and a point would be two configurations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from core.config import Request, SpeculationConfig
from core.events import Event, RunStarted
from core.mechanisms import length_policy

__all__ = ["by_machine", "kept_nodes", "told_nodes", "with_nodes"]


def by_machine(speculation: SpeculationConfig) -> bool:
    """Whether how many nodes it drafts hangs on what was timed. A length that is found while
    running weighs what nodes cost itself, and always begins with the same bound."""
    auto = speculation.max_tree_nodes == "auto" and not speculation.never_drafts
    return auto and length_policy(speculation.length).given


def with_nodes(request: Request, nodes: int | None) -> Request:
    """The request with what `auto` came to in its study; as it is where that is not known yet, or
    does not hang on the machine."""
    if nodes is None or not by_machine(request.speculation):
        return request
    speculation = dataclasses.replace(request.speculation, max_tree_nodes=nodes)
    return dataclasses.replace(request, speculation=speculation)


def told_nodes(events: Iterable[Event]) -> int | None:
    """What a run's first event says that `auto` came to for it."""
    started = next(iter(events), None)
    if not isinstance(started, RunStarted):
        return None
    nodes = started.config.get("speculation", {}).get("max_tree_nodes")
    return nodes if isinstance(nodes, int) else None


def kept_nodes(results: Iterable[Mapping[str, Any]]) -> int | None:
    """What it came to in the cells that are kept (lab.measured.Measured, as plain values)."""
    return next((one["auto_nodes"] for one in results if one.get("auto_nodes")), None)
