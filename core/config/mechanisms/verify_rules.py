"""When the LLM accepts a drafted token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.config.mechanisms.records import by_name

__all__ = ["VERIFY_RULES", "VerifyRule"]


@dataclass(frozen=True, slots=True)
class VerifyRule:
    """When the LLM accepts a drafted token. `implementation`: a `Rule` of core.trees.verify.
    `reads_q`: it needs the probabilities that proposals were drawn with, so nothing drawn may be
    dropped."""

    name: str
    label: str
    implementation: str = ""
    reads_q: bool = False
    meaning: str = ""


VERIFY_RULES: Mapping[str, VerifyRule] = by_name(
    [
        VerifyRule(
            "auto",
            "the first exact rule",
            meaning="the first rule that is exact for this draft and temperature",
        ),
        VerifyRule(
            "greedy",
            "the LLM's best token",
            "core.trees.verify.walk:greedy",
            meaning="a token is accepted if it is the LLM's most probable one",
        ),
        VerifyRule(
            "match",
            "what the LLM itself draws",
            "core.trees.verify.walk:match",
            meaning="a token is accepted if the LLM itself draws it with this seed",
        ),
        VerifyRule(
            "mss",
            "a coin a draft, root first",
            "core.trees.verify.walk:mss",
            reads_q=True,
            meaning="in turn from the root on, each accepted with probability min(1, p / q)",
        ),
        VerifyRule(
            "traversal",
            "coins, leaves first",
            "core.trees.verify.traversal:traversal",
            reads_q=True,
            meaning="from the leaves back to the root, which is expected to accept more than `mss`",
        ),
    ]
)
