"""Laws 1 and 2 under every schedule: requests with other presets, lengths and starts, together."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import product

import pytest

from core import Request, SamplingParams, SpeculationConfig, Worker
from core.config.mechanisms import PRESETS, SCHEDULES, token_exact_rules
from core.engine.engine import Engine
from core.events import RoundCompleted, RunCancelled
from core.events.parts import Scheduled
from core.length import BatchLoad
from core.scheduling import FREE, BatchOutcome, LiveRequest, Plan
from tests.laws.runs import PLAIN, ids_of, ids_of_many, outcomes, prompts

PLANNED = tuple(name for name in SCHEDULES if name != "each")
PROMPTS = prompts(len(PRESETS))


@pytest.fixture
def engine(bundled: Engine) -> Iterator[Engine]:
    yield bundled
    bundled.schedule = "each"


def requests(temperature: float, tokens: int = 12) -> list[Request]:
    """One of each preset that keeps the tokens, pipelined as it is; of unequal lengths."""
    found = []
    for place, (name, prompt) in enumerate(zip(PRESETS, PROMPTS, strict=True)):
        config = SpeculationConfig.preset(name, temperature)
        if config.resolved(temperature).verify in token_exact_rules():
            sampling = SamplingParams(tokens + 3 * place, temperature, seed=place)
            found.append(Request(prompt, sampling, config))
    return found


@cache
def alone(engine: Engine, request: Request) -> list[int]:
    engine.schedule = "each"
    return ids_of(engine, Request(request.prompt, request.sampling, PLAIN))


def scheduled(engine: Engine, asked: list[Request]) -> list[Scheduled]:
    events = engine.generate_many(asked)
    return [e.scheduled for e in events if isinstance(e, RoundCompleted) and e.scheduled]


@pytest.mark.parametrize(("schedule", "temperature"), list(product(PLANNED, (0.0, 0.8))))
def test_texts_are_plain_decoding_s(engine: Engine, schedule: str, temperature: float) -> None:
    asked = requests(temperature)
    wanted = [alone(engine, request) for request in asked]
    engine.schedule = schedule
    assert ids_of_many(engine, asked) == wanted


@pytest.mark.parametrize("schedule", PLANNED)
def test_requests_join_and_leave(engine: Engine, schedule: str) -> None:
    """More requests than places, so each that ends lets another in; one is cancelled in its third
    round, another one before it joins."""
    asked = requests(0.0) + requests(0.8)
    wanted = [alone(engine, request) for request in asked]
    engine.schedule = schedule
    with closing(Worker(engine, max_live=3)) as worker:
        joined = worker.submit(Request(PROMPTS[0], SamplingParams(300, ignore_eos=True)))
        runs = [worker.submit(request) for request in asked]
        dropped = worker.submit(Request(PROMPTS[0], SamplingParams(300)))
        dropped.cancel()
        cut = []
        for event in joined.events():
            cut.append(event)
            if isinstance(event, RoundCompleted) and event.round == 2:
                joined.cancel()
        events = [event for run in runs for event in run.events()]
    assert [run.token_ids for run in outcomes(events).values()] == wanted
    assert isinstance(cut[-1], RunCancelled)
    assert 3 <= sum(isinstance(event, RoundCompleted) for event in cut) < 100


@pytest.mark.parametrize(("schedule", "temperature"), list(product(PLANNED, (0.0, 0.8))))
def test_credit_and_fused_drafts_keep_plain_decoding_s_text(
    engine: Engine, schedule: str, temperature: float
) -> None:
    configs = (SpeculationConfig(routing="credit"), SpeculationConfig(draft="fused_credit"))
    sampling = SamplingParams(16, temperature, seed=3)
    asked = [Request(p, sampling, c) for p, c in zip(PROMPTS[:4], configs * 2, strict=True)]
    wanted = [alone(engine, request) for request in asked]
    engine.schedule = schedule
    assert ids_of_many(engine, asked) == wanted


@pytest.fixture
def unmeasured(bundled: Engine) -> Engine:
    """An engine that has not measured yet that drafts do not pay here."""
    return Engine(bundled.models)


def not_trivial() -> list[Request]:
    configs = [SpeculationConfig(), SpeculationConfig.preset("cosine")] * 3
    sampling = SamplingParams(32, ignore_eos=True)
    return [Request(p, sampling, c) for p, c in zip(PROMPTS, configs, strict=False)]


def test_each_records_nothing(unmeasured: Engine) -> None:
    assert not scheduled(unmeasured, not_trivial())


def test_shared_leaves_nodes_out(unmeasured: Engine) -> None:
    unmeasured.schedule = "shared"
    asked = not_trivial()
    shared = scheduled(unmeasured, asked)
    assert any(one.num_granted < one.num_drafted for one in shared)
    for one in shared:
        assert one.num_granted <= one.batch_granted <= one.batch_drafted
        assert one.reason and one.num_batch <= one.num_live <= len(asked)


def test_cosine_lets_requests_wait(unmeasured: Engine) -> None:
    unmeasured.schedule = "cosine"
    assert any(one.num_batch < one.num_live for one in scheduled(unmeasured, not_trivial()))


LOAD = BatchLoad(4, 1.0, 0.1, 0.1, 2.0)


class PricedSchedule:
    """See Scheduler: all requests share a pass of a known price."""

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        return Plan(tuple(range(len(live))), (FREE,) * len(live), LOAD)

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        return None

    def observe(self, outcome: BatchOutcome) -> None:
        """Nothing is measured."""


def test_each_forgets_the_price_of_the_batch(engine: Engine) -> None:
    config = SpeculationConfig.preset("best")
    wanted = [Request(prompt, SamplingParams(40, 0.0), config) for prompt in PROMPTS[:4]]
    engine.schedule = "shared"
    live = [engine.admit(engine.prepare(request)) for request in wanted]
    for one in live:
        list(engine.prefill(one))
    # A price needs measured rounds first; where drafts do not pay there is none.
    engine._schedule._scheduler = PricedSchedule()
    list(engine.round(live))
    assert all(one.load is LOAD for one in live)
    engine.schedule = "each"
    list(engine.round(live))
    assert all(one.load is None for one in live)
    for one in live:
        engine.release(one)
