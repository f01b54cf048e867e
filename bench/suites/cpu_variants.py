"""transformers' own speculation, in every setting that is swept before the best may compete."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.theirs import Theirs
from core.models.catalog import bundled_ssms

__all__ = ["ASSISTED", "FAMILIES", "LOOKUP", "Variant", "all_variants"]

ASSISTED, LOOKUP = "transformers assisted", "transformers prompt lookup"
FAMILIES = (ASSISTED, LOOKUP)
SCHEDULES = ("constant", "heuristic", "heuristic_transient")
COUNTS = (3, 5, 8)
LOOKUP_COUNTS = (3, 5, 10)


@dataclass(frozen=True, slots=True)
class Variant:
    """Assisted generation by one SSM with a schedule, or prompt lookup (no SSM, no schedule)."""

    family: str
    count: int
    ssm: str = ""
    schedule: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.family, self.ssm, self.schedule, str(self.count))))

    def options(self, theirs: Theirs, modules: Mapping[str, Any]) -> dict[str, Any]:
        """What `generate` is given; an assistant of its own each time."""
        if self.family == LOOKUP:
            return {"prompt_lookup_num_tokens": self.count}
        return {"assistant_model": theirs.assistant(modules[self.ssm], self.schedule, self.count)}


def all_variants(ssms: Iterable[str] | None = None) -> tuple[Variant, ...]:
    """Each SSM (None: the bundled ones) with each schedule and count, and prompt lookup with each
    of its counts."""
    ssms = [path.name for path in bundled_ssms()] if ssms is None else ssms
    product = itertools.product(ssms, SCHEDULES, COUNTS)
    assisted = [Variant(ASSISTED, count, ssm, schedule) for ssm, schedule, count in product]
    return (*assisted, *(Variant(LOOKUP, count) for count in LOOKUP_COUNTS))
