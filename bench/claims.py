"""Figures to reach, beside what was found: reached, or by how much not."""

from __future__ import annotations

from bench.tables import NOTHING, ratio, table
from lab.figures import Estimate

__all__ = ["CLAIM_HEADS", "claims_table", "judged"]

CLAIM_HEADS = ("claim", "to reach", "found", "verdict")
Line = list[str]


def judged(claim: str, found: Estimate | None, target: float, *, above: bool = False) -> Line:
    """A row of the table of claims: `found` against `target`, which it must exceed if `above`.

    The verdict is the value's; the interval beside it tells how sure that is.
    """
    sign = "above" if above else "at least"
    if found is None:
        return [claim, f"{sign} {target:.2f}x", NOTHING, NOTHING]
    reached = found.value > target if above else found.value >= target
    verdict = "reached" if reached else f"not reached, by {max(0.01, target - found.value):.2f}"
    return [claim, f"{sign} {target:.2f}x", ratio(found), verdict]


def claims_table(lines: list[Line], note: str = "") -> str:
    """All claims of a suite."""
    return table("Claims", CLAIM_HEADS, lines, note)
