"""The verification rules, found by name."""

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
