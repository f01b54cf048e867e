"""The contestants of the `pipeline` suite: the same work with each pipelining that fits the number
of live requests, serial first.

The one place to add a pipelining to. A name that `core.config` does not know is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.config import PIPELINES, SpeculationConfig

SERIAL, AUTO, BEST = "off", "auto", "best"
TEMPERATURES = (0.0, 0.8)
# By the number of live requests: within one request, and across several.
FITTING: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {1: (SERIAL, "ahead", AUTO), 8: (SERIAL, "across", AUTO)}
)
# Small and large shares of drafting in a round, and what a newcomer gets. Node budgets are given:
# a measured one might differ from engine to engine.
WORKS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "one SSM, chain of 4": {
            "drafters": ("first",),
            "expansion": (1,),
            "speculation_length": 4,
            "max_tree_nodes": 8,
        },
        "all SSMs, 4 steps": {"speculation_length": 4, "max_tree_nodes": 24},
        BEST: {"max_tree_nodes": 64},
    }
)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """One comparison: `live` requests at a time, one `work`; `contestants` by their pipelining,
    serial first."""

    live: int
    work: str
    temperature: float
    contestants: Mapping[str, SpeculationConfig]

    @property
    def key(self) -> dict[str, Any]:
        """What tells its samples apart, block and dtype aside."""
        return {"live": self.live, "work": self.work, "temperature": self.temperature}

    def __str__(self) -> str:
        return f"{self.live} live, {self.work}, T = {self.temperature:g}"


def pipeline_rows() -> tuple[PipelineRow, ...]:
    """All comparisons, as far as the pipelinings exist."""
    return tuple(
        PipelineRow(live, work, temperature, _contestants(names, _speculation(work)))
        for live, names in FITTING.items()
        for temperature in TEMPERATURES
        for work in WORKS
        if len(set(names) & set(PIPELINES)) > 1
    )


def _speculation(work: str) -> SpeculationConfig:
    preset = SpeculationConfig.preset(BEST if work == BEST else "specinfer")
    return dataclasses.replace(preset, **WORKS[work])


def _contestants(names: tuple[str, ...], work: SpeculationConfig) -> dict[str, SpeculationConfig]:
    known = [name for name in names if name in PIPELINES]
    return {name: dataclasses.replace(work, pipeline=name) for name in known}
