"""What competes in the `length` suite: `best` with every length policy, and nothing else changed;
the hopeless SSM; a timed run with what the policy did in each round.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bench.ours import DecodeCase, request
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import Combined, RoundCompleted
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed

LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8)
GOODPUT = "goodput"
POLICIES = (GOODPUT, "trend", "confidence")
# As many as `goodput` may ever spend. A budget of its own would choose the length by another name:
# it cuts depth first.
NODES = 64
# `trend` moves by one step in sixteen rounds, so it may begin where `goodput` does.
TREND_STARTS = 4


def fixed_name(length: int) -> str:
    """A fixed length's name."""
    return f"fixed {length}"


FIXED = tuple(fixed_name(length) for length in LENGTHS)
PLAIN = fixed_name(0)


def contestants() -> Mapping[str, SpeculationConfig]:
    """All of them, plain decoding (a fixed length of 0) first."""
    shared = dataclasses.replace(
        SpeculationConfig.preset("best"), pipeline="off", max_tree_nodes=NODES
    )
    fixed_lengths = {
        fixed_name(length): dataclasses.replace(shared, length="fixed", speculation_length=length)
        for length in LENGTHS
    }
    policies = {name: dataclasses.replace(shared, length=name) for name in POLICIES}
    policies["trend"] = dataclasses.replace(policies["trend"], speculation_length=TREND_STARTS)
    return {**fixed_lengths, **policies}


def hopeless_contestants() -> Mapping[str, SpeculationConfig]:
    """Plain decoding, and `goodput` with the one SSM there is and nothing beside it."""
    every = contestants()
    return {name: dataclasses.replace(every[name], drafters=("all",)) for name in (PLAIN, GOODPUT)}


class Hopeless:
    """`model` turned against itself: what it holds impossible is what it proposes, and with
    confidence, so that only being refused tells on it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        """The model's own `forward`, its logits negated."""
        logits: list[torch.Tensor] = self._model.forward(feeds)
        return [-rows for rows in logits]


def with_hopeless_ssm(models: LoadedModels) -> LoadedModels:
    """The same LLM with one SSM, the first, turned hopeless."""
    name, model = next(iter(models.ssms.items()))
    ssm: Any = Hopeless(model)
    return dataclasses.replace(models, ssms={name: ssm})


def trace_run(engine: Engine, case: DecodeCase, speculation: SpeculationConfig) -> dict[str, Any]:
    """Runs a case to its end. `tokens` and `seconds` (prefill included); `accepted` drafted tokens;
    round by round the chosen `lengths`, and the `depths` and `nodes` of the trees verified."""
    tokens = accepted = 0
    lengths: list[int] = []
    depths: list[int] = []
    nodes: list[int] = []
    start = time.perf_counter()
    for event in engine.generate(request(case, speculation)):
        if isinstance(event, Combined):
            depths.append(max(event.depths, default=0))
            nodes.append(len(event.depths))
        elif isinstance(event, RoundCompleted):
            tokens += len(event.token_ids)
            accepted += event.num_accepted
            lengths.append(event.speculation_length)
    return {
        "tokens": tokens,
        "seconds": time.perf_counter() - start,
        "accepted": accepted,
        "lengths": lengths,
        "depths": depths,
        "nodes": nodes,
    }
