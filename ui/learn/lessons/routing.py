"""Lesson 9: which SSMs draft, round by round."""

from __future__ import annotations

from core.config import SpeculationConfig
from ui.learn.lessons.lesson import Attempt, Lesson, Question, Setup, Term
from ui.learn.lessons.measured import Evidence, leader, ranked_words
from ui.learn.lessons.runs import ALL, DIALOGUE

__all__ = ["ROUTING"]

CHOSEN = SpeculationConfig(
    expansion=(1,),
    speculation_length=4,
    max_tree_nodes=64,
    routing="credit",
    routed_drafters=1,
)
CHANGING = (
    "Once upon a time there was a fox who lived in a wood with his mother. One day he went to the "
    "town to eat, and he said:\n\nUser: I want to book a table.\nAssistant:"
)
"""The story is long enough that routing chooses another SSM for the story than for the dialogue."""
TIE_SHARE = 0.005
"""Scores that differ by less than this share of the highest score count as equal."""
TIE = "none: the highest scores are level"


def highest(evidence: Evidence) -> str | None:
    """The SSM with the highest score at the run's end; TIE for a tie; None without scores."""
    if evidence.last is None or not evidence.last.scores:
        return None
    scores = evidence.last.scores
    return leader(scores, TIE_SHARE * max(scores.values())) or TIE


def explain_scores(evidence: Evidence) -> str:
    assert evidence.last is not None
    scores = ranked_words(evidence.last.scores, 0)
    return f"The scores at the end: {scores}. The rule lets the best one draft."


ROUTING = Lesson(
    key="routing",
    title="Who drafts what",
    short="Who drafts",
    text=(
        "With many SSMs it is a waste to let all of them draft. Each takes time, and each fills "
        "the LLM's pass with tokens. Often one knows the text best. Which one that is can change "
        "within a text: a story, then program code.",
        "Routing chooses, round by round, which SSMs draft. The rule here gives every SSM a score: "
        "how many tokens a second it would bring if it drafted alone. For this it looks at the "
        "latest tokens of the text: which probability did the SSM give to each of them? The "
        "newest count most.",
        "Scoring an SSM that does not draft takes time, so it is done seldom. But if the chosen "
        "SSM suddenly predicts the text worse, all are scored at once, and the choice can change. "
        "In between the scores stay as they are. "
        "Afterwards one can count the regret: how many more passes the LLM needed than with "
        "the best choice.",
    ),
    look="“Who” has a row for each SSM and a column for each round: a full block means "
    "that the SSM drafted, a thin line that it did not, a fuller colour a higher score. “Regret” "
    "counts afterwards what other choices would have cost.",
    words=(
        Term("routing", "a rule chooses which SSMs draft"),
        Term("score", "how well an SSM suits the text at this moment, for the rule"),
        Term("regret", "how many more passes than with the best choice, known only afterwards"),
    ),
    example=(Setup("a dialogue", DIALOGUE, ALL, CHOSEN, max_new_tokens=64),),
    attempt=Attempt(
        "This text begins as a story and goes on as a dialogue. Does the choice change, and in "
        "which round?",
        "Run with a text that changes",
        Setup("a text that changes", CHANGING, ALL, CHOSEN, max_new_tokens=128),
    ),
    question=Question(
        "Which SSM has the highest score in the last round of the run shown?",
        highest,
        explain_scores,
        "Go to the last round, with the key l. In “Who” its scores stand at the right end of the "
        "rows. Which number is the largest?",
        point="routing",
        numeric=False,
        besides=(TIE,),
    ),
    pictures=("strip", "routing"),
    columns=("num_new_tokens", "num_rounds", "mean_acceptance_length"),
    ssms=3,
)
