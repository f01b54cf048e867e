"""CoSine's scheduler."""

import itertools
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.models.kv_cache import UNCHECKED_BYTES
from core.scheduling import batch_times
from core.scheduling.base import BatchOutcome, Grant, LiveRequest, Plan
from core.scheduling.batch_times import BatchTimes
from core.scheduling.control import LONGEST, PATIENCE, QUIET, SpeculationControl, SpeculationLimit
from core.scheduling.cosine import (
    MAX_PASS_NODES,
    MOST_TIME,
    NODE_WEIGHT,
    Cosine,
    PassGroup,
    best_group,
    trim_lengths,
    trim_to_memory,
)
from core.speculation_length.cost_model import Costs, VerifyCosts

TABLE = VerifyCosts({0: 1.0, 1: 1.2, 8: 3.0, 64: 18.0}, 64)
REQUESTED = SpeculationLimit(4, 2)


class Fixed:
    """BatchCosts (core.scheduling.base) with given numbers."""

    memory = math.inf

    def __init__(self, draft: float, row: float, node: float, token: float) -> None:
        self.draft, self.row, self.node, self.token = draft, row, node, token

    def verify_ms(self, requests: int, nodes: int, context: int) -> float:
        return 1.0 + requests * (self.row + self.token * context) + self.node * nodes

    def draft_ms(self, requests: int, length: int) -> float:
        return self.draft * (1 + 0.1 * requests) * length

    def fits(self, requests: int, width: int, extent: int) -> bool:
        return requests * (100 * width + extent) <= self.memory


@pytest.mark.parametrize("seed", range(12))
def test_the_group_is_the_best_of_those_with_the_longest_waiting_request(seed: int) -> None:
    rng = random.Random(seed)
    costs = Fixed(rng.random(), rng.random(), 0.2, rng.choice([0.0, 0.01, 0.1]))
    live = [
        LiveRequest(
            rng.randint(10, 400),
            4,
            rounds_waited=rng.randint(0, 2),
            overlapped=seed % 2 == 0,
            width=rng.choice([1.0, 2.5, 4.0]),
        )
        for _ in range(rng.randint(1, 4))
    ]
    lengths = [rng.randint(0, 8) for _ in live]
    result = best_group(live, lengths, len(live), costs)
    first = max(range(len(live)), key=lambda i: (live[i].rounds_waited, -i))
    assert first in result.members

    def cost(members: tuple[int, ...]) -> float:
        cut = trim_lengths(
            [live[i] for i in members], [lengths[i] for i in members], MAX_PASS_NODES
        )
        nodes = round(sum(n * live[i].width for i, n in zip(members, cut, strict=True)))
        draft = costs.draft_ms(len(members), max(cut))
        verify = costs.verify_ms(len(members), nodes, max(live[i].context for i in members))
        ms = max(draft, verify) if live[0].overlapped else draft + verify
        weight = NODE_WEIGHT * costs.verify_ms(1, 0, live[first].context)
        return ms / len(members) + weight * nodes

    order = sorted(range(len(live)), key=lambda i: (live[i].context, i))
    windows = [tuple(order[a:b]) for a, b in itertools.combinations(range(len(live) + 1), 2)]
    assert result.cost == pytest.approx(min(cost(w) for w in windows if first in w))


@pytest.mark.parametrize("memory", [500, 1500, 3000, 6000])
@pytest.mark.parametrize("seed", range(6))
def test_of_the_groups_that_fit_into_memory_the_best_is_chosen(seed: int, memory: int) -> None:
    rng = random.Random(seed)
    costs = Fixed(rng.random(), 0.5, 0.2, 0.01)
    costs.memory = memory
    live = [
        LiveRequest(rng.randint(10, 400), 4, rounds_waited=rng.randint(0, 2))
        for _ in range(rng.randint(2, 4))
    ]
    lengths = [rng.randint(1, 5) for _ in live]
    result = best_group(live, lengths, len(live), costs)
    first = max(range(len(live)), key=lambda i: (live[i].rounds_waited, -i))

    def fits(members: Sequence[int], drafts: Sequence[int]) -> bool:
        extent = max(live[i].context + 1 + n for i, n in zip(members, drafts, strict=True))
        return len(members) * (100 * (1 + max(drafts)) + extent) <= memory

    def cost(members: Sequence[int], drafts: Sequence[int]) -> float:
        context = max(live[i].context for i in members)
        ms = costs.draft_ms(len(members), max(drafts))
        ms += costs.verify_ms(len(members), sum(drafts), context)
        weight = NODE_WEIGHT * costs.verify_ms(1, 0, live[first].context)
        return ms / len(members) + weight * sum(drafts)

    order = sorted(range(len(live)), key=lambda i: (live[i].context, i))
    best = {}
    for a, b in itertools.combinations(range(len(live) + 1), 2):
        members = order[a:b]
        choices = itertools.product(*(range(lengths[i] + 1) for i in members))
        fitting = [one for one in choices if fits(members, one)]
        if first in members and fitting:
            # The longest drafts are cut first, and only as far as memory demands.
            longest = max(max(one) for one in fitting)
            trimmed = tuple(min(lengths[i], longest) for i in members)
            assert fits(members, trimmed)
            best[tuple(members)] = trimmed
    if not best:  # the request that waited longest does not fit: it is verified alone
        assert result.members == (first,)
        return
    drafts = best[result.members]
    assert sum(result.lengths) >= sum(drafts) and max(result.lengths) == max(drafts)
    costs_of = {members: cost(members, drafts) for members, drafts in best.items()}
    assert result.members == min(costs_of, key=lambda one: costs_of[one])


@pytest.mark.parametrize("seed", range(30))
def test_drafts_are_trimmed_as_if_for_their_group_alone(seed: int) -> None:
    rng = random.Random(seed)
    costs = Fixed(rng.random() / 8, rng.random(), 0.02, rng.choice([0.0, 0.001]))
    costs.memory = rng.choice([math.inf, 2000, 5000, 10000])
    live = [
        LiveRequest(
            rng.choice([50, 60, rng.randint(10, 400)]),
            16,
            rounds_waited=rng.randint(0, 2),
            ready=rng.random() < 0.2,
            width=rng.choice([1.0, 1.0, 2.5, 8.0, 1 + rng.random()]),
        )
        for _ in range(rng.randint(5, 10))
    ]
    lengths = [rng.choice([0, 4, rng.randint(1, 16)]) for _ in live]
    largest = rng.randint(1, len(live))
    order = sorted(range(len(live)), key=lambda i: (live[i].context, i))
    first = max(range(len(live)), key=lambda i: (live[i].rounds_waited, -i))
    plain_ms = costs.verify_ms(1, 0, live[first].context)
    most_ms = MOST_TIME * costs.verify_ms(len(live), 0, max(one.context for one in live))
    groups = []
    for size, start in itertools.product(range(1, largest + 1), range(len(live))):
        members = order[start : start + size]
        if first not in members or len(members) < size:
            continue
        group = [live[i] for i in members]
        cut = trim_lengths(group, [lengths[i] for i in members], MAX_PASS_NODES)
        fitting = trim_to_memory(group, cut, costs)
        if fitting is None and size > 1:
            continue
        drafts = cut if fitting is None else fitting
        nodes = round(sum(one.width * n for one, n in zip(group, drafts, strict=True)))
        ms = costs.draft_ms(size, max(drafts))
        ms += costs.verify_ms(size, nodes, max(one.context for one in group))
        if ms <= most_ms or size == 1:
            cost = ms / size + NODE_WEIGHT * plain_ms * nodes
            groups.append(PassGroup(tuple(members), drafts, nodes, cost))
    assert best_group(live, lengths, largest, costs) == min(groups, key=lambda one: one.cost)


@pytest.mark.parametrize("wide", [0, 2])
def test_of_groups_that_take_equally_long_that_of_fewer_nodes_is_verified(wide: int) -> None:
    """With more tree nodes, the predicted time is more likely to be wrong."""
    costs = Fixed(0.0, 1.0, 0.0, 0.0)
    live = [LiveRequest(50 + i, 4, width=4.0 if i == wide else 1.0) for i in range(3)]
    live[1] = replace(live[1], rounds_waited=1)
    assert best_group(live, [4] * 3, 2, costs).members == ((1, 2) if wide == 0 else (0, 1))


class TimeOfEachRequest(Fixed):
    def verify_ms(self, requests: int, nodes: int, context: int) -> float:
        return float(requests)


def test_a_request_shares_no_pass_that_saves_no_time() -> None:
    costs = TimeOfEachRequest(0.0, 0.0, 0.0, 0.0)
    live = [LiveRequest(50 + i, 0, rounds_waited=int(i == 1)) for i in range(3)]
    assert best_group(live, [0] * 3, 3, costs).members == (1,)


@pytest.mark.parametrize(("draft", "size"), [(2.0, 4), (2.7, 3), (2.95, 2), (10.0, 1)])
def test_a_round_takes_at_most_as_long_as_eight_plain_ones(draft: float, size: int) -> None:
    """A group of one request has no limit."""
    costs = Fixed(draft, 0.25, 0.0, 0.0)
    live = [LiveRequest(64, 4)] * 4
    result = best_group(live, [4] * 4, 4, costs)
    assert result.members == tuple(range(size))

    def round_ms(requests: int) -> float:
        return costs.draft_ms(requests, 4) + costs.verify_ms(requests, 16, 64)

    assert round_ms(4) / 4 < round_ms(3) / 3 < round_ms(2) / 2 < round_ms(1)
    limit = 8 * costs.verify_ms(4, 0, 64)
    assert [n for n in range(2, 5) if round_ms(n) <= limit] == [*range(2, size + 1)]


def test_a_pass_too_large_for_memory_is_trimmed_at_its_longest_draft() -> None:
    costs = Fixed(1.0, 1.0, 1.0, 0.0)
    group = [LiveRequest(100, 8), LiveRequest(50, 8)]
    for memory, lengths in ((math.inf, (8, 2)), (1300, (4, 2)), (900, (2, 2)), (500, (0, 0))):
        costs.memory = memory
        assert trim_to_memory(group, (8, 2), costs) == lengths
    costs.memory = 300
    assert trim_to_memory(group, (8, 2), costs) is None
    ready = [replace(one, ready=True) for one in group]
    costs.memory = 900
    assert trim_to_memory(ready, (8, 2), costs) is None, "a finished draft is not cut"


def test_a_pass_fits_into_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = SimpleNamespace(device=None, pass_bytes=lambda rows, width, extent: rows * width * extent)
    times, reads = BatchTimes(Costs(cast(Any, llm), TABLE)), []

    def free(device: object) -> int:
        reads.append(device)
        return 3 * UNCHECKED_BYTES

    monkeypatch.setattr(batch_times, "available_bytes", free)
    assert times.fits(1, 1, UNCHECKED_BYTES) and not reads
    assert times.fits(3, 1, UNCHECKED_BYTES) and not times.fits(4, 1, UNCHECKED_BYTES)
    assert len(reads) == 1
    times.observe(BatchOutcome(1, 64, 1, 1, 1.0, 0.0, 1.0))
    assert not times.fits(4, 1, UNCHECKED_BYTES) and len(reads) == 2
    assert BatchTimes(Costs(cast(Any, None), TABLE)).fits(4, 1, UNCHECKED_BYTES)


def test_over_the_limit_the_longest_draft_is_cut_first() -> None:
    one = LiveRequest(64, 4)
    assert trim_lengths([one] * 3, [8, 3, 5], 12) == (5, 3, 4)
    assert trim_lengths([one] * 2, [2, 2], 9) == (2, 2)
    assert sum(trim_lengths([one] * 8, [16] * 8, MAX_PASS_NODES)) == MAX_PASS_NODES


def test_the_longest_draft_is_that_of_most_nodes() -> None:
    wide = LiveRequest(64, 4, width=3.0)
    assert trim_lengths([LiveRequest(64, 4), wide], [8, 4], 14) == (8, 2)


def test_a_finished_draft_is_not_cut() -> None:
    assert trim_lengths([LiveRequest(64, 4, ready=True), LiveRequest(64, 4)], [8, 4], 9) == (8, 1)
    assert trim_lengths([LiveRequest(64, 4, ready=True)], [8], 5) == (8,)


def test_no_request_waits_for_ever() -> None:
    """Contexts differ so much that each request is best verified alone."""
    scheduler = Cosine(BatchTimes(Costs(cast(Any, None), TABLE)))
    waited = [0] * 6
    for _ in range(60):
        live = [LiveRequest(50 * 4**i, 4, rounds_waited=waited[i]) for i in range(6)]
        group = scheduler.plan(live, 0).group
        waited = [0 if i in group else waited[i] + 1 for i in range(6)]
        assert max(waited) <= 5, "at most one pass for each other request"


def decisions_of(signals: list[tuple[float, int]]) -> list[str]:
    control = SpeculationControl()
    return [control.observe(busy, queue, REQUESTED) for busy, queue in signals]


def test_a_growing_queue_ends_drafting_and_an_idle_llm_brings_it_back() -> None:
    control = SpeculationControl()
    for queue in range(1, 40):
        control.observe(0.9, queue, REQUESTED)
    assert control.limit == SpeculationLimit(0, 1)
    ended = r"no request drafts from now on: \d+ requests wait in the queue"
    assert re.fullmatch(ended, control.reason)
    reasons = []
    for _ in range(2 * LONGEST + 400):
        if control.observe(0.3, 0, REQUESTED):
            reasons.append(control.reason)
    assert control.limit == REQUESTED
    first, second, *_ = reasons
    assert first == (
        "drafting begins again, since no request waits: a draft has at most 1 token by 1 SSM"
    )
    assert second.startswith("a draft has at most 2 tokens by 1 SSM from now on, more than before:")


@pytest.mark.parametrize("rounds", [2 * PATIENCE, 1000])
def test_a_queue_that_does_not_shrink_ends_drafting(rounds: int) -> None:
    control = SpeculationControl()
    for place in range(12 * PATIENCE):
        control.observe(0.9, 1 + place // rounds, REQUESTED)
    assert control.limit == SpeculationLimit(0, 1)
    shrinking = SpeculationControl()
    assert not any(shrinking.observe(0.9, 100 - place, REQUESTED) for place in range(90))


def limits_of(requested: Sequence[SpeculationLimit]) -> list[SpeculationLimit]:
    control, limits = SpeculationControl(), []
    for queue, limit in enumerate(requested, start=1):
        if control.observe(0.9, queue, limit):
            assert control.limit is not None
            limits.append(control.limit)
    return limits


@pytest.mark.parametrize("short", [0, 1])
@pytest.mark.parametrize("place", range(PATIENCE))
def test_a_round_with_a_short_draft_ends_drafting_no_sooner(short: int, place: int) -> None:
    """The length policy `goodput` changes the draft length from round to round."""
    requested_limits = [
        SpeculationLimit(short, 2) if i % PATIENCE == place else REQUESTED for i in range(40)
    ]
    shorter_limits = [SpeculationLimit(*pair) for pair in ((4, 1), (3, 1), (2, 1), (1, 1), (0, 1))]
    assert limits_of(requested_limits) == shorter_limits
    no_drafts = [SpeculationLimit(0, 2)] * 40
    assert limits_of(no_drafts) == [], "nothing to shorten"
    assert limits_of([*no_drafts, *requested_limits]) == shorter_limits


def test_a_round_with_a_short_draft_brings_drafting_back_no_later() -> None:
    control = SpeculationControl()
    for queue in range(1, 14):
        control.observe(0.9, queue, REQUESTED)
    before = control.limit
    assert before == SpeculationLimit(2, 1)
    for _ in range(4 * LONGEST):
        decision = control.observe(0.3, 0, SpeculationLimit(0, 1))
        assert not decision and control.limit == before, "no request drafts"
    for i in range(2 * LONGEST):
        control.observe(0.3, 0, SpeculationLimit(1, 1) if i % PATIENCE else REQUESTED)
        assert control.limit_within(4, 2).length >= before.length, "`more` never lowers the limit"
    assert control.limit == REQUESTED


def test_plain_decoding_ends_with_the_queue_even_if_the_llm_is_busy() -> None:
    control = SpeculationControl()
    for queue in range(1, 40):
        control.observe(0.95, queue, REQUESTED)
    assert control.limit_within(4, 2).length == 0
    for _ in range(2 * LONGEST):
        control.observe(0.95, 0, REQUESTED)
    assert control.limit_within(4, 2).length > 0


def test_a_limit_ends_some_time_after_the_queue() -> None:
    """The limit also ends while the LLM is busy, since the queue was the reason for the limit."""
    control = SpeculationControl()
    for queue in range(1, 14):
        control.observe(0.9, queue, REQUESTED)
    limit = control.limit_within(4, 2)
    assert limit not in (REQUESTED, SpeculationLimit(0, 1))
    assert not any(control.observe(0.7, 0, REQUESTED) for _ in range(QUIET))
    results = [control.observe(0.7, 0, REQUESTED) for _ in range(4 * LONGEST)]
    assert control.limit == REQUESTED and "fewer" not in results
    assert control.reason.endswith("more than before: no request has waited for 64 rounds")


def test_limits_do_not_alternate() -> None:
    assert not any(decisions_of([(0.3, 0), (0.9, 1)] * 100)), "signals that change each round"
    assert not any(decisions_of([(0.8, 0)] * 100)), "an LLM that is busy, and no request waits"
    # The requested limit fills the queue, and a stricter limit empties the queue.
    control, results, queue = SpeculationControl(), [], 0
    for _ in range(4000):
        queue = queue + 1 if control.limit_within(4, 2) == REQUESTED else 0
        results.append(control.observe(0.5, queue, REQUESTED))
    decisions = [place for place, one in enumerate(results) if one]
    gaps = [after - before for before, after in itertools.pairwise(decisions)]
    assert gaps[0] <= 2 * PATIENCE and min(gaps[-5:]) >= LONGEST / 2


def test_a_burst_is_answered_however_many_came_before() -> None:
    control = SpeculationControl()
    for _ in range(8):
        burst = [
            control.observe(0.8, 2 + number // 6 - (number % 8 == 7), REQUESTED)
            for number in range(80)
        ]
        assert "fewer" in burst[: 2 * PATIENCE] and burst.count("fewer") > 1
        for _ in range(1000):
            control.observe(0.8, 0, REQUESTED)
        assert control.limit == REQUESTED


def plans_with(live: Sequence[LiveRequest], queue: Sequence[int]) -> list[Plan]:
    """The drafts that a plan asks for are ready in the next plan."""
    scheduler = Cosine(BatchTimes(Costs(cast(Any, None), TABLE)))
    ready, plans = dict.fromkeys(range(len(live)), False), []
    for waiting in queue:
        plan = scheduler.plan([replace(one, ready=ready[i]) for i, one in enumerate(live)], waiting)
        plans.append(plan)
        ready |= dict.fromkeys(plan.group, False) | dict.fromkeys(plan.next_group or (), True)
        count = len(plan.group)
        steps = max(plan.grants[i].length or 0 for i in plan.group)
        scheduler.observe(
            BatchOutcome(count, 64, 0, count, 5.0, 1.0, 6.0, steps=steps, num_queued=waiting)
        )
    return plans


def test_where_no_request_drafts_none_waits_for_its_turn() -> None:
    live = [LiveRequest(64, 4, 2, overlapped=True)] * 4
    plans = plans_with(live, [*range(1, 60)])
    assert max(len(plan.group) for plan in plans[:20]) == 2, "SSMs draft for the other half"
    assert {grant.length for grant in plans[-1].grants} == {0}
    assert {plan.group for plan in plans[-20:]} == {(0, 1, 2, 3)}
    assert {plan.next_group for plan in plans[-20:]} == {()}


def test_a_request_that_drafts_nothing_waits_for_no_turn() -> None:
    """The length policy of the last request found that drafts do not pay."""
    live = [*[LiveRequest(64, 4, overlapped=True)] * 4, LiveRequest(64, 0, overlapped=True)]
    # The first pass may leave request 4 out: no draft is ready yet, so all requests compete.
    assert all(4 in plan.group for plan in plans_with(live, [0] * 30)[1:])


def test_a_rounds_outcome_reaches_the_next_plan() -> None:
    scheduler = Cosine(BatchTimes(Costs(cast(Any, None), TABLE)))
    live = [LiveRequest(64, 4, 2)] * 4
    steps = []
    for waiting in range(1, 30):
        plan = scheduler.plan(live, waiting)
        if plan.decision:
            assert plan.decision == "fewer"
            assert plan.reason.endswith(f" from now on: {_waits(waiting - 1)} in the queue")
            steps.append(plan.grants[0])
        scheduler.observe(BatchOutcome(4, 64, 8, 8, 5.0, 1.0, 8.0, steps=4, num_queued=waiting))
    assert steps == [Grant(4, 1), Grant(3, 1), Grant(2, 1), Grant(1, 1), Grant(0, 1)]
    assert set(plan.grants) == {Grant(0, 1)} and not plan.decision


def _waits(requests: int) -> str:
    return "1 request waits" if requests == 1 else f"{requests} requests wait"


def test_an_idle_llm_grants_no_more_than_a_request_wants() -> None:
    scheduler = Cosine(BatchTimes(Costs(cast(Any, None), TABLE)))
    live = [LiveRequest(64, 4, 2), LiveRequest(64, 2, 1)]
    for _ in range(4 * LONGEST):
        plan = scheduler.plan(live, 0)
        assert plan.decision == "" and plan.grants == (Grant(4, 2), Grant(2, 2))
        scheduler.observe(BatchOutcome(2, 64, 8, 8, 1.0, 7.0, 8.0, steps=4))
