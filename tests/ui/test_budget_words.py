"""What `max_tree_nodes` came to, what it keeps drafts from, and who is left without a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import DRAFTERS, synthetic_run
from ui.run.budget import budget_words, nodeless, with_budget_bounds
from ui.run.frame import Frame
from ui.run.values import picture_values
from ui.run.view import View, detail_of, reduce_all

EVENTS = synthetic_run(8, seed=5)
VIEW = reduce_all(EVENTS)


def made(asked: Any, nodes: Any, view: View = VIEW, **fields: Any) -> View:
    """The run as if `max_tree_nodes` had been `asked` and had come to `nodes`."""
    started = view.started
    assert started
    plans = []
    for plan, most in ((started.asked, asked), (started.config, nodes)):
        told = {**plan["speculation"], "speculation_length": 8, **fields, "max_tree_nodes": most}
        plans.append({**plan, "speculation": told})
    return replace(view, started=replace(started, asked=plans[0], config=plans[1]))


def test_what_auto_came_to_is_said_to_be_measured_and_what_it_keeps_from() -> None:
    said = budget_words(made("auto", 2))
    assert said.startswith("max_tree_nodes=auto came to 2 nodes in this run: larger trees took ")
    assert "more than 1.5 times a plain pass when this machine was timed." in said
    assert "2 nodes for 3 drafters let drafts be 1 deep: speculation_length 8 is not " in said
    assert said.endswith(f"{DRAFTERS[2]} gets no node and drafts nothing.")
    one = budget_words(made("auto", 1))
    assert "came to 1 node in" in one and one.endswith(
        f"{DRAFTERS[1]} and {DRAFTERS[2]} get no node and draft nothing."
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"length": "goodput"}, "the largest tree that was timed: goodput finds its own length."),
        ({}, "the largest tree that was timed: it took at most 1.5 plain passes."),
    ],
)
def test_sixty_four_is_as_many_as_are_timed(fields: dict[str, Any], words: str) -> None:
    view = made("auto", 64, speculation_length=4, expansion=[1], **fields)
    assert budget_words(view) == f"max_tree_nodes=auto came to 64 nodes in this run, {words}"


def test_a_budget_that_keeps_from_nothing_and_none_are_not_talked_of() -> None:
    assert budget_words(made("uncut", "uncut")) == ""
    assert budget_words(made(64, 64, speculation_length=2)) == ""
    assert budget_words(made("auto", 1, length="fixed", speculation_length=0)) == ""
    assert budget_words(View()) == "" and nodeless(View()) == ()
    assert budget_words(made("auto", 8, unheard_of=1)) == "", "of another version"


def test_a_vote_shares_nothing() -> None:
    view = made(2, 2, combine="vote")
    assert nodeless(view) == ()
    assert (
        budget_words(view) == "2 nodes let drafts be 2 deep: speculation_length 8 is not reached."
    )
    assert nodeless(made(2, 2, length="goodput")) == (), "there a rule chooses who drafts"
    assert nodeless(made(2, 2, length="trend")) == (DRAFTERS[2],)


def test_the_line_of_the_lengths_is_what_the_budget_allows() -> None:
    lengths = {"rounds": {"0": {"a": 1, "d": 1, "s": 8}, "1": {"a": 2, "d": 2, "s": 8}}}
    told = with_budget_bounds(lengths, made("auto", 2))["rounds"]
    assert told["0"]["m"] == 1 and told["1"]["m"] == 2, "what was drafted, was allowed"
    free = with_budget_bounds(lengths, made("uncut", "uncut"))["rounds"]
    assert free == lengths["rounds"]
    shown = picture_values(Frame(view=made("auto", 2)))["lengths"]
    assert shown["budget"] == budget_words(made("auto", 2))
    found = with_budget_bounds(lengths, made("auto", 2, length="trend"))["rounds"]
    assert found == lengths["rounds"], "what a rule found is recorded as it was cut"


def test_an_empty_row_says_that_the_budget_has_no_node_for_it() -> None:
    view = made("auto", 2)
    detail = detail_of(EVENTS, 1)
    assert detail and detail.drafted
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {}, "here it drafted all the same"
    drafted = replace(detail.drafted, drafts=detail.drafted.drafts[:2])
    detail = replace(detail, drafted=drafted)
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {"2": "no node for it: max_tree_nodes is 2, for 3 drafters"}
