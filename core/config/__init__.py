"""Requests and their configuration."""

from __future__ import annotations

from core.config.config import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    PIPELINES,
    ROUTINGS,
    VERIFIES,
    Request,
    SamplingParams,
    SpeculationConfig,
    recorded_sampling,
)
from core.config.mechanisms import PRESETS, WEIGHTS, lossless_rules

__all__ = [
    "COMBINES",
    "DRAFTS",
    "LENGTHS",
    "PIPELINES",
    "PRESETS",
    "ROUTINGS",
    "Request",
    "SamplingParams",
    "SpeculationConfig",
    "VERIFIES",
    "WEIGHTS",
    "lossless_rules",
    "recorded_sampling",
]
