"""SYNTHETIC runs: the engine's own event streams over models that are tables, of invented texts and
at invented times, which say so."""

from __future__ import annotations

from tests.synthetic.run import (
    DRAFTERS,
    ENDINGS,
    HOSTILE_TEXTS,
    MINIONS,
    Mechanisms,
    SyntheticFailure,
    synthetic_run,
)

__all__ = [
    "DRAFTERS",
    "ENDINGS",
    "HOSTILE_TEXTS",
    "MINIONS",
    "Mechanisms",
    "SyntheticFailure",
    "synthetic_run",
]
