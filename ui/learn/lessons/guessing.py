"""Lessons 1 to 3: why guessing helps, drafts of one small model, a tree of drafts."""

from __future__ import annotations

import operator

from core.plurals import number_of
from lab.figures import Estimate
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence, compare_repeats
from ui.learn.lessons.runs import (
    CODE,
    DIALOGUE,
    DRAFT_4,
    DRAFT_5,
    NO_DRAFTERS,
    ONE,
    PASS_8,
    PASS_16,
    STORIES,
    STORY,
    TREE_4,
)
from ui.words.spreads import range_words

__all__ = ["MEMORY_BOUND", "ONE_SSM", "TREE"]

# A pass over more tokens cannot be faster. Repeated measurements differ by a few percent; a ratio
# below MIN_RATIO means that the measurement was disturbed.
MIN_RATIO = 0.95
ALONE, EIGHT, SIXTEEN = "1 token in a pass", "8 tokens in a pass", "16 tokens in a pass"


def _pass_ratio(evidence: Evidence) -> Estimate | None:
    """The time of a pass over 8 tokens as a multiple of the time of a pass over 1 token."""
    rows = evidence.of(ALONE, EIGHT)
    return compare_repeats(rows, "pass_ms", operator.truediv) if rows else None


def pass_ratio_value(evidence: Evidence) -> float | None:
    """The value of `_pass_ratio`, without its range."""
    ratio = _pass_ratio(evidence)
    return ratio.value if ratio else None


def explain_passes(evidence: Evidence) -> str:
    ratio = _pass_ratio(evidence)
    assert ratio is not None
    if ratio.value < MIN_RATIO:
        explanation = (
            "That cannot be: more tokens are never less work. Something else took the machine's "
            "time; run the example again."
        )
    elif ratio.value < 8:
        explanation = "The difference to 8 is room that guessing can use."
    else:
        explanation = (
            "Here guessing has no room: this machine calculates at least as long as it reads."
        )
    passes = f"{ratio.value:.1f} passes over one ({range_words(ratio, 1)})"
    return f"8 tokens took as long as {passes}. {explanation}"


MEMORY_BOUND = Lesson(
    key="memory",
    title="Why decoding is memory bound",
    short="Memory bound",
    text=(
        "A language model writes its text in tokens. A token is a word or a piece of one. To write "
        "one token, which is called decoding, the computer goes through the whole model once. We "
        "call that a pass.",
        "In a pass the computer fetches all the numbers that the model consists of, its weights, "
        "from memory, and calculates a little with each. On most machines the fetching takes "
        "longer than the calculating. That is what memory bound means.",
        "Once a weight has been fetched, it can serve several tokens. So a pass over 8 tokens "
        "usually takes far less time than 8 passes over one. But plain writing cannot use this: "
        "the second token depends on the first. Somebody has to guess tokens in advance. The next "
        "lessons show how, and what the marks in the text mean. Here we only measure.",
    ),
    look="The same text is written twice: with 1 and with 8 tokens in each pass. 7 of the 8 are "
    "guesses, and most are thrown away, so a pass writes 1 token or a few. Compare pass "
    "times in the table of runs. “Rounds” on the page are passes here.",
    words=(
        Term("token", "a word or a piece of one"),
        Term("decoding", "writing a text token by token"),
        Term("pass", "going through the whole model once"),
        Term("weights", "the numbers that a model consists of"),
        Term("memory bound", "fetching from memory takes longer than calculating"),
    ),
    example=(
        Setup(ALONE, STORY, NO_DRAFTERS),
        Setup(EIGHT, STORY, ONE, PASS_8),
    ),
    attempt=Attempt(
        "Put 16 tokens into each pass. Does a pass then take twice as long as with 8?",
        "Run with 16 tokens",
        Setup(SIXTEEN, STORY, ONE, PASS_16),
    ),
    question=Question(
        "How many times as long as a pass over 1 token did a pass over 8 tokens take?",
        pass_ratio_value,
        explain_passes,
        "Divide two numbers of the column “ms / pass” in the table of runs: the row with 8 tokens "
        "by the row with 1.",
        point="rows",
        unit="times",
        places=1,
        within=0.05,
    ),
    pictures=("strip",),
    columns=("pass_tokens", "pass_ms", "token_ms"),
    timed=True,
)


def most_accepted(evidence: Evidence) -> float | None:
    """The most drafted tokens accepted in one round of the displayed run."""
    return float(evidence.last.max_accepted) if evidence.last else None


def explain_best_round(evidence: Evidence) -> str:
    row = evidence.last
    assert row is not None
    wrote = number_of(row.max_written, "token")
    return f"The best round of this run wrote {wrote} with a single pass of the LLM."


ONE_SSM = Lesson(
    key="ssm",
    title="One small model guesses",
    short="One SSM",
    text=(
        "SSM means small speculative model. It uses the same tokens as the large model, which is "
        "called the LLM (large language model). It knows less, but a pass through it costs little.",
        "Work goes in rounds. First the SSM writes a few tokens ahead, one after the other. This "
        "is the draft. Then the LLM checks the whole draft in a single pass: for each place it "
        "says which token it would have written. From the left, drafted tokens are accepted as "
        "long as both agree. Where they disagree for the first time, the rest of the draft is "
        "dropped, and the LLM's own token is written. If they agree to the end, the LLM adds one "
        "more token of its own, the bonus token.",
        "So a round always brings the text forward, and every token in it is one that the LLM "
        "itself would have written.",
    ),
    look="In the text, colour and shape say where each token comes from. The bars below it count "
    "how many drafted tokens each round accepted.",
    words=(
        Term("SSM", "small speculative model: guesses what the large model will write"),
        Term("LLM", "large language model: its text is the one that counts"),
        Term("round", "one draft, checked by one pass of the LLM"),
        Term("draft", "the tokens that an SSM has written ahead"),
        Term("accepted", "a drafted token that the LLM would have written too"),
        Term("bonus token", "the LLM's own token behind a draft that was accepted whole"),
    ),
    example=(Setup("a dialogue", DIALOGUE, ONE, DRAFT_5),),
    attempt=Attempt(
        "Let the same SSM draft program code. Does it guess better or worse there?",
        "Run with program code",
        Setup("program code", CODE, ONE, DRAFT_5),
    ),
    question=Question(
        "What is the largest number of drafted tokens that one round of the run shown accepted?",
        most_accepted,
        explain_best_round,
        "The highest bar in “Length”.",
        point="lengths",
        unit="tokens",
    ),
    pictures=("figures", "strip", "lengths"),
    columns=("num_new_tokens", "num_rounds", "mean_acceptance_length"),
)

WIDE, NARROW = "width 3", "width 1"


def passes_saved(evidence: Evidence) -> float | None:
    """The number of passes that width 3 saved against width 1; below 0 if width 3 needed more."""
    rows = evidence.of(WIDE, NARROW)
    return float(rows[1].stats.num_rounds - rows[0].stats.num_rounds) if rows else None


def explain_widths(evidence: Evidence) -> str:
    rows = evidence.of(WIDE, NARROW)
    assert rows is not None
    wide, narrow = rows
    fewer = f"{number_of(wide.stats.num_rounds, 'pass')} instead of {narrow.stats.num_rounds}"
    nodes = f"{wide.pass_tokens - 1:.0f} instead of {narrow.pass_tokens - 1:.0f} nodes"
    return f"{fewer}, for {nodes} verified in a pass."


TREE = Lesson(
    key="tree",
    title="A tree of guesses",
    short="A tree",
    text=(
        "If the first token of a draft is wrong, the whole draft is lost. So an SSM may offer "
        "several tokens for one place, each with tokens of its own behind it. Drawn as a picture "
        "this is a tree. Each drafted token is a node of it.",
        "The LLM checks all nodes in one pass. It looks at each branch as if the other branches "
        "were not there. At most one branch can be right. Along that branch, tokens are accepted "
        "as before; all others are dropped.",
        "The width is the number of tokens offered for the next place. In the example the SSM "
        "offers 3 tokens for the first place and continues each of them with one token a place. "
        "More branches give more chances to be right. But every node also makes the LLM's pass a "
        "little longer, as lesson 1 has measured.",
    ),
    look="Step through the rounds with the buttons ‹ and ›. Strong lines of the tree are accepted. "
    "Find a round in which the accepted branch is not the first one.",
    words=(
        Term("tree", "drafts that share their beginning, drawn as branches"),
        Term("node", "a drafted token in the tree"),
        Term("width", "how many tokens are offered for one place"),
    ),
    example=(Setup(WIDE, STORY, STORIES, TREE_4),),
    attempt=Attempt(
        "Take the side branches away: the same SSM, the same number of places, width 1.",
        "Run with width 1",
        Setup(NARROW, STORY, STORIES, DRAFT_4),
    ),
    question=Question(
        "How many passes of the LLM did width 3 save against width 1? (Below 0 if it needed more.)",
        passes_saved,
        explain_widths,
        "Subtract in the column “LLM passes” of the table of runs: width 1 less width 3.",
        point="rows",
        needs="First run “Something to try”: both runs are needed.",
        unit="passes",
    ),
    pictures=("figures", "strip", "tree"),
    columns=("pass_nodes", "num_rounds", "mean_acceptance_length"),
)
