"""How a study stands, for whoever looks on."""

from __future__ import annotations

from dataclasses import dataclass

from lab.order import Cell

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How the study that is measured, or was last, stands.

    `state`: empty (none yet), `running`, `waiting` (a visitor's run goes first), `stopping`,
    `stopped`, `completed`, `failed`. `left_s`: seconds left by the cells so far, None at first.
    `log`: that a measured cell waits for the log; empty while it does not.
    """

    study_id: str = ""
    kind: str = ""
    owner: str = ""
    state: str = ""
    reason: str = ""
    done: int = 0
    total: int = 0
    cell: Cell | None = None
    lost: int = 0
    left_s: float | None = None
    log: str = ""

    @property
    def live(self) -> bool:
        return self.state in ("running", "waiting", "stopping")
