"""Lesson 13: an LLM divided between two ranks, and how often these exchange data."""

from __future__ import annotations

from core.plurals import number_of
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence
from ui.learn.lessons.runs import ALL, DIALOGUE, NO_DRAFTERS, TREE_16

__all__ = ["HALVES"]

ALONE, TREE = "one token a pass", "with a tree"
TOKENS = 32


def exchanges_with_a_tree(evidence: Evidence) -> float | None:
    """Exchanges for the whole text with a tree."""
    rows = evidence.of(ALONE, TREE)
    return float(rows[1].exchanges * rows[1].stats.num_rounds) if rows else None


def explain_exchanges(evidence: Evidence) -> str:
    rows = evidence.of(ALONE, TREE)
    assert rows is not None
    alone, tree = rows
    return (
        f"{number_of(tree.exchanges, 'exchange')} in each of "
        f"{number_of(tree.stats.num_rounds, 'pass')}. One token a pass took {alone.exchanges} in "
        f"each of {alone.stats.num_rounds}. A pass over the tree needs no more exchanges than a "
        "pass over one token: they only carry more numbers."
    )


HALVES = Lesson(
    key="halves",
    title="An LLM in halves",
    short="In halves",
    text=(
        "A large LLM may be too large for one machine, or too slow. Then it is divided. Here two "
        "programs have one half of each layer, and each does half of the multiplications. Such "
        "programs are called ranks.",
        "Neither half is of use alone. Twice in each layer the ranks add up what they have, and "
        "wait for each other until they have done so. Those are the exchanges.",
        "For a large LLM, half the work is worth the waiting. The bundled LLM is so small that "
        "plain decoding is slower in halves. Drafts help here too. Each accepted token saves a "
        "pass, and with it all its exchanges. The text is the same.",
    ),
    look="In “When” the sentence beside the lanes says how often the ranks exchanged something in "
    "the latest pass, how much, and how long that took.",
    words=(
        Term("rank", "a program with its part of the LLM"),
        Term("exchange", "the ranks add up what each has computed"),
    ),
    example=(Setup(ALONE, DIALOGUE, NO_DRAFTERS, max_new_tokens=TOKENS),),
    attempt=Attempt(
        "Let all SSMs draft a tree. Compare the number of exchanges in a pass, and the number of "
        "passes.",
        "Run with a tree",
        Setup(TREE, DIALOGUE, ALL, TREE_16, max_new_tokens=TOKENS),
    ),
    question=Question(
        "With the tree: how many exchanges did the whole text take?",
        exchanges_with_a_tree,
        explain_exchanges,
        "In the table of runs: “exchanges / pass” times LLM passes, in the second row.",
        point="rows",
        needs="First run “Something to try”: it is the run with a tree.",
        unit="exchanges",
        within=0.01,
    ),
    pictures=("figures", "strip", "timeline"),
    columns=("pass_tokens", "pass_ms", "exchanges", "exchange_ms", "num_rounds"),
    ranks=2,
)
