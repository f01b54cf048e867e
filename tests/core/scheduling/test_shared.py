"""The schedule `shared`: node budgets and plain rounds."""

import itertools
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from core.engine.batch_schedule import _likeliest
from core.scheduling.base import FREE, BatchOutcome, LiveRequest
from core.scheduling.batch_times import BatchTimes
from core.scheduling.guard import ENOUGH, FIRST_WAIT, MAX_WAIT, OPENING_SHARE, PlainGuard
from core.scheduling.shared import MOST_KINDS, Shared, node_budget
from core.speculation_length.cost_model import Costs, VerifyCosts

LIVE = [LiveRequest(64, 8)] * 4


def closed_sets(parents: Sequence[int]) -> list[frozenset[int]]:
    nodes = range(len(parents))
    sets = (frozenset(c) for n in range(len(parents) + 1) for c in itertools.combinations(nodes, n))
    return [s for s in sets if all(parents[node] < 0 or parents[node] in s for node in s)]


@pytest.mark.parametrize("seed", range(8))
def test_the_budget_is_the_optimum_over_all_ancestor_closed_choices(seed: int) -> None:
    rng = random.Random(seed)
    parents: list[int] = []
    chances: list[float] = []
    for _ in range(rng.randint(1, 4)):
        first = len(parents)
        for number in range(3):
            parent = rng.choice([-1, *range(first, first + number)]) if number else -1
            parents.append(parent)
            chances.append(rng.random() * (1.0 if parent < 0 else chances[parent]))
    step = rng.choice([1, 3, 4])

    def added_ms(nodes: int) -> float:
        return 0.4 * (-(-nodes // step)) * step

    price = rng.choice([0.3, 0.8, 2.0])
    best = max(sum(chances[n] for n in s) - price * added_ms(len(s)) for s in closed_sets(parents))
    count = node_budget(chances, price, added_ms)
    result = sum(sorted(chances, reverse=True)[:count]) - price * added_ms(count)
    assert result == pytest.approx(best, abs=1e-9)


def test_of_equally_likely_nodes_a_parent_is_kept_before_its_child() -> None:
    """If an SSM is sure of a token, the token's node is as likely as its parent."""
    chances = [[0.5, 0.5, 0.5], [0.5, 0.2]]
    assert _likeliest(chances, 1) == [[0], []]
    assert _likeliest(chances, 2) == [[0, 1], []]
    assert _likeliest(chances, 4) == [[0, 1, 2], [0]]


@pytest.mark.parametrize(
    ("across", "beginning"),
    [
        (0, ""),
        (4, "at most 2 of 4 requests share a pass, SSMs draft for the others meanwhile; "),
        (2, "at most 3 of 4 requests share a pass, SSMs draft for the others meanwhile; "),
    ],
)
def test_the_reason_says_that_half_are_drafted_meanwhile(across: int, beginning: str) -> None:
    shared = Shared(BatchTimes(Costs(cast(Any, None), TABLE)))
    live = [LiveRequest(64, 4, overlapped=i < across) for i in range(4)]
    count = 4 - across // 2
    first = f"{beginning}the first rounds of 4 requests are measured"
    assert shared.plan(live, 0).reason == first
    shared.observe(BatchOutcome(count, 64, 8, 8, 5.0, 1.0, 8.0, steps=4))
    reason = shared.plan(live, 0).reason
    assert reason.startswith(f"{beginning}a node is verified if its probability is at least 0.")
    two = [LiveRequest(64, 4, overlapped=True)] * 2
    assert shared.plan(two, 0).reason.startswith("2 requests take turns in the LLM's passes")
    assert shared.plan(two[:1], 0).reason.startswith("one request is decoded")


TABLE = VerifyCosts({0: 1.0, 1: 1.2, 8: 3.0, 64: 18.0}, 64)


class Machine:
    """A simulated batch. With `turns`, SSMs draft for one half of the requests while the other half
    is verified. `open_ms`: the time in which SSMs read one prompt."""

    def __init__(
        self,
        requests: int,
        draft_ms: float,
        accepted: float,
        turns: bool = False,
        open_ms: float = 0.0,
    ) -> None:
        self.shared = Shared(BatchTimes(Costs(cast(Any, None), TABLE)))
        self.live = [LiveRequest(64, 4, overlapped=turns)] * requests
        self.draft_ms, self.accepted, self.turns = draft_ms, accepted, turns
        self.open_ms = open_ms
        self.waiting = 0
        self.ms = self.tokens = 0.0
        self.kinds: list[bool] = []

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            plan = self.shared.plan(self.live, 0)
            drafted = all(grant.length is None for grant in plan.grants)
            count = len(plan.group)
            if self.turns and plan.next_group is None:
                count //= 2
            with_drafts = count if drafted else self.waiting
            nodes, tokens = 0, float(count)
            if with_drafts:
                chances = [[self.accepted / 4] * 4] * with_drafts
                budget = self.shared.budget(chances, 64)
                nodes = 4 * with_drafts if budget is None else budget
                tokens += nodes * self.accepted / 4
            draft_ms = self.draft_ms * count if drafted else 0.0
            self.waiting = count if drafted and self.turns else 0
            llm_ms = 1.0 + 0.5 * count + 0.2 * nodes
            model_ms = max(llm_ms, draft_ms) if self.turns else llm_ms + draft_ms
            opened = count if self.open_ms and drafted and not any(self.kinds[-FIRST_WAIT:]) else 0
            wall_ms = model_ms + 0.4 * count + opened * self.open_ms
            self.shared.observe(
                BatchOutcome(
                    requests=count, context=64, nodes=nodes, tokens=round(tokens), llm_ms=llm_ms,
                    draft_ms=draft_ms, wall_ms=wall_ms, between_ms=0.4 * count,
                    steps=4 if with_drafts else 0, open_ms=opened * self.open_ms, num_opened=opened,
                )
            )  # fmt: skip
            self.ms += wall_ms
            self.tokens += tokens
            self.kinds.append(drafted)

    @property
    def speedup(self) -> float:
        count = len(self.live)
        return (self.tokens / self.ms) / (count / (1.0 + 0.9 * count))


def test_drafts_that_pay_are_kept_and_plain_rounds_are_probed_rarely() -> None:
    machine = Machine(8, draft_ms=0.2, accepted=3.0)
    machine.run(500)
    assert machine.speedup > 1.3
    assert 0.97 < sum(machine.kinds) / 500 < 1


@pytest.mark.parametrize("requests", [2, 4, 8, 32])
@pytest.mark.parametrize(("draft_ms", "accepted"), [(2.0, 1.0), (0.5, 0.1), (5.0, 4.0)])
@pytest.mark.parametrize("turns", [False, True])
def test_drafts_that_cost_more_than_they_gain_stop(
    requests: int, draft_ms: float, accepted: float, turns: bool
) -> None:
    machine = Machine(requests, draft_ms, accepted, turns)
    machine.run(1000)
    assert machine.speedup > 0.9
    first_speedup, machine.ms, machine.tokens = machine.speedup, 0.0, 0.0
    machine.run(3000)
    assert machine.speedup > max(0.97, min(first_speedup, 0.99))


def test_in_a_plain_round_all_pipelined_requests_share_the_pass() -> None:
    machine = Machine(8, draft_ms=5.0, accepted=1.0, turns=True)
    machine.run(40)
    assert not machine.kinds[-1]
    plan = machine.shared.plan(machine.live, 0)
    assert (plan.group, plan.next_group) == (tuple(range(8)), ())
    assert plan.reason == "no request drafts: plain rounds are measured to be faster"


def test_a_larger_batch_begins_without_drafts_where_a_smaller_one_has_none() -> None:
    machine = Machine(4, draft_ms=5.0, accepted=1.0)
    machine.run(40)
    assert not machine.kinds[-1]
    machine.live, machine.kinds = [LiveRequest(64, 8)] * 16, []
    machine.run(machine.shared._record(4).guard._wait_rounds)
    assert not any(machine.kinds)
    machine.run(2)
    assert machine.kinds[-1], "then drafting is tried"
    machine.live, machine.kinds = [LiveRequest(64, 8)] * 2, []
    machine.run(3)
    assert any(machine.kinds), "a smaller batch does not follow a larger batch"


def test_a_decision_is_reported_with_the_number_of_requests_that_it_is_about() -> None:
    machine = Machine(4, draft_ms=5.0, accepted=1.0)
    while machine.shared._record(4).guard.allows_drafts:
        machine.run(1)
    for fewer in (machine.live[:2], machine.live[:1]):  # the other requests ended
        plan = machine.shared.plan(fewer, 0)
        assert plan.decision == "" and "no request drafts" not in plan.reason
    plan = machine.shared.plan(machine.live, 0)
    assert plan.decision == "plain"
    assert plan.reason.startswith("no request drafts from now on: with 4 requests")
    assert machine.shared.plan(machine.live, 0).decision == ""


@pytest.mark.parametrize("num_drafted", [4, 5])
def test_a_new_trial_is_reported_by_a_round_with_drafts(num_drafted: int) -> None:
    """After four rounds with drafts, the first round of the trial is a probe, which has no
    drafts."""
    machine = Machine(4, draft_ms=0.5, accepted=1.0)
    record = machine.shared._record(4)
    for _ in range(num_drafted):
        observe_drafted(record.guard, 1.0)
    record.guard.forbid_like(PlainGuard())
    machine.run(FIRST_WAIT)
    plans = []
    for _ in range(2):
        plans.append(machine.shared.plan(machine.live, 0))
        machine.shared.observe(BatchOutcome(4, 64, 0, 4, 3.0, 0.0, 5.0, between_ms=1.6))
    decisions = [plan for plan in plans if plan.decision]
    assert [(plan.decision, plan.grants[0].length) for plan in decisions] == [("drafts", None)]
    assert "drafting is tried again with 4 requests" in decisions[0].reason


def observe_drafted(
    guard: PlainGuard, ms: float, tokens: float = 1.0, total_ms: float = 0.0, requests: int = 1
) -> bool:
    return guard.observe_drafted(tokens, ms=ms, total_ms=total_ms, plain_ms=1.0, requests=requests)


def trial_wait(guard: PlainGuard, *, cost: float, opening: float = 0.0, requests: int = 1) -> int:
    """`cost`: milliseconds per token; `opening`: additional milliseconds per token in the first
    round."""
    while not observe_drafted(
        guard, cost * requests, requests, (cost + opening) * requests, requests
    ):
        assert guard.allows_drafts
        opening = 0.0
    return sum(1 for _ in iter(guard.observe_plain, True)) + 1


@pytest.mark.parametrize("requests", [1, 4, 32])
@pytest.mark.parametrize("opening", [0.0, 5.0, 20.0])
def test_reading_prompts_for_trials_takes_a_fiftieth_of_the_time(
    requests: int, opening: float
) -> None:
    guard = PlainGuard()
    for trial in range(3):
        wait = trial_wait(guard, cost=1.3, opening=opening, requests=requests)
        assert wait == pytest.approx(max(FIRST_WAIT * 2**trial, opening / OPENING_SHARE), abs=1)


def test_the_guards_wait_doubles_and_drafts_that_pay_reset_it() -> None:
    guard = PlainGuard()
    waits = [trial_wait(guard, cost=1.3) for _ in range(7)]
    assert waits == [*(n * FIRST_WAIT for n in (1, 2, 4, 8)), MAX_WAIT, MAX_WAIT, MAX_WAIT]
    assert not observe_drafted(guard, 0.5, total_ms=50.0)
    for _ in range(ENOUGH):
        assert not observe_drafted(guard, 0.5)
    assert trial_wait(guard, cost=2.5) == FIRST_WAIT, "drafts have paid for reading prompts"
    assert trial_wait(guard, cost=1.3, opening=1e6) == MAX_WAIT


@pytest.mark.parametrize(("run_tokens", "pays"), [(128, True), (16, False)])
def test_the_time_of_reading_a_prompt_is_divided_among_its_runs_tokens(
    run_tokens: int, pays: bool
) -> None:
    """Without reading prompts, a token takes 0.75 ms in plain rounds and 0.48 ms in rounds with
    drafts."""
    shared, live = new_shared(), [LiveRequest(64, 4, tokens=run_tokens)] * 8
    prices = []
    for _ in range(12):
        plan = shared.plan(live, 0)
        if plan.grants[0].length == 0:
            outcome = BatchOutcome(8, 64, 0, 8, 2.8, 0.0, 6.0, between_ms=3.2)
        else:
            outcome = BatchOutcome(
                requests=8, context=64, nodes=32, tokens=32, llm_ms=11.3, draft_ms=0.7,
                wall_ms=15.2 + 80.0, between_ms=3.2, open_ms=80.0, num_opened=4, steps=4,
            )  # fmt: skip
            prices += [plan.load.price] if plan.load else []
        shared.observe(outcome)
    assert prices and (not pays or min(prices) > 0.9 * 32 / 15.2)
    assert (shared.plan(live, 0).grants[0].length is None) == pays


def test_a_node_worth_less_than_plain_decoding_is_not_verified() -> None:
    """A node's time is valued at least at the token rate of plain rounds, even while drafting
    loses."""
    shared = new_shared()
    for _ in range(2):
        assert shared.plan(LIVE, 0).grants == (FREE,) * 4
        shared.observe(BatchOutcome(4, 64, 16, 4, 6.2, 90.0, 100.0, between_ms=1.6, steps=4))
    load = shared.plan(LIVE, 0).load
    assert load is not None and load.price == pytest.approx(1 / load.plain_ms)
    # By the batch's own token rate, a node of probability 0.1 would pay.
    assert load.node_ms * 4 / 100 < 0.1 < load.node_ms * load.price
    assert shared.budget([[0.1] * 4] * 4, 64) == 0
    assert shared.budget([[0.9] * 4] * 4, 64) == 16


def test_a_plain_round_that_verifies_earlier_drafts_decides_nothing() -> None:
    """Drafts of pipelined requests may still wait when drafting ends."""
    machine = Machine(8, draft_ms=5.0, accepted=1.0, turns=True)
    has_drafts = []
    for _ in range(FIRST_WAIT):
        machine.run(1)
        if machine.shared._record(8).notice:
            has_drafts.append(machine.kinds[-1])
    assert has_drafts == [True]


def test_a_probe_that_verifies_earlier_drafts_is_repeated() -> None:
    """Without the repetition, no plain round of pipelined requests would be measured."""
    machine = Machine(8, draft_ms=0.2, accepted=3.0, turns=True)
    machine.run(8)
    assert machine.kinds == [True] * 4 + [False] * 2 + [True] * 2


@pytest.mark.parametrize("open_ms", [6.0, 60.0])
@pytest.mark.parametrize("requests", [4, 32])
def test_reading_all_prompts_in_every_trial_takes_little_time(
    requests: int, open_ms: float
) -> None:
    machine = Machine(requests, draft_ms=1.0, accepted=0.5, open_ms=open_ms)
    machine.run(40)
    assert not machine.kinds[-1]
    machine.ms, machine.tokens, machine.kinds = 0.0, 0.0, []
    machine.run(6000)
    assert machine.speedup > 0.97
    assert any(machine.kinds), "drafting is tried again"


def test_one_request_alone_keeps_its_own_budget() -> None:
    shared = Shared(BatchTimes(Costs(cast(Any, None), TABLE)))
    plan = shared.plan([LiveRequest(64, 8)], num_queued=3)
    assert (plan.group, plan.load, plan.grants[0].length) == ((0,), None, None)
    assert shared.budget([[0.01, 0.001]], 64) is None


def test_predicted_pass_times_follow_the_measured_ones() -> None:
    """The table was measured with one row of the KV cache."""
    times = BatchTimes(Costs(cast(Any, None), TABLE))
    before = times.verify_ms(8, 0, 64)
    for nodes in [0, 8, 16, 24] * 30:
        times.observe(BatchOutcome(8, 64, nodes, 8, 6.0 + 0.3 * nodes, 0.0, 20.0))
    assert before < 4.0
    assert times.verify_ms(8, 0, 64) == pytest.approx(6.0, rel=0.1)
    assert times.verify_ms(8, 16, 64) == pytest.approx(10.8, rel=0.1)
    assert times.verify_ms(8, 200, 64) > times.verify_ms(8, 100, 64)
    times.observe(BatchOutcome(8, 64, 8, 8, 5000.0, 0.0, 5000.0))
    assert times.verify_ms(8, 8, 64) < 10.0, "one outlier changes the prediction little"


def test_a_pass_takes_longer_over_longer_texts() -> None:
    long_contexts = VerifyCosts({n: ms + 0.4 * (n + 1) for n, ms in TABLE.ms.items()}, 464)
    times = BatchTimes(Costs(cast(Any, None), VerifyCosts(TABLE.ms, 64, long_contexts)))
    for nodes in [0, 8, 16, 24] * 30:
        # 1 ms per fed token for each 1000 cached tokens, like the table.
        ms = 6.0 + 0.3 * nodes + 0.2 * (nodes + 8)
        times.observe(BatchOutcome(8, 264, nodes, 8, ms, 0.0, 20.0))
    for context, more in ((64, 0.0), (264, 0.2), (464, 0.4)):
        expected = 6.0 + 0.3 * 16 + more * (16 + 8)
        assert times.verify_ms(8, 16, context) == pytest.approx(expected, rel=0.1)


class Alone:
    """A simulated request. A plain round takes 1 ms and commits 1 token."""

    def __init__(self, shared: Shared, kind: str | None, draft_ms: float, tokens: Sequence[int]):
        self.shared, self.live = shared, [LiveRequest(64, 4, kind=kind)]
        self.draft_ms, self.rng, self.tokens = draft_ms, random.Random(1), tokens
        self.kinds: list[bool] = []

    def run(self, rounds: int) -> float:
        """Returns the tokens per millisecond."""
        total_ms = total = 0.0
        for _ in range(rounds):
            plan = self.shared.plan(self.live, 0)
            assert plan.load is None and self.shared.budget([[0.1]], 64) is None, "its own budget"
            drafted = plan.grants[0].length is None
            ms, tokens = (self.draft_ms, self.rng.choice(self.tokens)) if drafted else (1.0, 1)
            nodes = 4 if drafted else 0
            self.shared.observe(
                BatchOutcome(
                    requests=1, context=64, nodes=nodes, tokens=tokens, llm_ms=0.8 + 0.1 * nodes,
                    draft_ms=ms - 1.0, wall_ms=ms, between_ms=0.2, steps=nodes,
                )
            )  # fmt: skip
            self.kinds.append(drafted)
            total_ms, total = total_ms + ms, total + tokens
        return total / total_ms


def new_shared() -> Shared:
    return Shared(BatchTimes(Costs(cast(Any, None), TABLE)))


@pytest.mark.parametrize(
    ("draft_ms", "tokens"), [(7.0, (1, 4, 8)), (1.5, (1,)), (10.0, (1, 9)), (4.0, (1, 1, 5))]
)
def test_one_request_is_soon_no_slower_than_plain(draft_ms: float, tokens: Sequence[int]) -> None:
    alone = Alone(new_shared(), "specinfer", draft_ms, tokens)
    alone.run(100)
    assert not alone.kinds[-1] and sum(alone.kinds) < 40
    assert alone.run(900) > 0.9
    assert alone.run(4000) > 0.97
    assert sum(alone.kinds[1000:]) > 4, "drafting is tried again"
    trials = sum(after and not before for before, after in itertools.pairwise(alone.kinds))
    assert trials < 10, "drafts only in trials"


@pytest.mark.parametrize("tokens", [(1, 9), (4, 5, 6), (1, 5, 9)])
def test_drafts_of_one_request_that_pay_are_kept(tokens: Sequence[int]) -> None:
    draft_ms = 0.7 * sum(tokens) / len(tokens)
    for seed in range(5):
        alone = Alone(new_shared(), "specinfer", draft_ms, tokens)
        alone.rng.seed(seed)
        alone.run(3000)
        assert sum(alone.kinds) > 0.97 * 3000 - FIRST_WAIT


def test_kinds_of_requests_are_measured_separately() -> None:
    shared = new_shared()
    losing = Alone(shared, "losing", 7.0, (3,))
    losing.run(50)
    assert not losing.kinds[-1]
    winning = Alone(shared, "winning", 2.0, (4,))
    assert winning.run(50) > 1.9 and not losing.run(1) > 1
    reasons = {shared.plan(one.live, 0).reason for one in (losing, winning)}
    assert len(reasons) == 2
    without_kind = Alone(shared, None, 7.0, (3,))
    without_kind.run(50)
    assert all(without_kind.kinds)


def test_the_number_of_kinds_is_bounded_and_the_kind_in_use_is_kept() -> None:
    shared = new_shared()
    losing = Alone(shared, "losing", 7.0, (3,))
    losing.run(50)
    for number in range(3 * MOST_KINDS):
        Alone(shared, f"kind {number}", 2.0, (4,)).run(1)
        losing.run(1)
    assert len(shared._alone) == MOST_KINDS
    assert not any(losing.kinds[-3 * MOST_KINDS + 1 :])
