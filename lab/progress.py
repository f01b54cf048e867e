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

    `state`: empty (none yet), `running`, `waiting` (for a visitor's run), `stopping`,
    `stopped`, `completed`, `failed`. `warming`: before the first cell. `left_s`: an
    estimate of the remaining seconds, None at first. `log`: why a result could not be written to
    the log yet; empty if there is none.
    """

    study_id: str = ""
    kind: str = ""
    owner: str = ""
    state: str = ""
    reason: str = ""
    done: int = 0
    total: int = 0
    warming: bool = False
    cell: Cell | None = None
    lost: int = 0
    left_s: float | None = None
    log: str = ""

    @property
    def live(self) -> bool:
        return self.state in ("running", "waiting", "stopping")

    def measures(self, study_id: str) -> bool:
        """Whether this study is being measured."""
        return self.live and self.study_id == study_id


@dataclass(frozen=True, slots=True)
class CellTimes:
    """The seconds that cells took, by contestant."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: float) -> None:
        """Adds the time of a measured cell."""
        self.seconds.setdefault(cell.contestant, []).append(seconds)

    def seconds_left(self, cells: Sequence[Cell]) -> float:
        """The estimated seconds of these cells: each contestant's median, else the median of
        all."""
        usual = median([seconds for times in self.seconds.values() for seconds in times])
        each = {name: median(times) for name, times in self.seconds.items()}
        return sum(each.get(cell.contestant, usual) for cell in cells)
