"""What a length policy is told of a round, on made-up times: what the LLM's pass for another
request hid is none of the round's. What a combine rule is told."""

import pytest

from core import Request, SamplingParams, SpeculationConfig
from core.engine.overlap import DraftPool, RoundBatch
from core.engine.round_state import RoundState, round_outcome
from core.events.parts import Timed
from core.trees.draft import Draft
from core.trees.verify import Verdict
from tests.core.engines import engine_of, tables

CONFIG = SpeculationConfig(expansion=(1,), speculation_length=2, pipeline="across")
PROMPTS = ("w1 w2 w3", "w2 w2 w6")


@pytest.mark.parametrize(
    ("drafting", "round_ms"),
    [
        ((0.0, 0.4), 500.0 + 30.0),  # within the other's pass
        ((0.6, 1.1), 500.0 + 30.0 + 100.0),  # a part of it
        ((1.0, 1.4), 500.0 + 30.0 + 400.0),  # waited for
    ],
)
def test_drafting_that_a_pass_hid_is_no_part_of_the_round(drafting, round_ms):
    engine = engine_of(*tables(1))
    live = [
        engine.admit(engine.prepare(Request(prompt, SamplingParams(9, seed=1), CONFIG)))
        for prompt in PROMPTS
    ]
    first, second = (RoundState(one, one.policy.choose(), 2) for one in live)
    first.timings = [Timed("llm", "forward", 0.0, 1.0)]
    timings = (Timed("same", "draft", *drafting),)
    second.drafts = {0: Draft([5], [-1], [0.5], [1.0], [0], timings=timings, passes=1)}
    second.timings = list(timings)
    pools = DraftPool()
    pools.keep(RoundBatch((), (first,), (second,)))
    (found,) = pools.take(live[1:], {second.request.sequence.run_id: "across"}).states
    assert found is second
    found.timings += [Timed("combine", "combine", 2.0, 2.03), Timed("llm", "forward", 2.1, 2.6)]
    found.timings.append(Timed("same", "ahead", 2.1, 2.5))  # the next round's matter
    found.verdict = Verdict((), 3, "recovered", ())
    outcome = round_outcome(found, (3,))
    assert outcome.round_ms == pytest.approx(round_ms)
    assert outcome.verify_ms == pytest.approx(500.0)
    for one in live:
        engine.release(one)


@pytest.mark.parametrize(("most", "kept"), [(4, 4), (7, 7), (24, 7), ("uncut", 7)])
def test_a_vote_keeps_no_more_than_may_be_verified(most: int | str, kept: int) -> None:
    engine = engine_of(*tables(2))
    config = SpeculationConfig(combine="vote_tree", vote_nodes=7, max_tree_nodes=most)
    live = engine.admit(engine.prepare(Request(PROMPTS[0], SamplingParams(9, seed=1), config)))
    assert RoundState(live, live.policy.choose(), 2).vote_weights.vote_nodes == kept
    engine.release(live)
