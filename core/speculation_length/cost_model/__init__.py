"""Costs of passes and drafts, measured by the engine, and two decisions.
`backoff`: when a drafter that is switched off is probed. `switch`: whether pipelining is on.
"""

from __future__ import annotations

from core.speculation_length.cost_model.backoff import Backoff, Backoffs, RunBackoffs
from core.speculation_length.cost_model.ledger import Costs, DraftCosts
from core.speculation_length.cost_model.meters import TINY_MS, Average, LinearFit, Meter
from core.speculation_length.cost_model.switch import Switch
from core.speculation_length.cost_model.verify_costs import (
    NODE_COUNTS,
    VerifyCosts,
    measure_verify_costs,
)

__all__ = [
    "NODE_COUNTS",
    "TINY_MS",
    "Average",
    "Backoff",
    "Backoffs",
    "Costs",
    "DraftCosts",
    "LinearFit",
    "Meter",
    "RunBackoffs",
    "Switch",
    "VerifyCosts",
    "measure_verify_costs",
]
