"""A study's state and the time it still needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.figures import median
from lab.order import Cell

__all__ = ["CellTimes", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """State of the study that is measured now or was measured last.

    `state`: empty (none yet), `running`, `waiting` (for a visitor's run or a model load),
    `stopping`, `stopped`, `completed`, `failed`. `is_warming_up`: before the first cell. `lost`:
    how often a cell was interrupted. `remaining_s`: an estimate, None before the first measured
    cell and after the end. `log_error`: why a result is not in the log yet, else empty.
    """

    study_id: str = ""
    kind: str = ""
    owner: str = ""
    state: str = ""
    reason: str = ""
    done: int = 0
    total: int = 0
    is_warming_up: bool = False
    cell: Cell | None = None
    lost: int = 0
    remaining_s: float | None = None
    log_error: str = ""

    @property
    def is_active(self) -> bool:
        return self.state in ("running", "waiting", "stopping")

    def measures(self, study_id: str) -> bool:
        """Whether this study is being measured."""
        return self.is_active and self.study_id == study_id


@dataclass(slots=True)
class CellTimes:
    """The seconds that cells took, by contestant."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: float) -> None:
        """Adds the time of a measured cell."""
        self.seconds.setdefault(cell.contestant, []).append(seconds)

    def seconds_left(self, cells: Sequence[Cell]) -> float:
        """An estimate for these cells: each contestant's median time, else the median of all
        times."""
        overall_median = median([seconds for times in self.seconds.values() for seconds in times])
        medians = {name: median(times) for name, times in self.seconds.items()}
        return sum(medians.get(cell.contestant, overall_median) for cell in cells)
