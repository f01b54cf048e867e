"""Judging: what the LLM says of several requests' trees, asked for where its logits lie and told in
one copy (`core.verify.at_once`). Knows turns, and no model."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many

from core.config import SamplingParams
from core.noise import SeededNoise
from core.turn import Turn
from core.verify import WALKS, Case
from core.verify.at_once import said_of

__all__ = ["ask_at_once", "judged_at_once"]


def judged_at_once(turn: Turn) -> bool:
    """Whether its rule asks for nothing but the LLM's token behind each node, by a noise that is a
    hash, and nobody wants to see more of the LLM's distributions."""
    sequence = turn.live.sequence
    rule = sequence.speculation.verify
    hashed = rule == "greedy" or isinstance(sequence.noise, SeededNoise)
    return rule in WALKS and hashed and not sequence.speculation.record_top_k


def ask_at_once(turns: Many[Turn], case_of: Callable[[Turn], Case]) -> None:
    """Fills in `said` of the turns of which that is all that is asked."""
    groups: dict[tuple[str, SamplingParams], list[Turn]] = {}
    for turn in turns:
        if judged_at_once(turn):
            sequence = turn.live.sequence
            key = sequence.speculation.verify, sequence.sampling.shape
            groups.setdefault(key, []).append(turn)
    for (rule, _), several in groups.items():
        said = said_of(rule, [case_of(turn) for turn in several])
        for turn, one in zip(several, said, strict=True):
            turn.said = one
