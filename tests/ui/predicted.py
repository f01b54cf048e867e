"""The formula of `ui/components/assets/what_if.js` in Python (Leviathan et al. 2023, eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundCost:
    """Milliseconds: `step_ms` of drafting one token, `pass_ms` of the LLM over a tree, `plain_ms`
    over one token, `other_ms` of the rest of a round, `trip_ms` of a round trip to the drafters."""

    step_ms: float
    pass_ms: float
    plain_ms: float
    other_ms: float = 0.0
    trip_ms: float = 0.0


def expected_tokens(acceptance: float, length: int) -> float:
    """Tokens per pass with drafts of `length` tokens, each accepted with this probability."""
    return sum(acceptance**i for i in range(length + 1))


def predicted_speedup(
    cost: RoundCost, acceptance: float, length: int, llm_size: float = 1.0
) -> float:
    """Speed-up over plain decoding; `llm_size`: a factor of the times of the LLM's passes."""
    if length == 0:
        return 1.0
    pass_ms = llm_size * cost.pass_ms
    round_ms = length * cost.step_ms + pass_ms + cost.other_ms + cost.trip_ms
    # A round takes at least as long as a plain pass, though the measured times may say less.
    plain_rounds = max(1.0, round_ms / (llm_size * cost.plain_ms))
    return expected_tokens(acceptance, length) / plain_rounds
