"""Transport: sends frames to several nodes and receives their frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Arrival", "Transport"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A `frame` from a node, or a `change` of the connection: `up`, `down`, or `refused` in the
    handshake."""

    node: int
    frame: bytes | None = None
    change: str = ""


# A transport has its own clock, so that tests can advance it without waiting.
class Transport(Protocol):
    """Sends frames to nodes and receives frames from nodes, which are numbered from 0. Used by one
    thread at a time."""

    def now(self) -> float:
        """Seconds, on the clock to which `until` of `poll` refers."""
        ...

    def send(self, node: int, frame: bytes) -> None:
        """Sends a frame; it may be lost."""
        ...

    def poll(self, until: float) -> list[Arrival]:
        """Waits for arrivals until the time `until` at the latest, and returns them."""
        ...

    def close(self) -> None:
        """Ends all connections; the next `send` or `poll` opens them again."""
        ...
