"""The length policies in the engine."""

import dataclasses
import time
from contextlib import closing
from itertools import accumulate

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import LENGTHS
from core.config.mechanisms import SCHEDULES
from core.drafters.ssm_pool import MIN_TOKENS
from core.events import Drafted, Event, RoundCompleted
from core.speculation_length import Choice, RoundOutcome
from core.speculation_length.cost_model import NODE_COUNTS, VerifyCosts
from core.speculation_length.goodput import Goodput
from tests.core.engines import engine_of, rounds_of, tables
from tests.golden.record import PassClock, TimedTable

SAMPLING = SamplingParams(40, seed=1)
TREE = SpeculationConfig(expansion=(2, 1), max_speculation_length=6, speculation_length=3)


@pytest.fixture(autouse=True)
def given_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of the test models are too short to be measured."""
    table = VerifyCosts({n: 1.0 + 0.01 * n for n in NODE_COUNTS}, 64)
    monkeypatch.setattr(
        "core.speculation_length.cost_model.ledger.measure_verify_costs", lambda llm: table
    )


def engine() -> Engine:
    return engine_of(*tables(3, context=128))


def run(
    engine: Engine, config: SpeculationConfig, sampling: SamplingParams = SAMPLING
) -> list[Event]:
    return list(engine.generate(Request("w1 w2 w3", sampling, config)))


@pytest.mark.parametrize("length", LENGTHS)
def test_the_chosen_length_bounds_every_draft_and_is_reported(length: str) -> None:
    events = run(engine(), dataclasses.replace(TREE, length=length))
    rounds = rounds_of(events)
    drafted = [event for event in events if isinstance(event, Drafted)]
    assert len(rounds) > 1
    assert any(record.depths for draft in drafted for record in draft.drafts)
    for draft, end in zip(drafted, rounds, strict=True):
        depths = [depth for record in draft.drafts for depth in record.depths]
        assert max(depths, default=0) <= end.speculation_length
    for before, after in zip(rounds, rounds[1:], strict=False):
        assert after.speculation_length == before.next_speculation_length


def test_an_audition_comes_before_the_event_that_reports_the_next_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The prompt's three tokens are too few for an audition."""
    completed: list[RoundCompleted] = []
    rounds_before: list[int] = []
    monkeypatch.setattr(
        Goodput, "observe_audition", lambda self, fits: rounds_before.append(len(completed))
    )
    request = Request("w1 w2 w3", SAMPLING, dataclasses.replace(TREE, length="goodput"))
    for event in engine().generate(request):
        if isinstance(event, RoundCompleted):
            completed.append(event)
    sizes = list(accumulate((len(event.token_ids) for event in completed), initial=3))
    (first,) = rounds_before
    assert sizes[first] < MIN_TOKENS <= sizes[first + 1]


def test_goodput_reports_estimates_and_predicts_each_rounds_time() -> None:
    rounds = rounds_of(run(engine(), dataclasses.replace(TREE, length="goodput")))
    assert rounds
    for event in rounds:
        assert len(event.estimates) > 1
        assert [e.length for e in event.estimates] == list(range(len(event.estimates)))
        assert event.length_reason
        assert event.predicted_ms > 0


def test_goodput_bounds_its_tree_by_the_measured_sizes() -> None:
    (started, *_) = run(engine(), dataclasses.replace(TREE, length="goodput"))
    assert started.config["speculation"]["max_tree_nodes"] == 64


@pytest.mark.parametrize("length", ["trend", "goodput"])
def test_a_configured_length_of_0_is_plain_only_where_it_is_read(length: str) -> None:
    config = SpeculationConfig(speculation_length=0, length=length)
    assert rounds_of(run(engine(), config))[0].speculation_length > 0
    for plain in ("fixed", "confidence"):
        config = SpeculationConfig(speculation_length=0, length=plain)
        assert {event.speculation_length for event in rounds_of(run(engine(), config))} == {0}


def test_goodput_measures_draft_costs() -> None:
    one = engine()
    run(one, dataclasses.replace(TREE, length="goodput"))
    same = one.costs.draft_costs("same")
    assert same.start.value


@pytest.mark.parametrize(("drafters", "nodes"), [({"same"}, 6), ({"same", "ssm-2"}, 3), (None, 2)])
def test_the_node_budget_is_divided_among_those_that_draft(drafters, nodes, monkeypatch):
    class GivenDrafters:
        def choose(self) -> Choice:
            return Choice(6, drafters=frozenset(drafters) if drafters else None)

        def observe(self, outcome: RoundOutcome) -> None:
            """Nothing is learnt."""

    monkeypatch.setattr("core.engine.engine.make_policy", lambda config, costs: GivenDrafters())
    events = run(engine(), dataclasses.replace(TREE, expansion=(1,), max_tree_nodes=6))
    first = next(event for event in events if isinstance(event, Drafted))
    assert {draft.drafter for draft in first.drafts} == (drafters or {"same", "ssm-2", "ssm-3"})
    assert {len(draft.token_ids) for draft in first.drafts} == {nodes}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_shared_pass_is_not_counted_as_one_requests(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = PassClock()
    table = VerifyCosts({n: 10.5 + 0.5 * n for n in NODE_COUNTS}, 64)
    monkeypatch.setattr(
        "core.speculation_length.cost_model.ledger.measure_verify_costs", lambda llm: table
    )
    monkeypatch.setattr(time, "perf_counter", clock)
    llm = TimedTable("llm", 1, clock, (10.0, 0.5))
    ssms = [TimedTable(f"ssm-{seed}", seed, clock, (1.0, 0.1)) for seed in (1, 2)]
    one = Request("w1 w2 w3", SAMPLING, dataclasses.replace(TREE, length="goodput"))
    with closing(engine_of(llm, ssms)) as timed_engine:  # type: ignore[arg-type]
        timed_engine.schedule = schedule
        list(timed_engine.generate(one))
        before = timed_engine.costs.verify_ms(0)
        list(timed_engine.generate_many([one] * 8))
        assert timed_engine.costs.verify_ms(0) == pytest.approx(before, rel=0.3)
        list(timed_engine.generate(one))
        assert timed_engine.costs.verify_ms(0) == pytest.approx(10.5, rel=0.05)
