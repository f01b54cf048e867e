"""Which drafter serves which part of a text, and reasons of routing."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from core.events import RoundCompleted
from tests.family import SSMS
from tests.synthetic import Mechanisms, synthetic_run
from tests.ui.test_routing_values import run
from ui.run.frame import Frame
from ui.run.reasons import route_reason
from ui.run.routing_values import route_in_short, routing_value
from ui.run.text_parts import CHANGE, _best_parts, served_in_short, served_parts
from ui.run.values import picture_values
from ui.run.view import TokenView, View, detail_of, reduce_all
from ui.words.messages import run_lines

LETTERS = dict(zip(SSMS, "ABCDE", strict=True))


def worth(shares: list[list[float]], chosen: tuple[int, ...]) -> float:
    changes = sum(a != b for a, b in itertools.pairwise(chosen))
    return sum(own[i] for own, i in zip(shares, chosen, strict=True)) - CHANGE * changes


def test_no_other_cut_is_worth_more() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        shares = [[rng.choice([0.0, 0.5, 4.0]) for _ in range(2)] for _ in range(9)]
        parts = _best_parts(shares, 2)
        assert [first for first, _, _ in parts[1:]] == [end for _, end, _ in parts[:-1]]
        chosen = tuple(best for first, end, best in parts for _ in range(first, end))
        best = max(worth(shares, other) for other in itertools.product(range(2), repeat=9))
        assert worth(shares, chosen) == best


def test_rounds_that_accepted_nothing_stay_with_the_drafter_before() -> None:
    shares = [[3.0, 0.0]] * 4 + [[0.0, 0.0]] * 3 + [[0.0, 3.0]] * 4
    assert _best_parts(shares, 2) == [(0, 7, 0), (7, 11, 1)]


def text_of(owners: str) -> View:
    """`owners`: for each token, its drafter's letter, or `-` for the LLM's own token."""
    view = reduce_all(run())
    tokens = tuple(
        TokenView(i, f"w{i} ", f"w{i}", i // 4, "plain" if owner == "-" else "accepted", 0.5,
                  () if owner == "-" else (("ABCDE".index(owner), 0.5),))
        for i, owner in enumerate(owners)
    )  # fmt: skip
    return replace(view, tokens=tokens)


def test_a_text_that_changes_domain_has_two_parts() -> None:
    parts = served_parts(text_of("AAA-AAA-ABA-AAA-" + "EEE-EEE-EBE-EEE-"), SSMS)
    assert [(one["d"], one["from"], one["to"]) for one in parts.values()] == [
        ("0", 0, 3), ("4", 4, 7)
    ]  # fmt: skip
    first, second = (one["why"] for one in parts.values())
    assert first.startswith("11 of 12 accepted tokens are its; it was chosen to draft in ")
    assert second.startswith("11 of 12 accepted tokens are its; it was chosen to draft in ")
    assert parts["0"]["text"].startswith("“w0 w1 ") and parts["1"]["text"].startswith("“w16 w17 ")
    assert len(served_parts(text_of("AAA-BBB-AAA-"), SSMS)) == 1, "too short to be a part"
    assert served_parts(text_of("----"), SSMS)["0"]["why"] == "no drafted token was accepted here"


def test_the_notice_says_in_short_which_drafter_served_what() -> None:
    two = text_of("AAA-AAA-ABA-AAA-" + "EEE-EEE-EBE-EEE-")
    complete = Frame(view=two, run_id="x", ended=True, at_end=True)
    notices = [line.text for line in run_lines(complete) if "served" in line.text]
    first, second = (one["text"] for one in served_parts(two, SSMS).values())
    assert notices == [
        "Which drafter served which part of the text: A ssm-code from "
        f"{first} on and E ssm-stories from {second} on. Why: see “Who”."
    ]
    running = replace(complete, ended=False)
    assert not [line for line in run_lines(running) if "served" in line.text]
    one = served_in_short(served_parts(text_of("AAA-AAA-"), SSMS), LETTERS)
    assert "part of the text: A ssm-code, 6 of 6 accepted tokens. Why" in one
    parts = {str(i): {"d": str(i % 2), "text": f"“{i}”"} for i in range(5)}
    assert "from “2” on and 2 more parts. Why" in served_in_short(parts, LETTERS)
    plain = Frame(view=reduce_all(synthetic_run(8)), run_id="x", ended=True, at_end=True)
    assert not [line for line in run_lines(plain) if "served" in line.text]


def test_parts_are_shown_of_a_complete_run_with_routing() -> None:
    view = reduce_all(run())
    complete: dict[str, Any] = {"run_id": "x", "ended": True, "at_end": True}
    assert routing_value(Frame(view=view, **complete))["parts"]
    assert routing_value(Frame(view=view, run_id="x"))["parts"] == {}, "not while it runs"
    plain = reduce_all(synthetic_run(8, mechanisms=Mechanisms()))
    assert routing_value(Frame(view=plain, **complete))["parts"] == {}


def test_the_text_says_which_ssms_drafted_the_selected_round() -> None:
    events = run()
    view, detail = reduce_all(events), detail_of(events, 3)
    assert detail is not None and detail.completed is not None
    round_event: RoundCompleted = detail.completed
    frame = Frame(view=view, detail=detail, run_id="x", ended=True, at_end=True)
    sentence = picture_values(frame)["strip"]["said"]
    assert sentence == route_in_short(frame)
    assert sentence.startswith("Round 4: drafted by ") and sentence.endswith(
        f" Why? {route_reason(round_event.routing_reason, 3)}."
    )
    for one in round_event.routing:
        assert (one.drafter in sentence.split(" Why?")[0]) == (one.role in ("routed", "explored"))
    events = synthetic_run(8)
    frame = Frame(view=reduce_all(events), detail=detail_of(events, 3), run_id="x")
    assert picture_values(frame)["strip"]["said"] == ""


@pytest.mark.parametrize(
    ("recorded", "number", "words"),
    [
        (
            "1 accepted, fewer than 2: ssm-math tried for having drafted least; the batch grants 1",
            4,
            "the LLM accepted only 1 drafted token in the last round with drafts, so ssm-math "
            "(drafted least so far) may show what it can do; the scheduler allows 1 SSM",
        ),
        (
            "0 accepted, fewer than 2: ssm-code tried for having drafted least",
            0,
            "no SSM has drafted yet, so the first in order are tried",
        ),
        (
            "0 accepted, fewer than 2: ssm-code tried for having drafted least",
            6,
            "the LLM accepted no drafted token in the last round with drafts, so ssm-code (drafted "
            "least so far) may show what it can do",
        ),
        (
            "3 accepted: the best by score",
            7,
            "they have the highest scores; the LLM accepted 3 drafted tokens in the last round "
            "with drafts",
        ),
        (
            "nothing drafted yet: the first in order",
            6,
            "no SSM has drafted yet, so the first in order are tried",
        ),
        ("a for b: the text changed", 7, "a took the place of b: the text changed"),
        ("of another version", 7, "of another version"),
    ],
)
def test_recorded_reasons_are_reported_in_plain_words(
    recorded: str, number: int, words: str
) -> None:
    assert route_reason(recorded, number) == words


def test_every_recorded_reason_is_put_into_other_words() -> None:
    rounds = [
        event for event in run() if isinstance(event, RoundCompleted) and event.routing_reason
    ]
    reasons = [route_reason(event.routing_reason, event.round) for event in rounds]
    pairs = zip(reasons, rounds, strict=True)
    assert reasons and all(reason != event.routing_reason for reason, event in pairs)
