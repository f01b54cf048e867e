"""(tree, the LLM's distributions, noise) to a verdict: which path is accepted, and the LLM's own
token.

Rules by name: `greedy` and `match` (one walk), `mss`, `traversal`. Pure but for the noise that is
passed in; never sees a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from core.verify.case import Case, TargetTokens, Tried, Verdict
from core.verify.mss import mss
from core.verify.traversal import traversal
from core.verify.walk import WALKS, greedy, match, verdict_of_tokens

__all__ = [
    "VERIFY_RULES",
    "WALKS",
    "Case",
    "TargetTokens",
    "Tried",
    "Verdict",
    "verdict_of_tokens",
    "verify",
]

Rule = Callable[[Case], Verdict]

VERIFY_RULES: Mapping[str, Rule] = MappingProxyType(
    {"greedy": greedy, "match": match, "mss": mss, "traversal": traversal}
)


def verify(rule: str, case: Case) -> Verdict:
    """The verdict of the named rule."""
    return VERIFY_RULES[rule](case)
