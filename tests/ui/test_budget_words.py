"""The page's sentences about a run's node budget (`max_tree_nodes`)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from core.events import RoundCompleted
from tests.synthetic import DRAFTERS, Mechanisms, synthetic_run
from ui.run.budget import budget_words, nodeless, with_budget_bounds
from ui.run.frame import Frame
from ui.run.player import Pace
from ui.run.scrubber import scrubber_value
from ui.run.values import picture_values
from ui.run.view import View, detail_of, reduce_all


@cache
def view_of_eight() -> View:
    return reduce_all(synthetic_run(8, seed=5))


def with_budget(asked: Any, nodes: Any, view: View | None = None, **fields: Any) -> View:
    """The run as if `max_tree_nodes` had been set to `asked` and resolved to `nodes`."""
    view = view or view_of_eight()
    started, plans = view.started, []
    for plan, most in ((started.asked, asked), (started.config, nodes)):
        spec = {**plan["speculation"], "speculation_length": 8, **fields, "max_tree_nodes": most}
        plans.append({**plan, "speculation": spec})
    return replace(view, started=replace(started, asked=plans[0], config=plans[1]))


def test_the_value_of_auto_is_called_measured_and_its_effects_are_named() -> None:
    words = budget_words(with_budget("auto", 2))
    assert words.startswith(
        "max_tree_nodes=auto resolved to 2 nodes in this run: larger trees took "
    )
    assert "more than 1.5 times a plain pass when this machine was timed." in words
    assert "2 nodes for 3 drafters let drafts be 1 deep: speculation_length 8 is not " in words
    assert words.endswith(f"{DRAFTERS[2]} gets no node and drafts nothing.")
    one_node_words = budget_words(with_budget("auto", 1))
    assert "resolved to 1 node in" in one_node_words
    assert one_node_words.endswith(
        f"{DRAFTERS[1]} and {DRAFTERS[2]} get no node and draft nothing."
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"length": "goodput"},
            "the largest tree that was timed: within it goodput chooses the length.",
        ),
        ({}, "the largest tree that was timed: it took at most 1.5 plain passes."),
    ],
)
def test_sixty_four_nodes_are_the_largest_tree_that_was_timed(
    fields: dict[str, Any], words: str
) -> None:
    view = with_budget("auto", 64, speculation_length=4, expansion=[1], **fields)
    assert budget_words(view) == f"max_tree_nodes=auto resolved to 64 nodes in this run, {words}"


def test_a_budget_without_effect_is_not_mentioned_and_a_vote_does_not_divide_it() -> None:
    assert budget_words(with_budget("uncut", "uncut")) == ""
    assert budget_words(with_budget(64, 64, speculation_length=2)) == ""
    assert budget_words(with_budget("auto", 1, length="fixed", speculation_length=0)) == ""
    assert budget_words(View()) == "" and nodeless(View()) == ()
    assert budget_words(with_budget("auto", 8, unheard_of=1)) == "", "a setting of another version"
    view = with_budget(2, 2, combine="vote")
    assert nodeless(view) == ()
    words = budget_words(view)
    assert words == "2 nodes let drafts be 2 deep: speculation_length 8 is not reached."
    assert nodeless(with_budget(2, 2, length="goodput")) == (), "goodput chooses which SSMs draft"
    assert nodeless(with_budget(2, 2, length="trend")) == (DRAFTERS[2],)


def test_the_line_of_speculation_lengths_is_what_the_budget_allows() -> None:
    lengths = {"rounds": {"0": {"a": 1, "d": 1, "s": 8}, "1": {"a": 2, "d": 2, "s": 8}}}
    bounds = with_budget_bounds(lengths, with_budget("auto", 2))["rounds"]
    assert bounds["0"]["m"] == 1 and bounds["1"]["m"] == 2, "a length that was drafted was allowed"
    assert with_budget_bounds(lengths, with_budget("uncut", "uncut"))["rounds"] == lengths["rounds"]
    shown = picture_values(Frame(view=with_budget("auto", 2)))["lengths"]
    view = with_budget("auto", 2)
    assert shown["deep"] and shown["deep"] in budget_words(view)
    assert shown["budget"] == budget_words(view).replace(f"{shown['deep']} ", "")
    dots = scrubber_value(Frame(view=with_budget("auto", 2)), Pace(), False)["rounds"]
    assert {
        number: (one["a"], one.get("m", one["s"])) for number, one in shown["rounds"].items()
    } == {number: (one["a"], one["s"]) for number, one in dots.items()}
    assert all(one["s"] < 8 for one in dots.values())
    result = with_budget_bounds(lengths, with_budget("auto", 2, length="trend"))["rounds"]
    assert result == lengths["rounds"], (
        "a length that a rule chose is recorded as cut by the budget"
    )


def test_where_the_text_ends_line_dots_and_sentence_give_the_same_depth() -> None:
    ends = "drafts are at most 1 deep (the text ends after 2 more)"
    events = synthetic_run(8, seed=5)
    view = with_budget(64, 64, view=reduce_all(events), length="fixed")
    rounds = [replace(one, length=8, next_length=8, depth=1) for one in view.rounds]
    rounds[6] = replace(rounds[6], length_reason=ends)
    frame = Frame(view=replace(view, rounds=tuple(rounds)), detail=detail_of(events, 7))
    shown = picture_values(frame)["lengths"]
    assert ends in shown["why"] and shown["deep"] == "", "no second depth is given"
    assert (shown["rounds"]["7"]["m"], shown["rounds"]["7"]["b"]) == (1, ends)
    assert "b" not in shown["rounds"]["6"]
    dots = scrubber_value(frame, Pace(), False)["rounds"]
    assert dots["7"]["s"] == 1 < dots["6"]["s"]


def test_the_panel_of_lengths_mentions_the_node_budget_once() -> None:
    bound = "drafts are at most 1 deep (max_tree_nodes is 2, for 3 drafters)"
    events = [
        replace(one, length_reason=bound) if isinstance(one, RoundCompleted) else one
        for one in synthetic_run(8, seed=5)
    ]
    view = with_budget(2, 2, view=reduce_all(events), length="fixed")
    shown = picture_values(Frame(view=view, detail=detail_of(events, 3)))["lengths"]
    assert bound in shown["why"] and (shown["reason"], shown["deep"]) == ("", "")
    assert shown["budget"] == f"{DRAFTERS[2]} gets no node and drafts nothing."
    # Before the round is complete, the panel gives the depth.
    early = picture_values(Frame(view=view, detail=detail_of(events[:-3], 7)))["lengths"]
    assert early["why"] == ""
    assert early["deep"].startswith("2 nodes for 3 drafters let drafts be 1 deep")


def test_an_empty_row_says_that_the_budget_has_no_node_for_it() -> None:
    view, detail = with_budget("auto", 2), detail_of(synthetic_run(8, seed=5), 1)
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {}, "this drafter drafted in this round"
    detail = replace(detail, drafted=replace(detail.drafted, drafts=detail.drafted.drafts[:2]))
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {"2": "no node for it: max_tree_nodes is 2, for 3 drafters"}


def test_an_empty_row_says_that_a_rule_did_not_choose_its_drafter() -> None:
    view, detail = with_budget("auto", 2, length="goodput"), detail_of(synthetic_run(8, seed=5), 1)
    detail = replace(detail, drafted=replace(detail.drafted, drafts=detail.drafted.drafts[:2]))
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {"2": "not chosen to draft"}


def test_with_routing_the_budget_is_divided_among_as_many_ssms_as_are_routed() -> None:
    view = with_budget(2, 2, routing="credit", routed_drafters=1)
    assert nodeless(view) == ()
    words = "2 nodes let drafts be 2 deep: speculation_length 8 is not reached."
    assert budget_words(view) == words
    two = with_budget(2, 2, routing="cosine", routed_drafters=2)
    assert budget_words(two).startswith("2 nodes for 2 drafters let drafts be 1 deep")
    assert nodeless(with_budget(2, 2, draft="fused")) == (), "fused SSMs draft one trunk together"
    events = synthetic_run(9, seed=5, mechanisms=Mechanisms(routing="cosine"))
    detail = detail_of(events, 1)
    assert detail is not None and detail.completed is not None
    waiting = [one.drafter for one in detail.completed.routing if one.role == "waiting"]
    shown = picture_values(Frame(view=reduce_all(events), detail=detail))["proposals"]["nodeless"]
    assert shown == {str(DRAFTERS.index(name)): "left out by routing" for name in waiting} != {}
