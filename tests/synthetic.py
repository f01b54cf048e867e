"""SYNTHETIC runs are made in bench/made/run.py; tests know them by this name."""

from __future__ import annotations

from bench.made.run import DRAFTERS, ENDINGS, HOSTILE_TEXTS, MINIONS, Mechanisms, synthetic_run

__all__ = ["DRAFTERS", "ENDINGS", "HOSTILE_TEXTS", "MINIONS", "Mechanisms", "synthetic_run"]
