"""Exponential back-off: drafters that did not pay are probed after growing waits.

A drafter that does not pay in a run is at first switched off only for this run: another text may
need it. After several failed runs in a row it is switched off for all runs. Waits are counted in
rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Backoff", "Backoffs", "RunBackoffs"]

# Rounds to wait for the first probe; each failed probe doubles the wait, up to MAX_INTERVAL.
FIRST_INTERVAL, MAX_INTERVAL = 16, 128
# The share of the decode time that all probes together may take.
MAX_PROBE_SHARE = 0.01
# A drafter that did not pay in this many runs in a row is disabled for all runs.
MAX_FAILED_RUNS = 3


@dataclass
class Backoff:
    """The wait of a drafter that is switched off: `interval` rounds, of which `rounds_waited` have
    passed."""

    interval: int = FIRST_INTERVAL
    rounds_waited: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the wait for the next probe is over."""
        return self.rounds_waited >= self.interval

    def record_failure(self) -> None:
        """Starts a new wait, twice as long, up to MAX_INTERVAL."""
        self.interval, self.rounds_waited = min(2 * self.interval, MAX_INTERVAL), 0


@dataclass
class Backoffs:
    """State shared by all runs of an engine. `failed_runs`: by drafter, the number of runs in a row
    in which the drafter did not pay. `decode_ms`: decode time; `probe_ms`: the part that was spent
    on probes."""

    disabled_for_all_runs: dict[str, Backoff] = field(default_factory=dict)
    failed_runs: dict[str, int] = field(default_factory=dict)
    decode_ms: float = 0.0
    probe_ms: float = 0.0


class RunBackoffs:
    """One run's view: the drafters disabled for all runs, and the drafters switched off in this
    run."""

    def __init__(self, shared: Backoffs) -> None:
        self._shared = shared
        self._own: dict[str, Backoff] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._own or name in self._shared.disabled_for_all_runs

    def __getitem__(self, name: str) -> Backoff:
        return self._own.get(name) or self._shared.disabled_for_all_runs[name]

    def switch_off(self, name: str) -> None:
        """Switches a drafter off: for this run, or for all runs if it did not pay in
        MAX_FAILED_RUNS runs in a row."""
        failed_runs = self._shared.failed_runs.get(name, 0) + 1
        self._shared.failed_runs[name] = failed_runs
        is_for_all = failed_runs >= MAX_FAILED_RUNS
        backoffs = self._shared.disabled_for_all_runs if is_for_all else self._own
        backoffs.setdefault(name, Backoff())

    def record_success(self, name: str) -> None:
        """The drafter pays: resets its count of failed runs."""
        self._shared.failed_runs.pop(name, None)

    def record_round(self, ms: float, not_drafting: tuple[str, ...]) -> None:
        """Counts a round of `ms` milliseconds, in which the drafters `not_drafting` did not
        draft."""
        self._shared.decode_ms += ms
        for name in not_drafting:
            if name in self:
                self[name].rounds_waited += 1

    def due(self, name: str, cost_ms: float) -> bool:
        """Whether a drafter may be probed at this predicted cost: its wait is over, and the probes
        stay within MAX_PROBE_SHARE."""
        backoffs = self._shared
        # The share is of all runs together: a short run alone could afford no probe.
        return (
            self[name].is_over
            and backoffs.probe_ms + cost_ms <= MAX_PROBE_SHARE * backoffs.decode_ms
        )

    def record_probe(self, name: str, cost_ms: float, *, success: bool) -> None:
        """Adds the result of a probe. After a success the drafter is on again, after a failure it
        waits again."""
        self._shared.probe_ms += cost_ms
        if success:
            self._own.pop(name, None)
            self._shared.disabled_for_all_runs.pop(name, None)
            self.record_success(name)
        elif name in self:  # a concurrent run may have switched the drafter on
            self[name].record_failure()
