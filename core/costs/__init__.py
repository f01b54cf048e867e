"""What the engine has measured: of its machine, and of how far its drafters are right."""

from __future__ import annotations

from core.costs.acceptance import Acceptance, Odds, Rates
from core.costs.backoff import Backoff, Backoffs, RunBackoffs
from core.costs.ledger import Costs, DraftCosts
from core.costs.meters import Average, Meter
from core.costs.switch import Switch
from core.costs.verify import NODE_COUNTS, VerifyCosts, measure_verify_costs

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
