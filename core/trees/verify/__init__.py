"""Verification: from a tree, the LLM's distributions and noise to a verdict. A verdict is the
accepted path and the LLM's own token.

The rules, found by name: `greedy` and `match` (which share one walk), `mss`, `traversal`. They are
pure functions: the noise is an argument.
"""

from __future__ import annotations

from collections.abc import Callable

from core.config.mechanisms import implementation_of, verify_rule
from core.trees.verify.base import TargetTokens, TrialResult, Verdict, VerifyInput
from core.trees.verify.walk import WALKS, verdict_of_tokens

__all__ = [
    "WALKS",
    "VerifyInput",
    "TargetTokens",
    "TrialResult",
    "Verdict",
    "verdict_of_tokens",
    "verify",
]

Rule = Callable[[VerifyInput], Verdict]


def verify(rule: str, inputs: VerifyInput) -> Verdict:
    """The verdict of the named rule."""
    decide: Rule = implementation_of(verify_rule(rule).implementation)
    return decide(inputs)
