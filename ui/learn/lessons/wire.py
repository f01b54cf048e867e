"""Lesson 12: small models on another machine, and the time that the connection to it costs."""

from __future__ import annotations

import operator

from core.plurals import number_of
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence, compare_repeats, time_words
from ui.learn.lessons.runs import DIALOGUE, DRAFT_4, DRAFT_12, ONE

__all__ = ["WIRE"]

NEAR, FAR, LONG = "beside the LLM", "over a wire", "over a wire, long drafts"
WIRE_MS, TOKENS = 20.0, 32


def added_ms(evidence: Evidence) -> float | None:
    """Milliseconds that the connection adds to a round, with drafts of the same length."""
    rows = evidence.of(NEAR, FAR)
    return compare_repeats(rows, "round_ms", operator.sub).value if rows else None


def explain_wire(evidence: Evidence) -> str:
    rows = evidence.of(NEAR, FAR)
    assert rows is not None
    near, far = rows
    return (
        f"A round took {time_words(near, 'round_ms')} beside the LLM and "
        f"{time_words(far, 'round_ms')} over the wire. Both needed "
        f"{number_of(far.stats.num_rounds, 'round')} for the same text: each round waits once for "
        "the wire."
    )


WIRE = Lesson(
    key="wire",
    title="A slow wire",
    short="Slow wire",
    text=(
        "The small models need not be on the machine of the LLM. Another machine can draft, and "
        "the drafts come over a wire. Then one server with a large LLM may have the help of many "
        "small ones.",
        "But each round has to wait for the wire: the request goes there, the draft comes back. "
        "That is a round trip. It takes its time whether the draft has one token or twelve.",
        "So over a slow wire a draft must bring more tokens to be worth the wait. If the trip "
        "takes longer than the passes that it saves, the LLM alone is faster. And if a machine "
        "does not answer in time, the round goes on without it. The text stays the same. Here all "
        "models are on one machine. So that you see it, the second run waits as if there were a "
        "wire.",
    ),
    look="In “When” the small model's lane has dotted bars: the way there and the way back. "
    "No model works meanwhile.",
    words=(
        Term("wire", "what connects two machines"),
        Term("round trip", "the way of a request there and of its answer back"),
    ),
    example=(
        Setup(NEAR, DIALOGUE, ONE, DRAFT_4, max_new_tokens=TOKENS),
        Setup(FAR, DIALOGUE, ONE, DRAFT_4, max_new_tokens=TOKENS, wire_ms=WIRE_MS),
    ),
    attempt=Attempt(
        "Ask for longer drafts over the same wire. Compare the number of rounds, and the tokens a "
        "second.",
        "Run with long drafts",
        Setup(LONG, DIALOGUE, ONE, DRAFT_12, max_new_tokens=TOKENS, wire_ms=WIRE_MS),
    ),
    question=Question(
        "With drafts of the same length: how many milliseconds longer did a round take over the "
        "wire?",
        added_ms,
        explain_wire,
        "In the table of runs, the column “ms / round”: the second row less the first.",
        point="rows",
        unit="ms",
        places=0,
        within=0.05,
    ),
    pictures=("figures", "strip", "timeline"),
    columns=("num_rounds", "mean_acceptance_length", "round_ms", "tokens_per_second"),
    timed=True,
)
