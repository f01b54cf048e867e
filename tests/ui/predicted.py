"""The formula of `ui/components/assets/what_if.js` in Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundCost:
    """Times in milliseconds. `pass_ms`: the LLM's pass over a tree; `plain_ms`: the LLM's pass over
    one token; `trip_ms`: a round trip to the drafters."""

    step_ms: float
    pass_ms: float
    plain_ms: float
    other_ms: float = 0.0
    trip_ms: float = 0.0


def expected_tokens(acceptance: float, length: int) -> float:
    """Expected tokens per LLM pass (Leviathan et al. 2023, eq. 1)."""
    return sum(acceptance**i for i in range(length + 1))


def predicted_speedup(
    cost: RoundCost, acceptance: float, length: int, llm_size: float = 1.0
) -> float:
    if length == 0:
        return 1.0
    pass_ms = llm_size * cost.pass_ms
    round_ms = length * cost.step_ms + pass_ms + cost.other_ms + cost.trip_ms
    # A round takes at least as long as a plain pass, even if the measured times add up to less.
    plain_rounds = max(1.0, round_ms / (llm_size * cost.plain_ms))
    return expected_tokens(acceptance, length) / plain_rounds
