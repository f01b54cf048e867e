"""When a stage of a round ran."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timed"]


@dataclass(frozen=True, slots=True)
class Timed:
    """A stage's stretch of time on the process's monotonic clock, in seconds; `share`: see Span."""

    lane: str
    name: str
    start: float
    end: float
    share: float = 1.0

    @property
    def seconds(self) -> float:
        """What of it was spent on this lane's own work."""
        return (self.end - self.start) * self.share
