"""A study's state and the time it still needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.figures import median
from lab.order import Cell

__all__ = ["Pace", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """State of the study that is measured now, or was last.

    `state`: empty (none yet), `running`, `waiting` (a visitor's run goes first), `stopping`,
    `stopped`, `completed`, `failed`. `warming`: before the first cell. `left_s`: seconds left by
    the cells so far, None at first. `log`: that a measured cell waits for the log; empty while it
    does not.
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


@dataclass(frozen=True, slots=True)
class Pace:
    """How long cells took, by contestant."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def heard(self, cell: Cell, seconds: float) -> None:
        """One more was measured."""
        self.seconds.setdefault(cell.contestant, []).append(seconds)

    def seconds_left(self, cells: Sequence[Cell]) -> float:
        """Seconds for these cells, by each contestant's median so far."""
        usual = median([seconds for times in self.seconds.values() for seconds in times])
        each = {name: median(times) for name, times in self.seconds.items()}
        return sum(each.get(cell.contestant, usual) for cell in cells)
