"""Lesson 10: several requests at once, and what a scheduler grants to each."""

from __future__ import annotations

from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence
from ui.learn.lessons.runs import ALL, CODE, DIALOGUE, STORY, TREE_4

__all__ = ["SHARING"]

EACH, SHARED, COSINE = "each for itself", "one budget", "in groups"
OTHERS = (STORY, CODE, "Question: What is twelve times three?\nAnswer:")


def left_out(evidence: Evidence) -> float | None:
    """Mean number of drafted tokens in a round that were not verified, with one budget."""
    rows = evidence.of(SHARED)
    return rows[0].num_drafted - rows[0].num_verified if rows else None


def nothing_drafted(evidence: Evidence) -> str:
    """Why the run with one budget drafted nothing; empty if it drafted."""
    rows = evidence.of(SHARED)
    if not rows or rows[0].num_drafted:
        return ""
    return (
        "With one budget nothing was drafted this time: the scheduler had measured that drafts do "
        "not pay on this machine now. There is nothing to share then; run the example again."
    )


def explain_left_out(evidence: Evidence) -> str:
    rows = evidence.of(SHARED)
    assert rows is not None
    if not rows[0].num_drafted:
        return "Nothing was drafted, so nothing could be left out."
    drafted, verified = f"{rows[0].num_drafted:.1f}", f"{rows[0].num_verified:.1f}"
    checked = f"In a round {verified} of {drafted} drafted tokens were checked."
    if verified == drafted:
        return checked
    return (
        f"{checked} The room of the others went to requests with likelier tokens, or was not worth "
        "its time."
    )


SHARING = Lesson(
    key="sharing",
    title="Sharing one LLM",
    short="Sharing",
    text=(
        "A server seldom works for one person. Several texts are asked for at once: each is a "
        "request. The LLM works on all of them in the same pass. If there are too many, the rest "
        "wait in a queue.",
        "Each request wants its drafts checked. But every token more makes the pass longer, and "
        "all requests wait for that pass. So one request's daring drafts slow the others down.",
        "A scheduler decides for all of them. It can leave each request to itself. Or it keeps one "
        "budget: of all drafted tokens it takes the likeliest, wherever they come from, as many as "
        "are worth their time. A request whose next words are easy to guess then gets more, one "
        "with surprising words less. If guessing does not pay at all, no request drafts. No text "
        "changes by this.",
    ),
    look="In “Requests” each row is a request. The full part of a bar are the drafted "
    "tokens that were checked, the hatched part those left out. The scheduler says why. After the "
    "run the rows are of the round that you select.",
    words=(
        Term("request", "one text that is asked for"),
        Term("queue", "where requests wait for their turn"),
        Term("scheduler", "decides how requests share the LLM"),
    ),
    example=(
        Setup(EACH, DIALOGUE, ALL, TREE_4, beside=OTHERS, schedule="each"),
        Setup(SHARED, DIALOGUE, ALL, TREE_4, beside=OTHERS, schedule="shared"),
    ),
    attempt=Attempt(
        "Another rule lets requests of like length take turns in groups, and drafts less while "
        "others wait. Watch “Requests” while it runs: which of them wait?",
        "Run in groups",
        Setup(COSINE, DIALOGUE, ALL, TREE_4, beside=OTHERS, schedule="cosine"),
    ),
    question=Question(
        "With one budget for all: how many of this request's drafted tokens were left out in a "
        "round?",
        left_out,
        explain_left_out,
        "In the table of runs, the row “one budget”: subtract the column “checked / round” from "
        "“drafted / round”.",
        point="rows",
        unit="tokens",
        places=1,
        within=0.05,
    ),
    pictures=("figures", "strip", "requests"),
    columns=("round_drafted", "round_verified", "mean_acceptance_length"),
    outcome=nothing_drafted,
)
