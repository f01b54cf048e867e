"""`shared`: one node budget for all live requests; no request drafts while plain rounds are
measured to be faster.

After TETRIS and vLLM's adaptive verification, with token trees and several drafters: a node is
verified if its probability of being accepted is worth the time that it adds to the batch's pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from core.plurals import number_of
from core.scheduling.base import FREE, BatchOutcome, Grant, LiveRequest, Plan
from core.scheduling.batch_times import BatchTimes, size_class
from core.scheduling.guard import PlainGuard
from core.speculation_length.base import BatchLoad
from core.speculation_length.cost_model import TINY_MS, Average, Meter

__all__ = ["Shared", "node_budget"]

# Limit on the records of requests that are decoded alone, one for each kind of request.
MOST_KINDS = 64
ALONE = "one request is decoded: it has its own budget"


def node_budget(chances: Sequence[float], price: float, added_ms: Callable[[int], float]) -> int:
    """Returns the number of nodes, taken in order of probability, that maximises

        sum of these nodes' chances - price x added_ms(number).

    No other ancestor-closed choice is better: a node is at most as likely as its parent, and the
    time depends on the number alone. `price`: the tokens per millisecond that later passes commit.
    """
    best_count, best_value, total = 0, 0.0, 0.0
    # `added_ms` has steps: later nodes may pay although this node does not.
    for count, chance in enumerate(sorted(chances, reverse=True), start=1):
        total += chance
        if (value := total - price * added_ms(count)) > best_value:
            best_count, best_value = count, value
    return best_count


def _in_turns(count: int, live: int, reason: str) -> str:
    if count == live:
        return reason
    return (
        f"at most {count} of {live} requests share a pass, SSMs draft for the others meanwhile; "
        f"{reason}"
    )


@dataclass
class _SizeRecord:
    """Means per round: committed tokens and milliseconds; verified nodes if the round has drafts.
    `notice`: a decision of the guard that no plan has reported yet; empty if there is none."""

    tokens: Average = field(default_factory=Average)
    ms: Average = field(default_factory=Average)
    nodes: Average = field(default_factory=Average)
    guard: PlainGuard = field(default_factory=PlainGuard)
    notice: str = ""


class Shared:
    """See Scheduler."""

    def __init__(self, times: BatchTimes) -> None:
        self._times = times
        self._records: dict[int, _SizeRecord] = {}
        # The records of requests that are decoded alone, by their kind.
        self._alone: dict[Hashable, _SizeRecord] = {}
        # A round's time outside the models, per request, by whether the round has drafts.
        self._overhead_ms = {False: Meter(), True: Meter()}
        # Per request: `BatchOutcome.open_ms`, and the number of tokens that the request may
        # generate.
        self._open_ms = Meter()
        self._run_tokens = 1.0
        # See BatchLoad; 0: the planned round's trees have no common budget.
        self._price = 0.0
        # Of the planned round.
        self._num_live, self._plain = 0, False
        self._plan_record: _SizeRecord | None = None

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        """See Scheduler."""
        count = self._num_live = len(live)
        group, unlimited = tuple(range(count)), (FREE,) * count
        self._price, self._plain = 0.0, False
        record = self._plan_record = self._record_of(live)
        if record is None:
            return Plan(group, unlimited, reason=ALONE)
        self._run_tokens = sum(one.tokens for one in live) / count
        probes = record.guard.allows_drafts and not record.guard.next_may_draft
        notice = ""
        # A probe leaves the notice to the first round with drafts.
        if not probes:
            notice, record.notice = record.notice, ""
        if not record.guard.next_may_draft:
            self._plain = True
            probe = "one plain round, to measure what drafts are compared with"
            decision = "no request drafts: plain rounds are measured to be faster"
            reason = notice or (probe if probes else decision)
            plain = (Grant(length=0),) * count
            # All in one pass: turns pay only if drafts are made during the passes.
            return Plan(group, plain, None, reason, "plain" if notice else "", next_group=())
        # Requests whose drafts are made during each other's passes are verified in two halves.
        batch = count - sum(one.overlapped for one in live) // 2
        if batch < 2:
            turns = f"{count} requests take turns in the LLM's passes: each has its own budget"
            reason = notice or (ALONE if count < 2 else turns)
            return Plan(group, unlimited, reason=reason, decision="drafts" if notice else "")
        if not record.ms.weight:
            reason = f"the first rounds of {count} requests are measured"
            return Plan(group, unlimited, reason=_in_turns(batch, count, reason))
        load = self._load(batch, sum(one.context for one in live) // count, record)
        self._price = load.price
        min_chance = load.price * load.node_ms
        reason = notice or (
            f"a node is verified if its probability is at least {min_chance:.2f}: it adds "
            f"{load.node_ms:.2f} ms to the pass, in which all requests together write "
            f"{min_chance:.2f} tokens ({1000 * load.price:.0f} a second)"
        )
        reason = _in_turns(batch, count, reason)
        return Plan(group, unlimited, load, reason, "drafts" if notice else "")

    def _record_of(self, live: Sequence[LiveRequest]) -> _SizeRecord | None:
        """The record of the live requests. None for a single request that decodes plainly or whose
        length policy has its own guard."""
        if len(live) > 1:
            return self._record(len(live))
        kind = live[0].kind
        if kind is None:
            return None
        # `_alone` is in order of last use.
        self._alone[kind] = record = self._alone.pop(kind, None) or _SizeRecord()
        if len(self._alone) > MOST_KINDS:
            del self._alone[next(iter(self._alone))]
        return record

    def _record(self, count: int) -> _SizeRecord:
        """The record of a number of live requests. A new record begins with drafting off if
        drafting is off at the next smaller size that has a record: in a larger batch a node adds
        more time to the pass."""
        size = size_class(count)
        if size not in self._records:
            self._records[size] = record = _SizeRecord()
            smaller = max((one for one in self._records if one < size), default=size)
            if not self._records[smaller].guard.allows_drafts:
                record.guard.forbid_like(self._records[smaller].guard)
        return self._records[size]

    def _load(self, count: int, context: int, record: _SizeRecord) -> BatchLoad:
        plain_ms = self._plain_ms(self._num_live, context)
        # The time of a node is a mean over the nodes of an average round with drafts; before the
        # first such round, over one node per request.
        nodes = max(1, round(record.nodes.get(count)))
        added_ms = self._times.verify_ms(count, nodes, context)
        added_ms -= self._times.verify_ms(count, 0, context)
        without_ms, with_ms = (self._overhead_ms[drafts].value for drafts in (False, True))
        overhead_ms = 0.0
        if without_ms is not None and with_ms is not None:
            overhead_ms = max(0.0, with_ms - without_ms)
        # The price is at least the rate of plain rounds, which commit a token in `plain_ms`.
        price = max(record.tokens.get() / record.ms.get(), 1 / plain_ms)
        return BatchLoad(count, plain_ms, max(0.0, added_ms / nodes), overhead_ms, price)

    def _plain_ms(self, count: int, context: int) -> float:
        """The time of a token in plain rounds: one request's share of a round without drafts."""
        overhead_ms = self._overhead_ms[False].get(self._overhead_ms[True].get())
        return max(TINY_MS, self._times.verify_ms(count, 0, context) / count + overhead_ms)

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        """See Scheduler."""
        if not self._price:
            return None
        count = len(chances)
        base_ms = self._times.verify_ms(count, 0, context)
        return node_budget(
            [chance for one in chances for chance in one],
            self._price,
            lambda nodes: self._times.verify_ms(count, nodes, context) - base_ms,
        )

    def observe(self, outcome: BatchOutcome) -> None:
        """See Scheduler."""
        count, has_drafts = outcome.requests, outcome.steps > 0
        self._times.observe(outcome)
        self._overhead_ms[has_drafts].add(max(0.0, outcome.between_ms) / count)
        if outcome.num_opened:
            self._open_ms.add(outcome.open_ms / outcome.num_opened)
        # The record lacks rounds that were planned as plain but verified earlier drafts.
        record = self._plan_record
        if record is None or not outcome.tokens or (has_drafts and self._plain):
            return
        requests = number_of(self._num_live, "request")
        ms = outcome.wall_ms - outcome.open_ms
        record.tokens.add(outcome.tokens)
        record.ms.add(ms)
        if has_drafts:
            record.nodes.add(outcome.nodes)
            if record.guard.observe_drafted(
                outcome.tokens,
                # The SSMs' reading of a prompt is spread over the tokens of its run.
                ms=ms + outcome.tokens * self._open_ms.get() / self._run_tokens,
                total_ms=outcome.wall_ms,
                plain_ms=self._plain_ms(self._num_live, outcome.context),
                requests=self._num_live,
            ):
                record.notice = (
                    f"no request drafts from now on: with {requests} a token took "
                    f"{record.guard.relative_cost:.2f} times as long as in plain rounds"
                )
        elif record.guard.observe_plain():
            record.notice = f"drafting is tried again with {requests}"
