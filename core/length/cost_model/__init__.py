"""What the engine has measured: of its machine, and of how far its drafters are right."""

from __future__ import annotations

from core.length.cost_model.acceptance import Acceptance, Odds, Rates
from core.length.cost_model.backoff import Backoff, Backoffs, RunBackoffs
from core.length.cost_model.ledger import Costs, DraftCosts
from core.length.cost_model.meters import Average, Meter
from core.length.cost_model.switch import Switch
from core.length.cost_model.verify import NODE_COUNTS, VerifyCosts, measure_verify_costs

__all__ = [
    "NODE_COUNTS",
    "Acceptance",
    "Average",
    "Backoff",
    "Backoffs",
    "Costs",
    "DraftCosts",
    "Meter",
    "Odds",
    "Rates",
    "RunBackoffs",
    "Switch",
    "VerifyCosts",
    "measure_verify_costs",
]
