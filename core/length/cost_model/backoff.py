"""When a drafter that did not pay is tried again: ever more rarely, and never at more than a
hundredth of the decode time (ALGORITHMS 4).

A drafter that does not pay is switched off for its run only, since another text may need it. One
that did not pay in several runs in a row is hopeless: the next run does not try it at its start.
Counts rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Backoff", "Backoffs", "RunBackoffs"]

FIRST, LAST = 16, 128
SHARE = 0.01
# Runs in a row in which a drafter did not pay, until it is hopeless.
STRIKES = 3


@dataclass
class Backoff:
    """A drafter that is switched off: `waited` rounds of the `interval` to its next probe."""

    interval: int = FIRST
    waited: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has waited long enough."""
        return self.waited >= self.interval

    def failed(self) -> None:
        """A probe in vain: the next one after twice as long."""
        self.interval, self.waited = min(2 * self.interval, LAST), 0


@dataclass
class Backoffs:
    """The engine's: hopeless drafters by name, in how many runs others did not pay, and what
    probing has cost of the decode time."""

    hopeless: dict[str, Backoff] = field(default_factory=dict)
    strikes: dict[str, int] = field(default_factory=dict)
    decode_ms: float = 0.0
    probe_ms: float = 0.0


class RunBackoffs:
    """One run's view: the engine's hopeless drafters, which concurrent runs share, and those that
    are switched off in this run."""

    def __init__(self, shared: Backoffs) -> None:
        self._shared = shared
        self._own: dict[str, Backoff] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._own or name in self._shared.hopeless

    def __getitem__(self, name: str) -> Backoff:
        return self._own.get(name) or self._shared.hopeless[name]

    def switch_off(self, name: str) -> None:
        """Its first probe is due after 16 rounds; one that a concurrent run switched off before
        keeps its wait."""
        strikes = self._shared.strikes.get(name, 0) + 1
        self._shared.strikes[name] = strikes
        backoffs = self._shared.hopeless if strikes >= STRIKES else self._own
        backoffs.setdefault(name, Backoff())

    def paid(self, name: str) -> None:
        """It drafts, and is worth it."""
        self._shared.strikes.pop(name, None)

    def passed(self, ms: float, waiting: tuple[str, ...]) -> None:
        """A round of so many milliseconds, in which `waiting` did not draft."""
        self._shared.decode_ms += ms
        for name in waiting:
            if name in self:
                self[name].waited += 1

    def due(self, name: str, cost_ms: float) -> bool:
        """Whether it may be probed at this predicted cost: its wait is over, and all probes of the
        engine's runs stay within one hundredth of their decode time."""
        shared = self._shared
        return self[name].is_over and shared.probe_ms + cost_ms <= SHARE * shared.decode_ms

    def probed(self, name: str, cost_ms: float, *, success: bool) -> None:
        """The result of a probe: on a success it drafts again, else it waits twice as long.

        A concurrent run may have switched it on meanwhile: then only the cost is left to count.
        """
        self._shared.probe_ms += cost_ms
        if success:
            self._own.pop(name, None)
            self._shared.hopeless.pop(name, None)
            self.paid(name)
        elif name in self:
            self[name].failed()
