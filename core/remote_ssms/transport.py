"""How frames reach nodes: a Transport over several nodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Arrival", "Transport"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What arrived from a node: a `frame`, or a `change` of its connection: `up`, `down`, or
    `refused` in the handshake."""

    node: int
    frame: bytes | None = None
    change: str = ""


# A transport has its own clock, so that tests can advance it without waiting.
class Transport(Protocol):
    """Sends frames to nodes and receives frames from them. A node is identified by its number. Used
    by one thread at a time."""

    def now(self) -> float:
        """Seconds, on the clock to which `until` of `poll` refers."""
        ...

    def send(self, node: int, frame: bytes) -> None:
        """Sends a frame; it may be lost."""
        ...

    def poll(self, until: float) -> list[Arrival]:
        """Waits for an arrival until the time `until` at the latest. Returns the arrivals."""
        ...

    def close(self) -> None:
        """Ends all connections; the next `send` or `poll` opens them again."""
        ...
