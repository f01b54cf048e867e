"""The verification rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core.config.mechanisms.records import by_name

__all__ = ["VERIFY_RULES", "VerifyRule"]


@dataclass(frozen=True, slots=True)
class VerifyRule:
    """When the LLM accepts a drafted token. `implementation`: a `Rule` of core.trees.verify.

    `temperatures`: the rule is lossless at 0 (`zero`), above 0 (`above`), or at every temperature
    (`all`). `reads_q`: the rule reads the probabilities with which proposals were drawn, and is
    lossless only if no drawn proposal is dropped. `token_exact`: the rule commits the tokens of
    plain decoding with the same seed; other rules keep only the distribution. `reads_gumbel`: the
    rule takes the arg max of log p plus the Gumbel noise of a position, as plain decoding does.
    """

    name: str
    label: str
    implementation: str = ""
    temperatures: Literal["all", "zero", "above"] = "all"
    reads_q: bool = False
    token_exact: bool = False
    reads_gumbel: bool = False
    meaning: str = ""

    def suits(self, temperature: float) -> bool:
        """Whether the rule is lossless at this temperature."""
        return self.temperatures in ("all", "above" if temperature > 0 else "zero")


# `core.config.mechanisms.lossless_rules` keeps this order, but puts rules that read q first.
VERIFY_RULES: Mapping[str, VerifyRule] = by_name(
    [
        # Replaced by `SpeculationConfig.resolve`.
        VerifyRule(
            "auto",
            "the first exact rule",
            meaning="the first rule that is exact for this draft and temperature",
        ),
        VerifyRule(
            "greedy",
            "the LLM's best token",
            "core.trees.verify.walk:greedy",
            temperatures="zero",
            token_exact=True,
            meaning="a token is accepted if it is the LLM's most probable one",
        ),
        # Also at temperature 0: p is one-hot, so Gumbel noise changes no arg max.
        VerifyRule(
            "match",
            "what the LLM itself draws",
            "core.trees.verify.walk:match",
            token_exact=True,
            reads_gumbel=True,
            meaning="a token is accepted if the LLM itself draws it with this seed",
        ),
        # SpecInfer (arXiv 2305.09781), Algorithm 2. Not at temperature 0, where nothing is drawn.
        VerifyRule(
            "mss",
            "a coin a draft, root first",
            "core.trees.verify.walk:mss",
            temperatures="above",
            reads_q=True,
            meaning="in turn from the root on, each accepted with probability min(1, p / q)",
        ),
        # Traversal Verification (NeurIPS 2025).
        VerifyRule(
            "traversal",
            "coins, leaves first",
            "core.trees.verify.traversal:traversal",
            temperatures="above",
            reads_q=True,
            meaning="from the leaves back to the root, which is expected to accept more than `mss`",
        ),
    ]
)
