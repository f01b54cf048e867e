"""Requests and their configuration: validated values, presets, the mechanisms and their facts."""

from __future__ import annotations

from core.config.config import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    PIPELINES,
    PRESETS,
    ROUTINGS,
    VERIFIES,
    WEIGHTS,
    Request,
    SamplingParams,
    SpeculationConfig,
    lossless_rules,
    recorded_sampling,
)

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
