"""Lesson 11: an LLM that does not fit in memory, so that each pass waits for weights."""

from __future__ import annotations

from core.plurals import number_of
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence
from ui.learn.lessons.runs import ALL, DIALOGUE, NO_DRAFTERS, TREE_16

__all__ = ["FITTING"]

IN_MEMORY, STREAMED, TREE = "all in memory", "streamed", "streamed, with a tree"
MBPS, TOKENS = 200.0, 32
"""The rate at which layers are streamed, in MB/s; the most new tokens of each run."""


def tree_pass(evidence: Evidence) -> float | None:
    """How many times as long a streamed pass over a tree took as one over a single token."""
    rows = evidence.of(STREAMED, TREE)
    return rows[1].pass_ms / rows[0].pass_ms if rows else None


def explain_passes(evidence: Evidence) -> str:
    rows = evidence.of(STREAMED, TREE)
    assert rows is not None
    one, tree = rows
    return (
        f"A pass over one token took {one.pass_ms:.0f} ms, one over {tree.pass_tokens:.0f} tokens "
        f"{tree.pass_ms:.0f} ms: both fetch the same weights. The text needed "
        f"{number_of(tree.stats.num_rounds, 'pass')} instead of {one.stats.num_rounds}."
    )


FITTING = Lesson(
    key="fitting",
    title="An LLM that does not fit",
    short="Does not fit",
    text=(
        "A large LLM may be larger than the memory. Its weights then stay on a disk, and in every "
        "pass they are fetched again, one part after the other. The parts are called layers. While "
        "the LLM works with one layer, the next is on its way: the layers are streamed.",
        "Fetching takes longer than the work itself. So a pass takes as long as its weights need "
        "to arrive, whatever it does with them. One token costs as much as a whole tree.",
        "That is where drafts help most. Each accepted token saves a pass, and so a transfer of "
        "the whole LLM. Here the LLM does fit. So that you see it, the second run fetches its "
        "layers as slowly as from such a disk. The text stays the same.",
    ),
    look="In “When” the lane “layers” is busy all the time, and each pass of the LLM waits for "
    "it. The sentence beside them says how much a pass fetches, and how long that takes at least.",
    words=(
        Term("layer", "a part of the LLM; all are needed in each pass"),
        Term("streamed", "fetched again in each pass, while the LLM works"),
    ),
    example=(
        Setup(IN_MEMORY, DIALOGUE, NO_DRAFTERS, max_new_tokens=TOKENS),
        Setup(STREAMED, DIALOGUE, NO_DRAFTERS, max_new_tokens=TOKENS, stream_mbps=MBPS),
    ),
    attempt=Attempt(
        "Let all SSMs draft a tree, and fetch the layers just as slowly. Compare the time of a "
        "pass, and the number of passes.",
        "Run with a tree",
        Setup(TREE, DIALOGUE, ALL, TREE_16, max_new_tokens=TOKENS, stream_mbps=MBPS),
    ),
    question=Question(
        "With streamed layers: how many times as long did a pass over the tree take as one over a "
        "single token?",
        tree_pass,
        explain_passes,
        "In the table of runs, the column “ms / pass”: the third row by the second.",
        point="rows",
        needs="First run “Something to try”: it is the run with a tree.",
        unit="times",
        places=1,
        within=0.05,
    ),
    pictures=("figures", "strip", "timeline"),
    columns=("pass_nodes", "pass_ms", "num_rounds", "mean_acceptance_length"),
)
