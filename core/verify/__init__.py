"""(tree, the LLM's distributions, noise) to a verdict: which path is accepted, and the LLM's own
token.

Rules by name: `greedy` and `match` (one walk), `mss`, `traversal`. Pure but for the noise that is
passed in; never sees a model.
"""

from __future__ import annotations

from collections.abc import Callable

from core.mechanisms import implementation_of, verify_rule
from core.verify.case import Case, Said, Tried, Verdict
from core.verify.walk import WALKS, told

__all__ = ["WALKS", "Case", "Said", "Tried", "Verdict", "told", "verify"]

Rule = Callable[[Case], Verdict]


def verify(rule: str, case: Case) -> Verdict:
    """The verdict of the named rule."""
    decide: Rule = implementation_of(verify_rule(rule).implementation)
    return decide(case)
