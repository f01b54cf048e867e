"""How frames reach nodes: a Transport over several nodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Arrival", "Transport"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """From a node: a `frame`, or a `change` of its connection: `up`, `down`, or `refused` (the key
    was not accepted)."""

    node: int
    frame: bytes | None = None
    change: str = ""


# Has its own clock, so that tests run the exchange without sockets and without waiting.
class Transport(Protocol):
    """Frames to and from nodes, by their number. Used by one thread at a time."""

    def now(self) -> float:
        """Seconds on the clock of `poll`."""
        ...

    def send(self, node: int, frame: bytes) -> None:
        """Sends a frame; it may be lost."""
        ...

    def poll(self, until: float) -> list[Arrival]:
        """Waits for at least one arrival, until this time at most."""
        ...

    def close(self) -> None:
        """Ends all connections; the next call opens them again."""
        ...
