"""When a drafter that did not pay is tried again: ever more rarely, and never at more than a
hundredth of the decode time (ALGORITHMS 4).

A drafter that others made superfluous is a run's own matter, since another text may need it; so is
one that did not pay, until it failed so in several runs: specialised ones pay on some texts only. A
hopeless one is not tried anew at the start of the next run. Counts rounds.
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
    """One run's view: the engine's hopeless drafters, which live neighbours share, and its own
    superfluous ones."""

    def __init__(self, shared: Backoffs) -> None:
        self._shared = shared
        self._superfluous: dict[str, Backoff] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._superfluous or name in self._shared.hopeless

    def __getitem__(self, name: str) -> Backoff:
        return self._superfluous.get(name) or self._shared.hopeless[name]

    def switch_off(self, name: str, *, hopeless: bool) -> None:
        """Its first probe is due after 16 rounds; for one that a neighbour switched off before, as
        it was. `hopeless`: in this run."""
        if hopeless:
            self._shared.strikes[name] = self._shared.strikes.get(name, 0) + 1
        known = self._shared.strikes.get(name, 0) >= STRIKES
        where = self._shared.hopeless if hopeless and known else self._superfluous
        where.setdefault(name, Backoff())

    def paid(self, name: str) -> None:
        """It drafts, and is worth it."""
        self._shared.strikes.pop(name, None)

    def passed(self, ms: float, waiting: tuple[str, ...]) -> None:
        """A round of so many milliseconds, in which `waiting` did not draft."""
        self._shared.decode_ms += ms
        for name in waiting:
            if name in self:
                self[name].waited += 1

    @property
    def decode_ms(self) -> float:
        """Of all the engine's runs so far."""
        return self._shared.decode_ms

    def affordable_from(self, cost_ms: float) -> float:
        """The decode time from which on a probe of this cost is affordable: all probes together
        stay within one hundredth of it."""
        return (self._shared.probe_ms + cost_ms) / SHARE

    def due(self, name: str, cost_ms: float) -> bool:
        """Whether it may be probed at this predicted cost."""
        return self[name].is_over and self.affordable_from(cost_ms) <= self.decode_ms

    def probed(self, name: str, cost_ms: float, *, success: bool) -> None:
        """What a probe came to: on a success it drafts again, else it waits twice as long.

        A live neighbour may have switched it on meanwhile: then only the cost is left to count.
        """
        self._shared.probe_ms += cost_ms
        if success:
            self._superfluous.pop(name, None)
            self._shared.hopeless.pop(name, None)
            self.paid(name)
        elif name in self:
            self[name].failed()
