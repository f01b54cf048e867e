"""When a drafter that did not pay is tried again: ever more rarely, and never at more than a
hundredth of the decode time (ALGORITHMS 4).

Belongs to the engine: a drafter that was hopeless in one run is not tried anew at the start of the
next. Counts rounds of all of the engine's runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Backoff", "Backoffs"]

FIRST, LAST = 16, 128
SHARE = 0.01


@dataclass
class Backoff:
    """One drafter that is switched off: `waited` rounds of the `interval` to its next probe.

    `hopeless`: it did not even pay alone. Otherwise others made it superfluous, in one run.
    """

    hopeless: bool
    interval: int = FIRST
    waited: int = 0


@dataclass
class Backoffs:
    """The drafters that are switched off, by name, and what probing has cost so far."""

    off: dict[str, Backoff] = field(default_factory=dict)
    decode_ms: float = 0.0
    probe_ms: float = 0.0

    def switch_off(self, name: str, *, hopeless: bool) -> None:
        """Its first probe is due after 16 rounds."""
        self.off[name] = Backoff(hopeless)

    def forgive(self, names: tuple[str, ...]) -> None:
        """A new run: what was superfluous in another text may be of use in this one."""
        for name in names:
            if name in self.off and not self.off[name].hopeless:
                del self.off[name]

    def passed(self, ms: float, waiting: tuple[str, ...]) -> None:
        """A round of so many milliseconds, in which `waiting` did not draft."""
        self.decode_ms += ms
        for name in waiting:
            if name in self.off:
                self.off[name].waited += 1

    def due(self, name: str, cost_ms: float) -> bool:
        """Whether it may be probed at this predicted cost: all probes together stay within one
        hundredth of the decode time so far."""
        one = self.off[name]
        affordable = self.probe_ms + cost_ms <= SHARE * self.decode_ms
        return one.waited >= one.interval and affordable

    def probed(self, name: str, cost_ms: float, *, success: bool) -> None:
        """What a probe came to: on a success it drafts again, else it waits twice as long.

        Unless a live neighbour's success, or a new run, has meanwhile switched it on.
        """
        self.probe_ms += cost_ms
        if success or name not in self.off:
            self.off.pop(name, None)
            return
        one = self.off[name]
        one.interval, one.waited = min(2 * one.interval, LAST), 0
