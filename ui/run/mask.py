"""The attention mask of an LLM pass: which tokens each node attends to, and which slot of the KV
cache holds its keys and values before and after the commit.

The pass is fed the root, then the nodes in their order; each gets the next slot. The commit moves
the accepted path next to the root."""

from __future__ import annotations

from typing import Any

from ui.run.charts import drafters_value
from ui.run.frame import Frame
from ui.run.view import Detail, View

__all__ = ["MOST_NODES", "mask_value"]

MOST_NODES = 64
"""Of a larger tree, the first MOST_NODES nodes and the nodes of `_kept_path` are drawn."""


def mask_value(frame: Frame) -> dict[str, Any]:
    """`run`: the run's id. `round`, `stage`, `node`: the selected round, its displayed stage, and
    the selected node. `drafters`: see `drafters_value`. `root`: the root token's text. `cached`:
    the number of tokens in the cache before the pass, which is also the root's slot.

    `nodes`: for each drawn node its text `t`, its `parent`, its `ancestors` (nodes, without the
    root), its `slot`, and its slot `after` the commit, None if the node is not kept. `more`: the
    number of nodes that are not drawn."""
    view, detail = frame.view, frame.detail
    tree = detail.combined if detail else None
    value: dict[str, Any] = {
        "run": view.run_id,
        "round": frame.selected_round,
        "stage": detail.stage if detail else "",
        "node": frame.node,
        "drafters": drafters_value(view),
        "root": tree.root_text if tree else "",
        "cached": _num_cached(view, frame.selected_round),
        "nodes": {},
        "more": 0,
    }
    if detail is None or tree is None:
        return value
    path = _kept_path(detail)
    num_nodes = len(tree.token_ids)
    shown = sorted({*range(min(MOST_NODES, num_nodes)), *path})
    value["more"] = num_nodes - len(shown)
    for node in shown:
        value["nodes"][str(node)] = {
            "t": tree.texts[node],
            "parent": tree.parents[node],
            "ancestors": ",".join(str(one) for one in _ancestors(tree.parents, node)),
            "slot": value["cached"] + 1 + node,
            "after": value["cached"] + 1 + path.index(node) if node in path else None,
        }
    return value


def _num_cached(view: View, number: int) -> int:
    """The number of tokens in the prompt and in the rounds before round `number`, without the
    root."""
    started = view.started
    if started is None or number < 0:
        return 0
    committed = sum(round_.emitted for round_ in view.rounds[:number])
    return len(started.prompt_token_ids) + committed - 1


def _kept_path(detail: Detail) -> list[int]:
    """The accepted nodes; once the round is complete, the committed nodes."""
    if detail.verified is None:
        return []
    accepted = list(detail.verified.path)
    return accepted[: detail.completed.num_accepted] if detail.completed else accepted


def _ancestors(parents: tuple[int, ...], node: int) -> list[int]:
    path = []
    above = parents[node]
    while above >= 0:
        path.append(above)
        above = parents[above]
    return path[::-1]
