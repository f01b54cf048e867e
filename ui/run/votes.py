"""The drafters' proposals and their weights in a vote or pool, as data and in words."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from core.config.mechanisms import combine_rule, is_model_free, length_policy
from core.events import Combined, DraftRecord
from core.plurals import number_of
from ui.run.budget import nodeless
from ui.run.charts import LIVE_ROUNDS, drafters_value
from ui.run.explain import percent
from ui.run.frame import Frame
from ui.run.listed import join_names
from ui.run.probabilities import rounded_probability
from ui.run.trees import places, was_fed
from ui.run.view import Detail, RoundView, View
from ui.run.vote_reasons import (
    deciding_split,
    draft_paths,
    dropped_choice,
    winner_reasons,
)

__all__ = ["helped_words", "proposals_value", "vote_in_short", "vote_sentence"]

Value = dict[str, Any]

# A share of the sum of all weights.
NEARLY_ALL = 0.99
LINE_DIGITS = 4
"""Decimals of the weights in `history`, which the page draws as lines."""


def proposals_value(frame: Frame) -> Value:
    """Data of the picture of a round's proposals.

    `drafters`: see `drafters_value`. `rows`: each drafter's proposals in the round. `nodeless`: why
    drafters' rows are empty. `weights` and `after`: the drafters' weights before and after this
    round; `history`: their weights over the rounds. `kept`: see `_kept_counts`. `dial`: whether the
    combine rule has the field `vote_nodes`."""
    view, detail = frame.view, frame.detail
    rule = combine_rule(_rule(view))
    index = {name: str(i) for i, name in enumerate(view.drafters)}
    drafts = detail.drafted.drafts if detail and detail.drafted else ()
    tree = detail.combined if detail else None
    weighed = tree is not None and combine_rule(tree.rule).weighted
    shown = view.rounds if frame.is_complete else view.rounds[-LIVE_ROUNDS:]
    completed = detail.completed if detail else None
    return {
        "run": view.run_id,
        "round": frame.selected_round,
        "drafters": drafters_value(view),
        "chains": rule.chains,
        "words": asdict(rule.words),
        "dial": "vote_nodes" in rule.fields,
        "rows": {index.get(draft.drafter, "-1"): _row(draft, detail) for draft in drafts if detail},
        "weights": _by_index(tree.weights if tree and weighed else {}, index),
        "after": _by_index(completed.weights if completed and weighed else {}, index),
        "winner": index.get(tree.winner, "") if tree else "",
        "kept": _kept_counts(tree, drafts),
        # If a row is empty for several reasons, the last one is shown.
        "nodeless": _without_draft(view, detail, index)
        | _nodeless(view, drafts, index)
        | _left_out(detail, index),
        "sentence": vote_sentence(view, detail),
        # Empty during the run: a sentence that appears then would move the page below it.
        "helped": helped_words(view) if frame.is_complete else "",
        "history": {
            str(round_.number): _by_index(round_.weights, index, LINE_DIGITS)
            for round_ in shown
            if round_.weights
        },
    }


def _nodeless(view: View, drafts: tuple[DraftRecord, ...], index: Mapping[str, str]) -> Value:
    drafted = {draft.drafter for draft in drafts}
    nodes = view.speculation.get("max_tree_nodes")
    why = f"no node for it: max_tree_nodes is {nodes}, for {len(view.drafters)} drafters"
    return {index[name]: why for name in nodeless(view) if name not in drafted}


def _without_draft(view: View, detail: Detail | None, index: Mapping[str, str]) -> Value:
    """Why the rows of drafters without a draft are empty, where this is known."""
    if detail is None or detail.drafted is None:
        return {}
    chooses = length_policy(view.speculation.get("length", "fixed")).chooses_drafters
    drafted = {draft.drafter: bool(draft.token_ids) for draft in detail.drafted.drafts}
    reasons: Value = {}
    for name, key in index.items():
        if name not in drafted and chooses:
            reasons[key] = "not chosen to draft"
        elif not drafted.get(name, True) and is_model_free(name):
            reasons[key] = "found nothing to repeat"
    return reasons


def _left_out(detail: Detail | None, index: Mapping[str, str]) -> Value:
    routing = detail.completed.routing if detail and detail.completed else ()
    waiting = (one.drafter for one in routing if one.role == "waiting")
    return {index[name]: "left out by routing" for name in waiting if name in index}


def _rule(view: View) -> str:
    return str(view.speculation.get("combine", "union")) if view.drafters else ""


def _by_index(
    weights: Mapping[str, float], index: Mapping[str, str], digits: int | None = None
) -> Value:
    return {
        index[name]: weight if digits is None else round(weight, digits)
        for name, weight in weights.items()
        if name in index
    }


def _row(draft: DraftRecord, detail: Detail) -> Value:
    nodes, tree, verdict = places(detail, draft.drafter), detail.combined, detail.verified
    node_weights = _node_weights(tree, draft, nodes) if tree else {}
    return {
        str(j): {
            "t": draft.texts[j],
            "id": draft.token_ids[j],
            "depth": draft.depths[j],
            "parent": draft.parents[j],
            "score": rounded_probability(draft.scores[j]),
            "q": rounded_probability(draft.qs[j]),
            "rank": draft.ranks[j],
            "accepted": verdict is not None
            and j in nodes
            and verdict.outcomes[nodes[j]] == "accepted",
            "in_tree": j in nodes or tree is None,
            "node": nodes.get(j, -1),
            "fed": tree is not None
            and bool(tree.origins)
            and was_fed(draft.drafter, draft.ranks[j]),
            "mass": round(node_weights[j], 4) if j in node_weights else None,
        }
        for j in range(len(draft.token_ids))
    }


def _node_weights(tree: Combined, draft: DraftRecord, nodes: Mapping[int, int]) -> dict[int, float]:
    """Index in the draft -> node weight, for kept and for dropped tokens."""
    if not tree.masses and not tree.dropped_masses:
        return {}
    # `masses` has an entry for each node of the tree, `dropped_masses` for each entry of `dropped`.
    weights = {j: tree.masses[node] for j, node in nodes.items()}
    pairs = zip(tree.dropped, tree.dropped_masses, strict=True)
    weights |= {j: weight for (name, j), weight in pairs if name == draft.drafter}
    if not combine_rule(tree.rule).is_pooled:
        return weights
    # A pool's node weight is a product along the path. Divided by the parent's weight, it is the
    # token's own.
    above = {j: weights.get(draft.parents[j], 1.0) for j in weights}
    return {j: weight / above[j] if above[j] else 0.0 for j, weight in weights.items()}


def _kept_counts(tree: Combined | None, drafts: tuple[DraftRecord, ...]) -> Value:
    """Numbers of nodes: `nodes` in the tree and `all` distinct drafted nodes; `longest`: the depth
    of the deepest draft."""
    if tree is None or not combine_rule(tree.rule).weighted:
        return {}
    drafted = {path for draft in drafts for path in draft_paths(draft)}
    longest = max((max(draft.depths, default=0) for draft in drafts), default=0)
    return {"nodes": len(tree.token_ids), "all": len(drafted), "longest": longest}


# -- in words --


def helped_words(view: View) -> str:
    """Which drafter helped most so far, by its accepted tokens; empty if nothing was drafted."""
    drafted = sorted(view.scoreboard.items(), key=lambda one: one[1], reverse=True)
    if not drafted:
        return ""
    (name, (accepted, proposed)), *others = drafted
    tokens = number_of(proposed, "token")
    counts = f"{accepted} of its {tokens} {_was(accepted)} accepted in this run"
    if not others:
        return f"{name} drafted alone: {counts}."
    equal = [other for other, (count, _) in others if count == accepted]
    if equal and not accepted:
        return f"No token that {join_names([name, *equal])} drafted was accepted in this run."
    if equal:
        each = f"{number_of(accepted, 'token')} each {_was(accepted)}"
        return f"{join_names([name, *equal])} helped most: {each} accepted."
    return f"{name} helped most: {counts}.{_higher_share(drafted)}"


def _higher_share(drafted: Sequence[tuple[str, tuple[int, int]]]) -> str:
    """Names the drafter with the highest accepted share, unless it is the first one in
    `drafted`."""
    shares = {name: accepted / max(1, proposed) for name, (accepted, proposed) in drafted}
    best = max(shares, key=lambda name: shares[name])
    if shares[best] <= shares[drafted[0][0]]:
        return ""
    accepted, proposed = dict(drafted)[best]
    return (
        f" Of the fewer tokens of {best} a higher share was accepted: {accepted} of {proposed}, "
        f"{100 * shares[best]:.0f} % against {100 * shares[drafted[0][0]]:.0f} %."
    )


def vote_in_short(detail: Detail | None) -> str:
    """Which drafter won the round's vote, and how many tokens of the others were dropped. Empty
    without a vote over sequences."""
    tree = detail.combined if detail else None
    if detail is None or tree is None or not combine_rule(tree.rule).chains or not tree.winner:
        return ""
    drafts = detail.drafted.drafts if detail.drafted else ()
    dropped = sum(drafter != tree.winner for drafter, _ in tree.dropped)
    lost = f"{number_of(dropped, 'token')} of the others {_was(dropped)}"
    split = deciding_split(tree, drafts)
    # Only the first split is named: later splits weigh fewer drafters.
    won = f"at {split}" if split else "no draft disagrees"
    words = f"{tree.winner}'s draft won the vote ({won}); {lost} dropped."
    return " ".join(filter(None, (words, dropped_choice(tree, drafts, detail.verified))))


def vote_sentence(view: View, detail: Detail | None) -> str:
    """The result of this round's vote or pool with its numbers; empty for rules without weights."""
    tree = detail.combined if detail else None
    if detail is None or tree is None or not combine_rule(tree.rule).weighted or not tree.weights:
        return ""
    drafts = detail.drafted.drafts if detail.drafted else ()
    drafting = [draft.drafter for draft in drafts if draft.token_ids]
    if not drafting:
        return "Nothing was drafted in this round: there was nothing to weigh."
    round_ = next(
        (round_ for round_ in reversed(view.rounds) if round_.number == detail.round), None
    )
    rule = combine_rule(tree.rule)
    if rule.chains:
        parts = _vote_words(tree, drafting, drafts)
    else:
        parts = [_result_words(tree, drafting, drafts)]
    parts += filter(None, [dropped_choice(tree, drafts, detail.verified)])
    if rule.chains and round_ and detail.verified:
        parts += _reward_words(view, detail, round_)
    elif detail.verified and view.speculation.get("weights") == "full_information":
        parts += _weight_words(view, detail, tree)
    return " ".join(parts)


def _vote_words(tree: Combined, drafting: list[str], drafts: tuple[DraftRecord, ...]) -> list[str]:
    total = sum(tree.weights.get(name, 0.0) for name in drafting)
    first = tree.masses[0] if tree.masses else 0.0
    num_common = _num_common([draft for draft in drafts if draft.token_ids])
    agree = len(drafting) > 2 and num_common > 0
    span = f"tokens 1 to {num_common}" if num_common > 1 else "token 1"
    sentences = [
        f"{tree.winner} won. All {len(drafting)} agree on {span}."
        if agree
        else f"{tree.winner} won: drafters with {first:.2f} of {total:.2f} of the weight proposed "
        "its first token."
    ]
    sentences += winner_reasons(tree, drafts)
    if len(drafting) == 2:
        sentences.append("With two drafters the heavier one wins unless they agree.")
    if len(drafting) == 1:
        sentences.append("It drafted alone, so there was no vote.")
    return sentences


def _num_common(drafts: Sequence[DraftRecord]) -> int:
    columns = zip(*(draft.token_ids for draft in drafts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _result_words(tree: Combined, drafting: list[str], drafts: tuple[DraftRecord, ...]) -> str:
    rule, counts = combine_rule(tree.rule), _kept_counts(tree, drafts)
    kept, drafted = counts["nodes"], counts["all"]
    sentence = rule.result_all if rule.result_all and kept == drafted else rule.result
    return sentence.format(
        kept=kept,
        drafted=drafted,
        nodes=number_of(kept, "node"),
        ssms=f"{len(drafting)} SSMs" if len(drafting) > 1 else drafting[0],
    )


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _reward_words(view: View, detail: Detail, round_: RoundView) -> list[str]:
    tree, verdict = detail.combined, detail.verified
    if tree is None or verdict is None or not round_.winner:
        return []
    num_accepted, drafted = len(verdict.path), len(tree.token_ids)
    accepted = f"{num_accepted} of its {drafted} tokens {_was(num_accepted)} accepted"
    if drafted == 1:
        accepted = f"Its only token was {'accepted' if num_accepted else 'rejected'}"
    if view.speculation.get("weights") != "paper" or detail.completed is None:
        return [f"{accepted}.", *_weight_words(view, detail, tree)]
    before = tree.weights.get(round_.winner, 0.0)
    after = detail.completed.weights.get(round_.winner, before)
    carried = view.speculation.get("carry_over")
    if not round_.votes and not carried:
        reason = "the first vote has no earlier vote to compare with, so weights do not change"
        return [f"{accepted}; {reason}."]
    # A mean that was carried over from earlier runs is not recorded.
    mean = "" if carried else f", {_against_mean(round_)}"
    change = f"{_change_words('its weight', before, after)}, after all are rescaled to mean 1"
    return [f"{accepted} ({percent(round_.share)}){mean}: {change}."]


def _against_mean(round_: RoundView) -> str:
    mean = f"the running mean of {percent(round_.mean_share)}"
    if abs(round_.share - round_.mean_share) < 1e-9:
        return f"equal to {mean}"
    return f"{'above' if round_.share > round_.mean_share else 'below'} {mean}"


def _weight_words(view: View, detail: Detail, tree: Combined) -> list[str]:
    earlier = (one for one in reversed(view.rounds) if one.number < detail.round and one.weights)
    last = next(earlier, None)
    before = last.weights if last else dict.fromkeys(tree.weights, 1.0)
    text = "the text since the round before" if last else "the prompt"
    return [f"By how well each SSM predicted {text}, {_largest_change(before, tree.weights)}."]


def _largest_change(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    # A drafter without an earlier weight began with 1.
    earlier = {name: before.get(name, 1.0) for name in after}
    moved = [name for name in after if _weight(earlier[name]) != _weight(after[name])]
    if moved:
        name = max(moved, key=lambda name: abs(after[name] - earlier[name]))
        most = ", the largest change" if len(moved) > 1 else ""
        return f"{_change_words(f'the weight of {name}', earlier[name], after[name])}{most}"
    heaviest = max(after, key=lambda name: after[name])
    if len(after) > 1 and after[heaviest] >= NEARLY_ALL * sum(after.values()):
        return f"no weight moved: {heaviest} has nearly all of it"
    return "no weight moved by as much as 0.01"


def _change_words(what: str, before: float, after: float) -> str:
    if _weight(before) == _weight(after):
        return f"{what} stays at {_weight(after)}"
    way = "rises" if after > before else "falls"
    return f"{what} {way} from {_weight(before)} to {_weight(after)}"


def _weight(weight: float) -> str:
    return "<0.01" if weight < 0.01 else f"{weight:.2f}"
