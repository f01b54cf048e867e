"""What decided a vote: where the sequences part, and why the winner is named."""

from __future__ import annotations

import pytest

from core.events import Combined, DraftRecord
from tests.synthetic import Mechanisms, synthetic_run
from ui.run.decided import winner_reasons
from ui.run.view import detail_of, reduce_all
from ui.run.votes import vote_sentence

A, B, C = "ssm-a", "ssm-b", "ssm-c"


def draft(name: str, text: str) -> DraftRecord:
    """A sequence of one token a letter."""
    n = len(text)
    ids, ones = tuple(map(ord, text)), (1.0,) * n
    chain = (tuple(range(-1, n - 1)), tuple(range(1, n + 1)))
    return DraftRecord(name, ids, tuple(text), *chain, ones, ones, (0,) * n, False, ())


def said(texts: dict[str, str], weights: tuple[float, ...], winner: str) -> str:
    drafts = [draft(name, text) for name, text in texts.items()]
    told = dict(zip(texts, weights, strict=True))
    tree = Combined("r", 0, 0.0, 0, (), (), (), (), (), (), 0, "", weights=told, winner=winner)
    return " ".join(winner_reasons(tree, drafts))


@pytest.mark.parametrize(
    ("texts", "weights", "winner", "words"),
    [
        # Everybody proposed the first token; only one went on.
        (
            {A: "s", B: "sl", C: "s"},
            (0.0, 0.002, 3.0),
            B,
            "No draft disagrees with it, but the other drafts end behind token 1 or before, and it "
            "goes on.",
        ),
        (
            {A: "s", B: "sl"},
            (1.0, 1.0),
            B,
            "No draft disagrees with it, but the other draft ends behind token 1, and it goes on.",
        ),
        (
            {A: "xy", B: "xz", C: "xz"},
            (1.5, 0.8, 0.7),
            B,
            "The sequences part at token 2: 1.50 behind “z”, 1.50 behind “y”, a tie, which goes to "
            "the heavier single SSM, then to the one named first. Of the 2 SSMs that drafted it "
            "ssm-b is the heaviest.",
        ),
        (
            {A: "xy", B: "xz", C: "w"},
            (1.2, 0.998, 0.002),
            A,
            "The sequences part at token 1: 2.20 behind “x”, <0.01 behind “w”, then at token 2: "
            "1.20 behind “y”, 1.00 behind “z”.",
        ),
        (
            {A: "xy", B: "xy", C: "xy"},
            (1.0, 1.0, 1.0),
            A,
            "All drafted the same. Of the 3 SSMs that drafted it ssm-a is the first of equal "
            "weight.",
        ),
        (
            {A: "xy", B: "zw", C: "xy"},
            (1.2, 1.0, 0.8),
            A,
            "The sequences part at token 1: 2.00 behind “x”, 1.00 behind “z”. Of the 2 SSMs that "
            "drafted it ssm-a is the heaviest.",
        ),
        ({A: "xy", B: ""}, (1.0, 1.0), A, ""),
    ],
)
def test_what_decided_is_told(
    texts: dict[str, str], weights: tuple[float, ...], winner: str, words: str
) -> None:
    assert said(texts, weights, winner) == words


def test_a_tie_of_the_last_step_only_is_named_there() -> None:
    told = said({A: "xy", B: "xz", C: "xyw"}, (0.5, 1.0, 0.5), A)
    assert told.count("a tie") == 1


def test_the_sentence_of_a_round_tells_it() -> None:
    events = synthetic_run(12, seed=5, mechanisms=Mechanisms("vote", "goodput", "ahead"))
    view = reduce_all(events)
    told = 0
    for number in range(12):
        detail = detail_of(events, number)
        assert detail and detail.combined and detail.drafted
        why = winner_reasons(detail.combined, detail.drafted.drafts)
        assert all(part in vote_sentence(view, detail) for part in why)
        told += bool(why)
    assert told > 6
