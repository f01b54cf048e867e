"""Lessons 7 and 8: drafting while the LLM verifies, and when speculation does not pay."""

from __future__ import annotations

import operator

from core.config import SpeculationConfig
from lab.figures import Estimate
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence, compare_repeats, every_repeat, time_words
from ui.learn.lessons.runs import (
    AHEAD_4,
    ALL_AND_NGRAM,
    CODE,
    DIALOGUE,
    DRAFT_4,
    DRAFT_12,
    NO_DRAFTERS,
    ONE,
)
from ui.words.spreads import range_words

__all__ = ["LOSES", "PIPELINE"]

TURNS, AHEAD = "one after the other", "draft ahead"


def hits(evidence: Evidence) -> float | None:
    """The number of drafts made ahead that were used."""
    rows = evidence.of(AHEAD)
    return float(rows[0].num_hits) if rows else None


def explain_hits(evidence: Evidence) -> str:
    rows = evidence.of(TURNS, AHEAD)
    ahead_rows = evidence.of(AHEAD)
    assert ahead_rows is not None
    ahead = ahead_rows[0]
    hit = f"{ahead.num_hits} of {ahead.num_ahead} drafts that were begun ahead could be used."
    if rows is None:
        return hit
    before, after = (time_words(row, "round_ms") for row in rows)
    return f"{hit} A round took {after} instead of {before}."


def longer_rounds(evidence: Evidence) -> str:
    """Why drafting ahead made rounds longer, if it did in each repeat; else empty."""
    rows = evidence.of(TURNS, AHEAD)
    if rows is None:
        return ""
    ratio = compare_repeats(rows, "round_ms", operator.truediv)
    if ratio.groups < 2 or ratio.low <= 1:
        return ""
    return (
        f"Here a round became longer {every_repeat(ratio)}: both models share this machine's "
        "cores and memory, and drafts that are not used take time as well."
    )


PIPELINE = Lesson(
    key="pipeline",
    title="The pipeline",
    short="Pipeline",
    text=(
        "So far one model always waits for the other. While the SSM drafts, the LLM is idle; while "
        "the LLM checks, the SSM is. In a pipeline both work at the same time.",
        "The difficulty: while the LLM checks a draft, nobody knows yet how much of it will be "
        "accepted, so nobody knows where the next draft begins. The SSM guesses this as well. It "
        "takes the likeliest results of the check and begins the next draft behind each of them. "
        "If one of these results comes true, the next draft is already there. That is a hit. If "
        "none does, the work was in vain: a miss.",
        "Both models share one machine. While the SSM works beside it, the LLM's pass may take "
        "longer. So whether a pipeline saves time depends on the machine, and has to be measured.",
    ),
    look="In “When” each model has a lane, and time runs to the right. In the example the "
    "SSM's bars and the LLM's bars never lie above each other: they take turns.",
    words=(
        Term("pipeline", "the SSM drafts while the LLM checks"),
        Term("hit", "a draft begun ahead that can be used"),
        Term("miss", "a draft begun ahead for a text that did not come"),
    ),
    example=(Setup(TURNS, DIALOGUE, ONE, DRAFT_4),),
    attempt=Attempt(
        "Let the SSM draft for the next round while the LLM checks. Do the bars overlap now, and "
        "did a round become shorter?",
        "Run with drafting ahead",
        Setup(AHEAD, DIALOGUE, ONE, AHEAD_4),
    ),
    question=Question(
        "With drafting ahead: how many hits were there?",
        hits,
        explain_hits,
        "With the run “draft ahead” shown: the sentence “Drafted ahead: …” beside the lanes "
        "of “When”.",
        point="timeline",
        needs="First run “Something to try”: it is the run that drafts ahead.",
        unit="hits",
    ),
    pictures=("figures", "strip", "timeline"),
    columns=("mean_acceptance_length", "round_ms"),
    timed=True,
    outcome=longer_rounds,
)

KNOWS_TEXT_FROM = 0.3
"""From this acceptance rate on, the SSM is said to know the text."""
PLAIN, LONG, BEST = "LLM alone", "drafts of 12", "goodput decides"


def _need(evidence: Evidence) -> Estimate | None:
    """How many tokens a round with drafts of 12 has to write to be as fast as the LLM alone."""
    rows = evidence.of(PLAIN, LONG)
    return compare_repeats(rows, "round_ms", operator.truediv) if rows else None


def needed_tokens(evidence: Evidence) -> float | None:
    need = _need(evidence)
    return need.value if need else None


def _tokens_a_round(evidence: Evidence) -> float:
    stats = evidence.rows[LONG].stats
    return stats.num_new_tokens / stats.num_rounds


def explain_need(evidence: Evidence) -> str:
    need, tokens = _need(evidence), _tokens_a_round(evidence)
    assert need is not None
    needed = f"A round needed {need.value:.1f} tokens ({range_words(need, 1)})"
    words = f"{needed} to be as fast as the LLM alone, and wrote {tokens:.1f}"
    if need.groups < 2:
        return f"{words}."
    if tokens > need.high:
        return f"{words}: it was faster."
    return f"{words}: it was slower." if tokens < need.low else f"{words}: no difference is shown."


def win_or_loss(evidence: Evidence) -> str:
    """Whether the example lost; if it won, why. Gives no times: they would tell the answer."""
    need = _need(evidence)
    if need is None or need.groups < 2:
        return ""
    tokens = _tokens_a_round(evidence)
    if tokens < need.low:
        return (
            f"Here it loses {every_repeat(need)}: in the time of a round the LLM alone writes more "
            "tokens."
        )
    if tokens <= need.high:
        return "Here no difference is shown: the repeats do not agree on which is faster."
    rate = evidence.rows[LONG].stats.draft_acceptance_rate
    why = (
        f"the SSM knows this text better than expected, {100 * rate:.0f} % of the "
        "drafts' depth was accepted"
        if rate >= KNOWS_TEXT_FROM
        else "drafting costs this machine little beside a pass of the LLM"
    )
    return (
        f"Here it wins {every_repeat(need)}, though it is made to lose: in the time of a round the "
        f"LLM alone writes fewer tokens, since {why}."
    )


LOSES = Lesson(
    key="loses",
    title="When speculation loses",
    short="When it loses",
    text=(
        "Guessing is not free. A round takes longer than writing one token without a draft: the "
        "SSM has to write the draft, and the LLM's pass has more tokens in it. In return a round "
        "writes more tokens. It comes down to one comparison. If a round takes as long as 3 tokens "
        "of the LLM alone, it has to write more than 3.",
        "So speculation, as all this guessing is called, loses in three cases: the SSM seldom "
        "agrees with the LLM, the drafts are too long, or the SSM is not much faster than the LLM. "
        "The text is right even then. Only time is lost.",
        "The example is made to lose: drafts of 12 tokens, for program code, by an SSM that may "
        "know little about it. Before it the LLM writes the same text alone. Your measurement says "
        "whether it really loses here.",
    ),
    look="The table of runs: the time of a round, and the tokens that it wrote. Where the second "
    "run was slower, point at the line beside the tabs below: it says what took the time.",
    words=(Term("speculation", "writing ahead by guesses that are then checked"),),
    example=(
        Setup(PLAIN, CODE, NO_DRAFTERS),
        Setup(LONG, CODE, ONE, DRAFT_12),
    ),
    attempt=Attempt(
        "Let goodput, the rule of lesson 6, decide which models draft, and how far. It may decide "
        "to draft nothing.",
        "Run with goodput",
        Setup(
            BEST,
            CODE,
            ALL_AND_NGRAM,
            SpeculationConfig(length="goodput", max_tree_nodes=64),
        ),
    ),
    question=Question(
        "How many tokens must a round with drafts of 12 write to be as fast as the LLM alone?",
        needed_tokens,
        explain_need,
        "Divide in the column “ms / round” of the table of runs: drafts of 12 by LLM alone. The "
        "LLM alone writes one token a round.",
        point="rows",
        unit="tokens",
        places=1,
        within=0.05,
    ),
    pictures=("figures", "strip", "lengths"),
    columns=("mean_acceptance_length", "round_ms", "tokens_per_second"),
    timed=True,
    outcome=win_or_loss,
)
