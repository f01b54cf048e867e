"""Adaptive speculation control (CoSine): more drafting while the LLM waits, less while requests do.

Pure numbers: how many tokens and how many SSMs every request may draft with.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.scheduling.base import count_noun

__all__ = ["SpeculationControl", "SpeculationLimit"]

# Rounds with the same signal before a step is made; doubled, up to LONGEST, after a step that takes
# the last one back, so that a load on the edge between two limits does not flap.
PATIENCE, LONGEST = 4, 64
# The LLM counts as idle if it is busy for less than this share of a round.
IDLE = 0.6
# Rounds without a queue after which a limit is taken back, however busy the LLM is.
QUIET = 64


@dataclass(frozen=True, slots=True)
class SpeculationLimit:
    """At most `length` tokens (0: plain decoding) by at most `drafters` SSMs."""

    length: int
    drafters: int


class SpeculationControl:
    """Steps one limit up and down, between plain decoding and what the requests ask for.

    In the paper an idle LLM is answered with one token or drafter more, from wherever the system
    has begun. Here it begins at the most that a live request asks for, and ends there: `fixed`
    promises always `speculation_length` tokens, other policies found that more do not pay, and
    `routed_drafters` is the user's number of SSMs. So `more` takes back `fewer`, and goes no
    further; nor is one request given more because another asks for it, since a grant is a limit.
    It also does once no request has waited for QUIET rounds: a lone request whose LLM is busy would
    else keep the limit of a queue that is long gone.
    """

    def __init__(self) -> None:
        self.limit: SpeculationLimit | None = None
        self.reason = ""
        self._signal = self._last_step = 0
        self._rounds, self._patience = 0, PATIENCE
        self._queue = self._quiet = 0

    def limit_within(self, length: int, drafters: int) -> SpeculationLimit:
        """The present limit, within what the live requests ask for at most."""
        if self.limit is None:
            return SpeculationLimit(length, drafters)
        return SpeculationLimit(min(self.limit.length, length), min(self.limit.drafters, drafters))

    def observe(self, busy: float, queue: int, granted: SpeculationLimit) -> str:
        """One round: the LLM's share of it, the requests that wait, and what the live ones ask for.
        The decision: `more`, `fewer` or empty."""
        grows = queue > 0 and queue >= self._queue
        self._queue, self._quiet = queue, 0 if queue else self._quiet + 1
        # In plain decoding the LLM waits for no draft, so how busy it is tells nothing.
        idle = busy < IDLE or not self.limit_within(granted.length, granted.drafters).length
        signal = -1 if grows else int(queue == 0 and (idle or self._quiet > QUIET))
        if signal != self._signal:
            self._signal, self._rounds = signal, 0
        self._rounds += 1
        if not signal or self._rounds < self._patience:
            return ""
        limit = self.limit_within(granted.length, granted.drafters)
        after = _fewer(limit) if signal < 0 else _more(limit, granted)
        self._rounds = 0
        if after == limit:
            return ""
        back = self._last_step == -signal
        self._patience = min(LONGEST, 2 * self._patience) if back else self._patience
        self.limit, self._last_step = after, signal
        self.reason = _reason(after, limit, queue, busy if idle else None)
        return "fewer" if signal < 0 else "more"


def _reason(
    after: SpeculationLimit, before: SpeculationLimit, queue: int, busy: float | None
) -> str:
    """Why the limit has become what it is after the step. `busy`: the share of a round in which
    the LLM worked, None where it was not idle."""
    drafts = f"a draft has at most {count_noun(after.length, 'token')}"
    drafts += f" by {count_noun(after.drafters, 'SSM')}"
    if queue:
        waits = "1 request waits" if queue == 1 else f"{queue} requests wait"
        most = drafts if after.length else "no request drafts"
        return f"{most} from now on: {waits} in the queue"
    if not before.length:
        return f"drafting begins again, since no request waits: {drafts}"
    if busy is None:
        return f"{drafts} from now on, more than before: no request has waited for {QUIET} rounds"
    return (
        f"{drafts} from now on, more than before: the LLM worked for {busy:.0%} of a round only, "
        "and no request waits"
    )


def _fewer(limit: SpeculationLimit) -> SpeculationLimit:
    if limit.drafters > 1:
        return SpeculationLimit(limit.length, limit.drafters - 1)
    return SpeculationLimit(max(0, limit.length - 1), limit.drafters)


def _more(limit: SpeculationLimit, granted: SpeculationLimit) -> SpeculationLimit:
    if limit.length < granted.length:
        return SpeculationLimit(limit.length + 1, limit.drafters)
    return SpeculationLimit(limit.length, min(granted.drafters, limit.drafters + 1))
