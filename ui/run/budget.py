"""A run's node budget in words: what `max_tree_nodes` resolved to, the draft depth that it allows,
and the drafters that get no node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.config import SpeculationConfig
from core.config.budget import max_draft_depth, node_shares
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import combine_rule, length_policy
from core.errors import ConfigError
from core.plurals import number_of
from core.speculation_length.cost_model import NODE_COUNTS
from core.speculation_length.history import LengthHistory
from ui.run.listed import join_names
from ui.run.routing_values import routed_candidates
from ui.run.view import View

__all__ = ["budget_words", "depth_bounds", "depth_words", "nodeless", "with_budget_bounds"]


def with_budget_bounds(lengths: dict[str, Any], view: View) -> dict[str, Any]:
    """A copy of `lengths` with the texts `budget` (`budget_words`) and `deep` (`depth_words`).
    `lengths["rounds"]` is as in `lengths_value` (charts.py).

    If the user sets the length, each round that could not draft its length also gets `m`: the
    length of the longest possible draft. If the node budget would have allowed a longer draft, the
    round also gets `b`, the recorded reason."""
    config = _config(view)
    if config is None or not length_policy(config.length).set_by_user:
        return {**lengths, "budget": budget_words(view, depth=False), "deep": ""}
    most = max_draft_depth(config, _budget_drafters(view, config), config.speculation_length)
    history, rounds = LengthHistory(view.rounds), dict(lengths["rounds"])
    for number, value in rounds.items():
        recorded, why = history.depth_bound(int(number)) or (most, "")
        # When a drafter fails, the others get its nodes and may draft deeper than `most`.
        allowed = max(min(most, recorded), value["d"])
        if value["s"] > allowed:
            rounds[number] = {**value, "m": allowed, **({"b": why} if recorded < most else {})}
    words = {
        "budget": budget_words(view, depth=False),
        "deep": depth_words(view, lengths.get("why", "")),
    }
    return {**lengths, "rounds": rounds, **words}


def budget_words(view: View, depth: bool = True) -> str:
    """Sentences about the resolved `max_tree_nodes`, the depth of drafts (if `depth`), and drafters
    without a node. Empty if none applies."""
    config = _config(view)
    if config is None or config.never_drafts or not isinstance(config.max_tree_nodes, int):
        return ""
    deep = depth_words(view) if depth else ""
    return " ".join(filter(None, (_auto_words(view, config), deep, _nodeless_words(view))))


def depth_words(view: View, why: str = "") -> str:
    """A sentence if the node budget keeps drafts below the `speculation_length` that the user set;
    else empty. Also empty if `why`, the explanation of a round's length, says the same."""
    config = _config(view)
    if (
        "drafts are at most" in why
        or config is None
        or config.never_drafts
        or not isinstance(config.max_tree_nodes, int)
        or not length_policy(config.length).set_by_user
    ):
        return ""
    most_tokens = config.speculation_length
    names = _budget_drafters(view, config)
    most = max_draft_depth(config, names, most_tokens)
    if most >= most_tokens:
        return ""
    nodes = number_of(config.max_tree_nodes, "node")
    is_divided = len(names) > 1 and combine_rule(config.combine).node_budget != "each"
    among = f" for {len(names)} drafters" if is_divided else ""
    unreached = f"speculation_length {most_tokens} is not reached"
    return f"{nodes}{among} let drafts be {most} deep: {unreached}."


def depth_bounds(view: View, most: int) -> tuple[int, dict[int, int]]:
    """(depth, budgets). `depth`: the depth of the deepest draft within the run's node budget, at
    most `most`. `budgets`: each greater depth up to `most` -> the smallest `max_tree_nodes` that
    allows it. Depths that no budget allows are left out."""
    config = _config(view)
    if config is None:
        return most, {}
    names = _budget_drafters(view, config)
    if length_policy(config.length).chooses_drafters:  # then a round may have one drafter
        names = names[:1]
    allowed = depth = max_draft_depth(config, names, most)
    takes: dict[int, int] = {}
    if isinstance(config.max_tree_nodes, int):
        for nodes in range(config.max_tree_nodes + 1, MAX_TREE_NODES + 1):
            deep = max_draft_depth(replace(config, max_tree_nodes=nodes), names, most)
            takes |= dict.fromkeys(range(depth + 1, deep + 1), nodes)
            depth = max(depth, deep)
            if depth >= most:
                break
    return allowed, takes


def nodeless(view: View) -> tuple[str, ...]:
    """Drafters that get no node of the budget; none if a length policy or a router chooses the
    drafters."""
    config = _config(view)
    if config is None or length_policy(config.length).chooses_drafters or routed_candidates(view):
        return ()
    if not isinstance(config.max_tree_nodes, int):
        return ()
    shares = node_shares(config.combine, config.max_tree_nodes, view.drafters, config.draft)
    return tuple(name for name, share in zip(view.drafters, shares, strict=True) if not share)


def _budget_drafters(view: View, config: SpeculationConfig) -> tuple[str, ...]:
    """With routing, the first `routed_drafters` SSMs stand for the chosen SSMs."""
    ssms = routed_candidates(view)
    left_out = ssms[config.routed_drafters :]
    return tuple(name for name in view.drafters if name not in left_out)


def _config(view: View) -> SpeculationConfig | None:
    """The run's resolved configuration; None before the run's start, without drafters, or if this
    version cannot read it."""
    if view.started is None or not view.drafters:
        return None
    try:
        return SpeculationConfig.from_plain(view.started.config["speculation"])
    except ConfigError:
        return None


def _auto_words(view: View, config: SpeculationConfig) -> str:
    assert view.started is not None and isinstance(config.max_tree_nodes, int)
    # `config` has the resolved number.
    if view.started.asked.get("speculation", {}).get("max_tree_nodes") != "auto":
        return ""
    nodes = config.max_tree_nodes
    sentence = f"max_tree_nodes=auto resolved to {number_of(nodes, 'node')} in this run"
    if not length_policy(config.length).set_by_user:
        chooses = f"within it {config.length} chooses the length"
        return f"{sentence}, the largest tree that was timed: {chooses}."
    # `auto` takes the largest timed tree that cost at most 1.5 plain passes (AFFORDABLE in
    # verify_costs.py).
    if nodes >= NODE_COUNTS[-1]:
        return f"{sentence}, the largest tree that was timed: it took at most 1.5 plain passes."
    return (
        f"{sentence}: larger trees took the LLM more than 1.5 times a plain pass when this machine "
        "was timed."
    )


def _nodeless_words(view: View) -> str:
    without = nodeless(view)
    if not without:
        return ""
    gets, drafts = ("gets", "drafts") if len(without) == 1 else ("get", "draft")
    return f"{join_names(without)} {gets} no node and {drafts} nothing."
