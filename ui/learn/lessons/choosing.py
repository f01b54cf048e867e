"""Lessons 4 to 6: which draft is verified, why the text stays the same, how far to draft."""

from __future__ import annotations

import operator

from core.config import SpeculationConfig
from core.plurals import number_of
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence, compare_repeats, every_repeat, leader, ranked_words
from ui.learn.lessons.runs import ALL, CODE, DIALOGUE, DRAFT_8, FORK_4, ONE, STORY

__all__ = ["ACCEPTANCE", "LENGTH", "VOTE"]

# `full_information`: if only winners were judged, chance would decide which SSM leads.
VOTING = SpeculationConfig(
    expansion=(1,),
    speculation_length=4,
    max_tree_nodes=64,
    combine="vote",
    weights="full_information",
)
TIE_DIFFERENCE = 0.005
"""Weights that differ by less count as equal, because the page shows two decimals."""
TIE = "none: the largest weights are level"


def heaviest(evidence: Evidence) -> str | None:
    """The SSM with the largest weight at the run's end; TIE for a tie; None without weights."""
    if evidence.last is None or not evidence.last.weights:
        return None
    return leader(evidence.last.weights, TIE_DIFFERENCE) or TIE


def explain_weights(evidence: Evidence) -> str:
    assert evidence.last is not None
    leading = heaviest(evidence)
    better = "None foresaw this text better."
    why = better if leading == TIE else f"{leading} foresaw this text best."
    return f"The weights at the end: {ranked_words(evidence.last.weights, 2)}. {why}"


VOTE = Lesson(
    key="vote",
    title="Several models vote",
    short="The vote",
    text=(
        "Several SSMs can draft for one LLM, and each may know another kind of text best. All "
        "drafts could be checked together as one tree. But then the LLM's pass has many nodes. A "
        "vote picks a single draft instead.",
        "Each SSM has a weight: how much its draft counts. (These weights have nothing to do with "
        "those inside of a model.) The vote goes from place to place. At each, every drafted token "
        "gets the weights of the SSMs that propose it, and the heaviest token is taken. Only SSMs "
        "that proposed all tokens taken so far still vote. At the end one draft has won, and only "
        "this one is checked.",
        "Weights follow the text, including the beginning that we gave it. For each token every "
        "SSM is judged, also one that lost: how probable had it held this token? One that foresaw "
        "it better than the others gains weight. (The preset minions judges the winner alone.)",
    ),
    look="“Who” shows every SSM's draft in the selected round. ★ marks the winner, "
    "the number beside each name is its weight. The chart has a line for each SSM: its weight, "
    "round by round.",
    words=(
        Term("vote", "picks one of several drafts, by the weights of the SSMs that agree"),
        Term("weight of an SSM", "how much its draft counts in a vote"),
    ),
    example=(Setup("a dialogue", DIALOGUE, ALL, VOTING),),
    attempt=Attempt(
        "Let the same SSMs vote on program code. Does another one gain influence?",
        "Run with program code",
        Setup("program code", CODE, ALL, VOTING),
    ),
    question=Question(
        "Which SSM has the largest weight at the end of the run shown?",
        heaviest,
        explain_weights,
        "In “Who” the chart “Weights over the rounds” has a line for each SSM, "
        "with its letter. Which line is highest at the right end?",
        point="proposals",
        numeric=False,
        besides=(TIE,),
    ),
    pictures=("figures", "strip", "proposals"),
    columns=("num_new_tokens", "num_rounds", "mean_acceptance_length"),
    ssms=2,
)


def own_tokens(evidence: Evidence) -> float | None:
    """Tokens of the displayed run that the LLM wrote itself."""
    return float(evidence.last.own) if evidence.last else None


def explain_own(evidence: Evidence) -> str:
    assert evidence.last is not None
    own, rounds = evidence.last.own, evidence.last.stats.num_rounds
    each = ": one in each" if own == rounds else ""
    wrote = f"{number_of(own, 'token')} itself in {number_of(rounds, 'round')}"
    return f"The LLM wrote {wrote}{each}. The rest was accepted."


ACCEPTANCE = Lesson(
    key="acceptance",
    title="Why the text is unchanged",
    short="Same text",
    text=(
        "For each place the LLM works out how probable every token is. At temperature 0 it writes "
        "the most probable one. Above 0 it draws one at random: probable tokens often, others "
        "seldom. A higher temperature draws unusual tokens more often: fewer drafted ones "
        "are accepted.",
        "The random numbers are fixed beforehand by a number called the seed. So with one seed "
        "there is exactly one token that the LLM writes at a place, whether anybody has guessed or "
        "not. A drafted token is accepted only if it is this very token. Otherwise it is rejected, "
        "and the LLM's token is written in its place.",
        "That is why the text is unchanged. Drafts decide how fast it comes, never what it says. "
        "Other rules of acceptance draw new random numbers for every draft. Their text can differ, "
        "but each text is just as probable as with the LLM alone.",
    ),
    look="Click a node of the tree. “Why” shows what the LLM and the SSMs thought of "
    "it, and why it was accepted or rejected.",
    words=(
        Term("temperature", "how freely tokens are drawn; at 0 the most probable is taken"),
        Term("seed", "a number that fixes all random numbers of a run beforehand"),
        Term("rejected", "a drafted token that is not the LLM's; the LLM's is written instead"),
    ),
    example=(Setup("temperature 0.8", STORY, ALL, FORK_4, temperature=0.8),),
    attempt=Attempt(
        "Let the LLM write alone, with the same prompt and seed, and compare token by token.",
        "Compare the texts",
    ),
    question=Question(
        "How many tokens of the text shown did the LLM write itself?",
        own_tokens,
        explain_own,
        "Below the race, “accepted / pass” tells on hover how many tokens were accepted in all. "
        "Subtract them from the tokens. How many are left for each round?",
        point="figures",
        unit="tokens",
    ),
    pictures=("figures", "strip", "tree", "inspector"),
    columns=("num_new_tokens", "num_rounds", "mean_acceptance_length"),
)

ALWAYS, CHOSEN = "always 8", "goodput"
"""Labels of the runs with the fixed length and with the length that goodput chooses."""
PLACE = 3


def third_token_percent(evidence: Evidence) -> float | None:
    """The percentage of rounds with the fixed length that accepted the third drafted token."""
    rows = evidence.of(ALWAYS)
    if not rows:
        return None
    rates = rows[0].stats.acceptance_rate_per_position
    return 100 * rates[PLACE - 1] if len(rates) >= PLACE else 0.0


def explain_places(evidence: Evidence) -> str:
    rows = evidence.of(ALWAYS)
    assert rows is not None
    rates = [f"{100 * rate:.0f} %" for rate in rows[0].stats.acceptance_rate_per_position]
    return f"From the first place on: {', '.join(rates) or 'none was accepted'}. It never rises."


def slower_choice(evidence: Evidence) -> str:
    """Says that the fixed length was faster in each repeat; else empty."""
    rows = evidence.of(ALWAYS, CHOSEN)
    if rows is None:
        return ""
    ratio = compare_repeats(rows, "tokens_per_second", operator.truediv)
    if ratio.groups < 2 or ratio.high >= 1:
        return ""
    return (
        f"Here the fixed length was faster {every_repeat(ratio)}: it happens to suit this text, "
        "and goodput has to find out by measuring what does."
    )


LENGTH = Lesson(
    key="length",
    title="Choosing a length",
    short="Length",
    text=(
        "How many tokens should a draft have? This number is the speculation length. Each further "
        "token costs one more pass of the SSM and makes the pass of the LLM longer. And it is ever "
        "less likely to be used: it is accepted only if all tokens before it are.",
        "If drafts are too short, the LLM's passes are not used well. If they are too long, the "
        "drafting is in vain. Which length is best depends on the models, the machine and the "
        "text, and it changes within one text.",
        "So a rule can choose it while the text is written. The rule called goodput measures how "
        "often drafts are accepted, and how long drafting and checking take. It drafts one token "
        "more only if the text is then expected to come faster. It may also choose 0, and nothing "
        "is drafted. Confidence is simpler: a draft ends where its SSM is not sure of its "
        "own token.",
    ),
    look="The bars are accepted tokens, round by round; the dotted line is the length. “Rate by "
    "position” says how often the first, second, third drafted token was accepted.",
    words=(
        Term("speculation length", "how many tokens a draft has at most"),
        Term("goodput", "a rule that chooses the length by measured times and acceptance"),
        Term("confidence", "a rule that ends a draft where its SSM is not sure of its own token"),
    ),
    example=(Setup(ALWAYS, DIALOGUE, ONE, DRAFT_8, max_new_tokens=64),),
    attempt=Attempt(
        "Let goodput choose the length. It first measures the LLM's passes, once for each start of "
        "the program. Is the text written faster?",
        "Run with goodput",
        Setup(
            CHOSEN,
            DIALOGUE,
            ONE,
            SpeculationConfig(expansion=(1,), length="goodput", max_tree_nodes=64),
            max_new_tokens=64,
        ),
    ),
    question=Question(
        "With the fixed length of 8, in how many per cent of the rounds was the third drafted "
        "token accepted?",
        third_token_percent,
        explain_places,
        "With the run “always 8” shown (press its name in the table of runs): the third bar "
        "of “Rate by position” in “Length”. Its table, behind the "
        "button “Table”, has the number.",
        point="lengths",
        unit="%",
        within=0.03,
    ),
    pictures=("figures", "strip", "lengths"),
    columns=("num_rounds", "mean_acceptance_length", "tokens_per_second"),
    timed=True,
    outcome=slower_choice,
)
