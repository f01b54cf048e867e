"""What if: the speed-up that another acceptance, drafting cost, LLM or connection would give.

Pure, and a model, so the page says "predicted". A draft of k tokens, each accepted with probability
a if all before it were, gives 1 + a + ... + a^k tokens a pass (Leviathan et al. 2023, equation 1),
for k drafting steps, one pass of the LLM, one round trip, and what the round costs besides.
`assets/what_if.js` has the same formula, which a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ui.run.frame import Baseline, Frame

__all__ = ["RoundCost", "expected_tokens", "predicted_speedup", "what_if_value"]


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
    """Against plain decoding; `llm_size`: passes of the LLM take so many times as long."""
    if length == 0:
        return 1.0
    pass_ms = llm_size * cost.pass_ms
    round_ms = length * cost.step_ms + pass_ms + cost.other_ms + cost.trip_ms
    return expected_tokens(acceptance, length) * llm_size * cost.plain_ms / round_ms


def what_if_value(frame: Frame, baseline: Baseline | None) -> dict[str, Any]:
    """The measured run, from which the sliders start; {} before drafts were measured.

    `length`: drafted depth a round; `tokens`: written in one; `speedup`: the measured one, None
    without a baseline; then the pass over the tree stands for one over a token.
    """
    stats, rounds = frame.view.stats, frame.view.stats.num_rounds
    if not rounds or not stats.num_draft_tokens or not stats.tokens_per_second:
        return {}
    length = stats.num_draft_tokens / rounds
    pass_ms, draft_ms = stats.verify_ms / rounds, stats.draft_ms / rounds
    round_ms = 1000 * stats.num_new_tokens / stats.tokens_per_second / rounds
    ratio = baseline.speed_up(stats.tokens_per_second) if baseline else None
    # Each round ends in a rejection but where its whole draft was accepted.
    ends = sum(line.accepted < line.depth for line in frame.view.rounds)
    return {
        "run": frame.view.run_id,
        "acceptance": stats.num_accepted_tokens / max(1, stats.num_accepted_tokens + ends),
        "step_ms": draft_ms / length,
        "pass_ms": pass_ms,
        "plain_ms": ratio.value * 1000 / stats.tokens_per_second if ratio else pass_ms,
        "other_ms": max(0.0, round_ms - pass_ms - draft_ms),
        "length": length,
        "tokens": stats.num_new_tokens / rounds,
        "speedup": ratio.value if ratio else None,
    }
