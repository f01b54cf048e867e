"""Observations of rounds with made-up times."""

from collections.abc import Iterator, Mapping

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.engine.overlap import DraftPool, RoundBatch, observe_switch, pipeline_switch
from core.engine.round_state import ActiveRequest, RoundState, round_outcome
from core.events.parts import Timed
from core.trees.draft import Draft
from core.trees.verify import Verdict
from tests.core.engines import engine_of, tables

ACROSS = SpeculationConfig(expansion=(1,), speculation_length=2, pipeline="across")
TWO_PROMPTS = ("w1 w2 w3", "w2 w2 w6")


@pytest.mark.parametrize(
    ("drafting", "round_ms"),
    [
        ((0.0, 0.4), 500.0 + 30.0),  # within the other request's pass
        ((0.6, 1.1), 500.0 + 30.0 + 100.0),  # partly within that pass
        ((1.0, 1.4), 500.0 + 30.0 + 400.0),  # after that pass
    ],
)
def test_drafting_hidden_by_a_pass_is_no_part_of_the_round(drafting, round_ms):
    engine = engine_of(*tables(1))
    live = [
        engine.admit(engine.prepare(Request(prompt, SamplingParams(9, seed=1), ACROSS)))
        for prompt in TWO_PROMPTS
    ]
    first, second = (RoundState(one, one.policy.choose(), 2) for one in live)
    first.timings = [Timed("llm", "forward", 0.0, 1.0)]
    timings = (Timed("same", "draft", *drafting),)
    second.drafts = {0: Draft([5], [-1], [0.5], [1.0], [0], timings=timings, passes=1)}
    second.timings = list(timings)
    pools = DraftPool()
    pools.keep(RoundBatch((), (first,), (second,)))
    (result,) = pools.take(live[1:], {second.request.sequence.run_id: "across"}).states
    assert result is second
    result.timings += [Timed("combine", "combine", 2.0, 2.03), Timed("llm", "forward", 2.1, 2.6)]
    result.timings.append(Timed("same", "ahead", 2.1, 2.5))  # drafting for the next round
    result.verdict = Verdict((), 3, "recovered", ())
    outcome = round_outcome(result, (3,), 1)
    assert outcome.round_ms == pytest.approx(round_ms)
    assert outcome.verify_ms == pytest.approx(500.0)
    for one in live:
        engine.release(one)


@pytest.mark.parametrize(("max_nodes", "expected"), [(4, 4), (7, 7), (24, 7), ("uncut", 7)])
def test_a_vote_keeps_no_more_nodes_than_may_be_verified(
    max_nodes: int | str, expected: int
) -> None:
    engine = engine_of(*tables(2))
    config = SpeculationConfig(combine="vote_tree", vote_nodes=7, max_tree_nodes=max_nodes)
    live = engine.admit(engine.prepare(Request(TWO_PROMPTS[0], SamplingParams(9, seed=1), config)))
    assert RoundState(live, live.policy.choose(), 2).vote_weights.vote_nodes == expected
    engine.release(live)


CONFIG = SpeculationConfig(expansion=(1,), speculation_length=2, pipeline="auto")
PROMPTS = ("w1 w2 w3", "w2 w2 w6", "w4")
START_S = 10.0
Observed = list[tuple[float, float]]


@pytest.fixture
def engine() -> Iterator[Engine]:
    result = engine_of(*tables(1))
    yield result
    result.close()


@pytest.fixture
def live(engine: Engine) -> Iterator[list[ActiveRequest]]:
    sampling = SamplingParams(9, seed=1)
    live = [engine.admit(engine.prepare(Request(p, sampling, CONFIG))) for p in PROMPTS]
    yield live
    for one in live:
        engine.release(one)


def state_of(live: ActiveRequest, *timings: Timed, depth: int = 2) -> RoundState:
    state = RoundState(live, live.policy.choose(), 2)
    parents = list(range(-1, depth - 1))
    ones = [1.0] * depth
    state.drafts = {0: Draft([5] * depth, parents, ones, ones, [0] * depth)}
    state.timings = list(timings)
    return state


def draft_span(start: float, end: float) -> Timed:
    return Timed("same", "draft", START_S + start, START_S + end)


def llm_span(start: float, end: float) -> Timed:
    return Timed("llm", "forward", START_S + start, START_S + end)


def observations(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, batch: RoundBatch, live: list[ActiveRequest]
) -> Mapping[str, Observed]:
    observed: dict[str, Observed] = {"across": [], "ahead": []}
    for kind, one in observed.items():
        switch = engine.costs.pipeline_switch(kind, ["same"])
        monkeypatch.setattr(
            switch, "observe", lambda ms, steps, one=one: one.append((ms, steps)), raising=True
        )
    observe_switch(batch, pipeline_switch(live, engine.costs), START_S)
    return observed


def test_a_rounds_time_is_divided_by_its_requests(monkeypatch, engine, live):
    both = llm_span(0.04, 0.1)
    first = state_of(live[0], draft_span(0.0, 0.03), both, depth=1)
    second = state_of(live[1], draft_span(0.0, 0.04), both, depth=4)
    groups = observations(monkeypatch, engine, RoundBatch((), (first, second)), live[:2])
    assert groups == {"across": [pytest.approx((50.0, 2.5))], "ahead": []}


def test_work_of_an_earlier_round_is_not_counted_again(monkeypatch, engine, live):
    """Only drafting after the end of the pass lengthens the round."""
    drafted = state_of(live[0], draft_span(-0.5, -0.4), llm_span(0.0, 0.1))
    meanwhile = state_of(live[1], draft_span(0.01, 0.12), depth=6)
    groups = observations(monkeypatch, engine, RoundBatch((drafted,), (), (meanwhile,)), live[:2])
    assert groups["across"] == [pytest.approx((120.0, 2.0))]


def test_reading_a_prompt_is_not_counted(monkeypatch, engine, live):
    prefill = Timed("same", "prefill", START_S, START_S + 3.0)
    one = state_of(live[0], prefill, llm_span(3.0, 3.1))
    groups = observations(monkeypatch, engine, RoundBatch((), (one,)), live[:1])
    assert groups == {"across": [], "ahead": [pytest.approx((100.0, 2.0))]}


def test_a_round_without_drafts_reports_nothing(monkeypatch, engine, live):
    one = state_of(live[0], llm_span(0.0, 0.1))
    one.drafts = {}
    assert not any(observations(monkeypatch, engine, RoundBatch((), (one,)), live[:1]).values())


@pytest.mark.loses_drafters
def test_a_round_that_lost_a_drafter_is_observed_by_its_own_switch(monkeypatch, engine, live):
    groups: list[Observed] = []
    auto = pipeline_switch(live[:1], engine.costs)
    monkeypatch.setattr(auto.switch, "observe", lambda ms, steps: groups.append((ms, steps)))
    one = state_of(live[0], llm_span(0.0, 0.1))
    live[0].drop_drafter(0, RuntimeError("once"))
    observe_switch(RoundBatch((), (one,)), auto, START_S)
    assert groups == [pytest.approx((100.0, 2.0))]
