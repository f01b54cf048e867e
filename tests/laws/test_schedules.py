"""Laws 1 and 2 under all schedules but `each`."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from core import Request, SamplingParams, SpeculationConfig, Worker
from core.config.mechanisms import PRESETS, SCHEDULES, token_exact_rules, verify_rule
from core.engine.engine import Engine
from core.events import RoundCompleted, RunCancelled, RunStarted
from core.events.parts import Scheduled
from core.scheduling import FREE, BatchOutcome, LiveRequest, Plan
from core.scheduling.shared import Shared
from core.speculation_length import BatchLoad
from tests.laws.runs import PLAIN, ids_of, ids_of_many, outcomes, prompts

PLANNED = tuple(name for name in SCHEDULES if name != "each")
PROMPTS = prompts(len(PRESETS))
CREDIT = (SpeculationConfig(routing="credit"), SpeculationConfig(draft="fused_credit"))


@pytest.fixture
def engine(bundled: Engine) -> Iterator[Engine]:
    yield bundled
    bundled.schedule = "each"


def requests(temperature: float, tokens: int = 12) -> list[Request]:
    results = []
    for index, (name, prompt) in enumerate(zip(PRESETS, PROMPTS, strict=True)):
        config = SpeculationConfig.preset(name, temperature)
        if config.resolve(temperature).verify in token_exact_rules():
            sampling = SamplingParams(tokens + 3 * index, temperature, seed=index)
            results.append(Request(prompt, sampling, config))
    assert len(results) > len(PRESETS) // 2
    return results


@cache
def alone(engine: Engine, request: Request) -> list[int]:
    engine.schedule = "each"
    return ids_of(engine, Request(request.prompt, request.sampling, PLAIN))


@pytest.fixture(scope="module", autouse=True)
def _written_alone(bundled: Engine) -> None:
    for temperature in (0.0, 0.8):
        for request in requests(temperature):
            alone(bundled, request)


def grants_of(engine: Engine, request_list: list[Request]) -> list[Scheduled]:
    events = engine.generate_many(request_list)
    return [e.scheduled for e in events if isinstance(e, RoundCompleted) and e.scheduled]


# The controls of this comparison are in test_law2_match.py and test_law12_nodes.py.
@pytest.mark.parametrize(("schedule", "temperature"), list(product(PLANNED, (0.0, 0.8))))
def test_texts_are_those_of_plain_decoding(
    engine: Engine, schedule: str, temperature: float
) -> None:
    request_list = requests(temperature)
    expected = [alone(engine, request) for request in request_list]
    engine.schedule = schedule
    assert ids_of_many(engine, request_list) == expected


@pytest.mark.parametrize("schedule", PLANNED)
def test_requests_may_join_and_leave(engine: Engine, schedule: str) -> None:
    request_list = requests(0.0) + requests(0.8)
    request_list += [
        Request(PROMPTS[1], SamplingParams(14, temperature, seed=3), config)
        for temperature, config in product((0.0, 0.8), CREDIT)
    ]
    expected = [alone(engine, request) for request in request_list]
    engine.schedule = schedule
    with closing(Worker(engine, max_live=3)) as worker:
        joined = worker.submit(Request(PROMPTS[0], SamplingParams(300, ignore_eos=True)))
        runs = [worker.submit(request) for request in request_list]
        dropped = worker.submit(Request(PROMPTS[0], SamplingParams(300)))
        dropped.cancel()
        cut = []
        for event in joined.events():
            cut.append(event)
            if isinstance(event, RoundCompleted) and event.round == 2:
                joined.cancel()
        events = [event for run in runs for event in run.events()]
    assert [run.token_ids for run in outcomes(events).values()] == expected
    assert isinstance(cut[-1], RunCancelled)
    assert 3 <= sum(isinstance(event, RoundCompleted) for event in cut) < 100


@pytest.mark.parametrize(("schedule", "temperature"), list(product(PLANNED, (0.0, 0.8))))
def test_credit_and_fused_drafts_have_the_text_of_plain_decoding(
    engine: Engine, schedule: str, temperature: float
) -> None:
    sampling = SamplingParams(16, temperature, seed=3)
    request_list = [Request(p, sampling, c) for p, c in zip(PROMPTS[:4], CREDIT * 2, strict=True)]
    expected = [alone(engine, request) for request in request_list]
    engine.schedule = schedule
    assert ids_of_many(engine, request_list) == expected


@pytest.fixture
def new_engine(bundled: Engine) -> Engine:
    """Measurements would show that drafts do not pay with these models."""
    return Engine(bundled.models)


def not_trivial() -> list[Request]:
    configs = [SpeculationConfig(), SpeculationConfig.preset("cosine")] * 3
    sampling = SamplingParams(32, ignore_eos=True)
    return [Request(p, sampling, c) for p, c in zip(PROMPTS, configs, strict=False)]


def test_the_schedule_each_records_nothing(new_engine: Engine) -> None:
    events = new_engine.generate_many(not_trivial())
    recorded = [event.scheduled for event in events if isinstance(event, RoundCompleted)]
    assert recorded and not any(recorded)


def test_shared_leaves_nodes_out(new_engine: Engine) -> None:
    new_engine.schedule = "shared"
    request_list = not_trivial()
    shared = grants_of(new_engine, request_list)
    assert any(one.num_granted < one.num_drafted for one in shared)
    for one in shared:
        assert one.num_granted <= one.batch_granted <= one.batch_drafted
        assert one.reason and one.num_batch <= one.num_live <= len(request_list)


def test_shared_leaves_no_drawn_node_out_where_the_rule_reads_q(
    new_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropping a node after its token was drawn would bias the texts of `mss` and `traversal`."""
    num_left_out = left_out_by_rule(new_engine, monkeypatch)
    assert any(num_left_out["match"])
    assert not any(num_left_out["mss"]) and not any(num_left_out["traversal"])


def test_control_drawn_nodes_left_out_are_noticed(
    new_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "core.engine.batch_schedule.verify_rule",
        lambda name: replace(verify_rule(name), reads_q=False),
    )
    num_left_out = left_out_by_rule(new_engine, monkeypatch)
    assert any(num_left_out["mss"]) and any(num_left_out["traversal"])


def left_out_by_rule(new_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The budget is one node, so `match` loses nearly all of its nodes."""
    monkeypatch.setattr(Shared, "budget", lambda *_: 1)
    new_engine.schedule = "shared"
    rules = ("match", "mss", "match", "traversal")
    request_list = [
        Request(
            prompt,
            SamplingParams(16, 0.8, seed=index, ignore_eos=True),
            SpeculationConfig(draft="sampled", verify=rule, max_tree_nodes=24),
        )
        for index, (prompt, rule) in enumerate(zip(PROMPTS, rules, strict=False))
    ]
    rule_of: dict[str, str] = {}
    num_left_out: dict[str, list[int]] = {rule: [] for rule in rules}
    for event in new_engine.generate_many(request_list):
        if isinstance(event, RunStarted):
            rule_of[event.run_id] = event.config["speculation"]["verify"]
        elif isinstance(event, RoundCompleted) and (part := event.scheduled) and part.num_drafted:
            num_left_out[rule_of[event.run_id]].append(part.num_drafted - part.num_granted)
    assert all(num_left_out.values()), "each rule verified drafts"
    return num_left_out


def test_cosine_lets_requests_wait(new_engine: Engine) -> None:
    new_engine.schedule = "cosine"
    assert any(one.num_batch < one.num_live for one in grants_of(new_engine, not_trivial()))


LOAD = BatchLoad(4, 1.0, 0.1, 0.1, 2.0)


class PricedSchedule:
    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        return Plan(tuple(range(len(live))), (FREE,) * len(live), LOAD)

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        return None

    def observe(self, outcome: BatchOutcome) -> None:
        """Nothing is measured."""


def test_the_schedule_each_forgets_the_price_of_the_batch(engine: Engine) -> None:
    config = SpeculationConfig.preset("best")
    expected = [Request(prompt, SamplingParams(40, 0.0), config) for prompt in PROMPTS[:4]]
    engine.schedule = "shared"
    live = [engine.admit(engine.prepare(request)) for request in expected]
    for one in live:
        list(engine.prefill(one))
    # The real scheduler gives a load after measured rounds, and none if drafts do not pay.
    engine._schedule._scheduler = PricedSchedule()
    list(engine.round(live))
    assert all(one.load is LOAD for one in live)
    engine.schedule = "each"
    list(engine.round(live))
    assert all(one.load is None for one in live)
    for one in live:
        engine.release(one)
