"""Adaptive speculation control (CoSine): more drafting while the LLM is idle, less while requests
queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from core.plurals import number_of

__all__ = ["SpeculationControl", "SpeculationLimit"]

# A step of the limit needs PATIENCE rounds with the same signal. A step that reverses the last step
# doubles this number, up to LONGEST. Otherwise the limit would alternate.
PATIENCE, LONGEST = 4, 64
# The LLM counts as idle if its pass takes less than this share of a round.
IDLE = 0.6
# Rounds without a queue after which the limit is raised, however busy the LLM is.
QUIET = 64
# After more than this many rounds without a step, the next step needs only PATIENCE rounds again.
FORGET = 4 * LONGEST


@dataclass(frozen=True, slots=True)
class SpeculationLimit:
    """A draft has at most `length` tokens (0: plain decoding), made by at most `drafters` SSMs."""

    length: int
    drafters: int


class SpeculationControl:
    """Moves one limit for all requests, step by step, between plain decoding and the most that a
    live request asks for.

    In the paper the limit has no upper bound. Here the length policies and the user set the upper
    bound. QUIET rounds without a queue also raise the limit: a single request that keeps the LLM
    busy would otherwise keep the limit of a past queue.

    The requested limit varies from round to round, so a step uses the maximum of the last PATIENCE
    rounds. In most rounds no request arrives, so a queue that merely does not shrink counts as
    growing.
    """

    def __init__(self) -> None:
        self.limit: SpeculationLimit | None = None
        self.reason = ""
        self._signal = self._last_step = 0
        self._rounds, self._patience = 0, PATIENCE
        self._queue = self._quiet = self._steady = 0
        self._recent: deque[SpeculationLimit] = deque(maxlen=PATIENCE)

    def limit_within(self, length: int, drafters: int) -> SpeculationLimit:
        """The current limit, cut to `length` tokens and `drafters` SSMs."""
        if self.limit is None:
            return SpeculationLimit(length, drafters)
        return SpeculationLimit(min(self.limit.length, length), min(self.limit.drafters, drafters))

    def observe(self, busy: float, queue: int, requested: SpeculationLimit) -> str:
        """Observes one round and returns the decision: `more`, `fewer` or empty. `busy`: the LLM's
        share of the round's time; `queue`: requests in the queue; `requested`: the most that a live
        request asks for."""
        grows = queue > 0 and queue >= self._queue
        self._queue, self._quiet = queue, 0 if queue else self._quiet + 1
        self._steady += 1
        if self._steady > FORGET:
            self._patience, self._last_step = PATIENCE, 0
        self._recent.append(requested)
        most = SpeculationLimit(
            max(one.length for one in self._recent), max(one.drafters for one in self._recent)
        )
        before = self.limit or most
        # In plain decoding the LLM counts as idle, although it never waits for a draft.
        idle = busy < IDLE or not before.length
        # -1: fewer; 1: more; 0: no step.
        signal = -1 if grows else int(queue == 0 and (idle or self._quiet > QUIET))
        if signal != self._signal or not most.length:
            self._signal, self._rounds = signal, 0
        self._rounds += 1
        if not signal or self._rounds < self._patience:
            return ""
        if signal < 0:
            before = self.limit_within(most.length, most.drafters)
        after = _fewer(before) if signal < 0 else _more(before, most)
        self._rounds = 0
        if after == before:
            return ""
        if self._last_step == -signal:
            self._patience = min(LONGEST, 2 * self._patience)
        self.limit, self._last_step, self._steady = after, signal, 0
        self.reason = _reason(after, before, queue, busy if idle else None)
        return "fewer" if signal < 0 else "more"


def _reason(
    after: SpeculationLimit, before: SpeculationLimit, queue: int, busy: float | None
) -> str:
    """`busy`: as in `observe`; None if the LLM was not idle."""
    drafts = f"a draft has at most {number_of(after.length, 'token')}"
    drafts += f" by {number_of(after.drafters, 'SSM')}"
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
    # Down to one SSM first, then down to plain decoding; `_more` takes the same steps back.
    if limit.drafters > 1:
        return SpeculationLimit(limit.length, limit.drafters - 1)
    return SpeculationLimit(max(0, limit.length - 1), limit.drafters)


def _more(limit: SpeculationLimit, most: SpeculationLimit) -> SpeculationLimit:
    if limit.length < most.length:
        return SpeculationLimit(limit.length + 1, limit.drafters)
    if limit.drafters < most.drafters:
        return SpeculationLimit(limit.length, limit.drafters + 1)
    return limit
