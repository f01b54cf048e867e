"""The names that a SpeculationConfig chooses from, and which of them go together losslessly.

A mechanism's registry has the same names (a test compares them). Knows nothing else.
"""

from __future__ import annotations

__all__ = [
    "COMBINES",
    "DRAFTS",
    "GIVEN_LENGTHS",
    "LENGTHS",
    "NGRAM",
    "NOT_AHEAD",
    "PIPELINES",
    "PRESETS",
    "SAMPLED_DRAFTS",
    "VERIFIES",
    "WEIGHTED_COMBINES",
    "WEIGHTS",
    "lossless_rules",
]

DRAFTS = ("auto", "topk", "coupled", "sampled", "sampled_iid", "best_first")
COMBINES = ("union", "vote", "vote_tree", "log_pool")
WEIGHTS = ("full_information", "paper")
LENGTHS = ("fixed", "trend", "goodput", "confidence")
# There the length is the user's number; the other rules find theirs.
GIVEN_LENGTHS = ("fixed", "confidence")
VERIFIES = ("auto", "greedy", "match", "mss", "traversal")
PIPELINES = ("off", "across", "ahead", "auto")
PRESETS = ("autoregressive", "sequence", "specinfer", "specinfer-paper", "minions", "best")

SAMPLED_DRAFTS = ("sampled", "sampled_iid")
WEIGHTED_COMBINES = ("vote", "vote_tree", "log_pool")
# The drafter that is no SSM: prompt lookup.
NGRAM = "ngram"
# One tree drafted by all SSMs together is not begun behind guesses.
NOT_AHEAD = ("log_pool",)


def lossless_rules(draft: str, temperature: float, combine: str = "union") -> tuple[str, ...]:
    """The verification rules under which a draft kind and a combine rule are lossless, the default
    first; empty where they are refused. Source: ALGORITHMS 2, the validity matrix.
    """
    if temperature == 0.0:
        return () if draft in SAMPLED_DRAFTS else ("greedy", "match")
    # What was voted or pruned is no draw any more: agreement conditions it.
    drawn = draft in SAMPLED_DRAFTS and combine == "union"
    return ("mss", "traversal", "match") if drawn else ("match",)
