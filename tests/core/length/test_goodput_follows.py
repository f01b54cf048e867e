"""`goodput` when the world changes under it; what it remembers, and what it pays to find out."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest

from core.config import SpeculationConfig
from core.length import Goodput, make_policy
from core.length.cost_model import Costs
from core.length.cost_model.backoff import STRIKES
from core.length.goodput.forecast import Outlook
from tests.core.length.test_goodput import CHEAP, HOPELESS, INDEPENDENT, drafter, linear
from tests.core.length.world import (
    Result,
    Simulated,
    World,
    best_fixed,
    config_of,
    constant,
    fixed,
    simulate,
)

# It follows within so many rounds: what it drafts with is measured, what it does not is probed.
FOLLOWS = 50
PROBED = 128 + FOLLOWS


def jump(before: float, after: float, at: int) -> Callable[[int], float]:
    return lambda number: before if number < at else after


def first_round_at(result: Result, position: int) -> int:
    """The first round whose root is at this position of the text, or behind it."""
    at = accumulate(outcome.num_tokens for outcome in result.outcomes)
    return next(i for i, reached in enumerate(at, 1) if reached >= position)


def test_it_follows_a_step_that_becomes_dear() -> None:
    step = jump(0.3, 3.0, 300)
    world = World((Simulated("a", constant(0.8), step, step),), linear(5, 0.05))
    result = simulate(world, 3000)
    after = World((drafter("a", 0.8, 3.0, 3.0),), linear(5, 0.05))
    best, goodput = best_fixed(after, 2000, most=8)
    assert max(result.lengths[300 + FOLLOWS :]) <= best + 2 < min(result.lengths[50:300])
    assert result.goodput(300 + FOLLOWS) >= 0.95 * goodput


def test_it_follows_a_step_that_becomes_cheap() -> None:
    step = jump(3.0, 0.3, 300)
    world = World((Simulated("a", constant(0.8), step, step),), linear(5, 0.05))
    result = simulate(world, 3000)
    _, goodput = best_fixed(CHEAP, 2000, most=9)
    assert result.goodput(300 + FOLLOWS) >= 0.95 * goodput


def test_it_follows_drafts_that_become_worthless() -> None:
    world = World(
        (Simulated("a", jump(0.85, 0.05, 1000), constant(1), constant(1)),), linear(5, 0.1)
    )
    result = simulate(world, 1600)
    change = first_round_at(result, 1000)
    late = result.lengths[change + FOLLOWS :]
    assert late.count(0) >= 0.95 * len(late)
    assert min(result.lengths[20:change]) > 0
    plain = fixed(world, 10, 0).goodput()
    assert result.goodput(change + FOLLOWS) >= 0.97 * plain


def test_it_follows_drafts_that_become_good() -> None:
    """It decodes plainly for long; a probe finds out within 128 rounds and the time to settle."""
    world = World((Simulated("a", jump(0.05, 0.9, 800), constant(1), constant(1)),), linear(5, 0.1))
    result = simulate(world, 2400)
    plain = result.lengths[100:790]
    assert plain.count(0) >= 0.97 * len(plain)
    good = World((drafter("a", 0.9, 1.0, 1.0),), linear(5, 0.1))
    change = first_round_at(result, 800)
    assert result.goodput(change + PROBED) >= 0.95 * best_fixed(good, 1500, most=9)[1]


def test_a_machine_that_slows_down_moves_nothing() -> None:
    """Everything takes four times as long: what pays, pays as before."""
    world = World(CHEAP.drafters, CHEAP.verify, pace=jump(1.0, 4.0, 200))
    result = simulate(world, 2500)
    before = result.lengths[100:200]
    assert min(result.lengths[200:]) >= min(before) - 2
    assert result.goodput(200 + FOLLOWS) >= 0.97 * best_fixed(CHEAP, 2000, most=9)[1] / 4
    late = result.choices[-20:]
    predicted = sum(choice.predicted_ms for choice in late)
    assert predicted == pytest.approx(sum(result.true_ms[-20:]), rel=0.15)


def test_verification_that_becomes_dear_is_noticed() -> None:
    """The warm-up's table is out of date by a factor; only the LLM's passes are slower."""
    drafters = (drafter("a", 0.6, 2.5, 2.5),)
    world = World(drafters, lambda n: 20 + 0.4 * n)
    costs = World(drafters, lambda n: 5 + 0.1 * n).costs()
    result = simulate(world, 1500, costs=costs)
    assert costs.verify_ms(4, 64) == pytest.approx(world.verify(4), rel=0.15)
    assert result.goodput(60) >= 0.96 * best_fixed(world, 1500, most=8)[1]


# -- drafters that fail --


def test_a_drafter_that_fails_makes_room_for_the_others() -> None:
    """`a` is the better one, and answers no more from round 60 on."""
    lost = World((drafter("b", 0.7, 0.5, 0.5),), linear(5, 0.1))
    both = World(
        (drafter("a", 0.9, 0.5, 0.5, "x"), drafter("b", 0.7, 0.5, 0.5, "x")), linear(5, 0.1)
    )
    policy = make_policy(config_of(both), both.costs())
    before = simulate(both, 200, policy)
    assert before.choices[-1].drafters == {"a"}
    after = simulate(lost, 600, policy)
    assert after.choices[-1].drafters == {"b"}
    assert after.lengths[-1] > 0


def test_without_its_only_drafter_it_says_plain_decoding() -> None:
    policy = make_policy(config_of(CHEAP), CHEAP.costs())
    assert simulate(CHEAP, 200, policy).lengths[-1] > 0
    after = simulate(World((), CHEAP.verify), 30, policy)
    assert {
        length
        for length, choice in zip(after.lengths[4:], after.choices[4:], strict=True)
        if "tried again" not in choice.reason
    } == {0}


# -- probes --


def probes(result_lengths: list[int]) -> list[int]:
    return [i for i, length in enumerate(result_lengths) if length]


def test_probes_wait_longer_and_longer_and_are_short() -> None:
    costs = HOPELESS.costs()
    result = simulate(HOPELESS, 3000, costs=costs)
    at = [i for i, choice in enumerate(result.choices) if "tried again" in choice.reason]
    gaps = [b - a for a, b in zip(at, at[1:], strict=False)]
    assert len(at) >= 8
    # A success by chance starts it anew; else each wait is at least twice the last, up to 128.
    starts = [i for i, gap in enumerate(gaps) if gap < 32]
    assert len(starts) <= 3
    assert all(gap >= 16 for gap in gaps)
    assert gaps.count(129) >= len(gaps) / 2, "128 rounds without it"
    assert {result.lengths[i] for i in at} == {2}
    assert all(result.choices[i].drafters == {"a"} for i in at)


def test_probes_stay_within_a_hundredth_of_the_decode_time() -> None:
    dear = World((drafter("a", 0.05, 12.0, 12.0),), linear(5, 0.1), noise=0.0)
    result = simulate(dear, 4000)
    at = [i for i in probes(result.lengths) if i > 20]
    assert at
    spent = 0.0
    for i in at:
        spent += result.true_ms[i] - dear.verify(0) - dear.books
        assert spent <= 0.0101 * sum(result.true_ms[:i])
    assert min(b - a for a, b in zip(at, at[1:], strict=False)) >= 24 * 100 / 5.5


def test_a_probe_beside_others_drafts_two_steps_at_most() -> None:
    world = World(
        (drafter("a", 0.85, 0.5, 0.5, "x"), drafter("b", 0.85, 0.5, 0.5, "x")), linear(5, 0.1)
    )
    result = simulate(world, 3000)
    tried = [i for i, choice in enumerate(result.choices) if "b is tried again" in choice.reason]
    assert tried
    for i in tried:
        assert len(result.outcomes[i].drafts["b"].depths) == 2
        assert result.lengths[i] > 2
        assert max(result.outcomes[i].drafts["a"].depths) >= 1


# -- what outlives a run --


def test_a_hopeless_drafter_is_not_tried_anew_in_every_run() -> None:
    """It is tried in the first few, since another text may suit it."""
    costs = HOPELESS.costs()
    for _ in range(STRIKES):
        assert simulate(HOPELESS, 100, costs=costs).lengths[0] > 0
    later = [simulate(HOPELESS, 60, costs=costs) for _ in range(50)]
    assert later[0].lengths[0] == 0
    tokens = sum(o.num_tokens for run in later for o in run.outcomes)
    plain = fixed(HOPELESS, 100, 0).goodput()
    assert tokens / sum(sum(run.true_ms) for run in later) >= 0.97 * plain


def test_a_superfluous_drafter_is_tried_in_the_next_text() -> None:
    twins = World(
        (drafter("a", 0.8, 0.8, 0.8, "x"), drafter("b", 0.8, 0.8, 0.8, "x")), linear(5, 0.1)
    )
    costs = twins.costs()
    assert simulate(twins, 300, costs=costs).choices[-1].drafters == {"a"}
    assert simulate(twins, 10, costs=costs).choices[0].drafters == {"a", "b"}


def test_costs_are_known_from_the_start_of_a_second_run() -> None:
    costs = CHEAP.costs()
    simulate(CHEAP, 300, costs=costs)
    second = make_policy(config_of(CHEAP), costs).choose()
    assert second.estimates[3].ms == pytest.approx(CHEAP.verify(3) + CHEAP.books + 0.9, rel=0.1)


@pytest.mark.parametrize("carry_over", [False, True])
def test_acceptance_is_carried_over_where_asked(carry_over: bool) -> None:
    """What it was in the last text; else a run begins with what it was in all of them."""
    good = World((drafter("a", 0.9, 0.3, 0.3),), linear(5, 0.05))
    bad = World((drafter("a", 0.5, 0.3, 0.3),), linear(5, 0.05))
    costs = good.costs()
    config = config_of(good, carry_over=carry_over)
    for world, count in ((good, 900), (bad, 60)):
        simulate(world, count, make_policy(config, costs), costs)
    first = Goodput(config, costs).choose().estimates[1].tokens - 1
    assert (first < 0.7) is carry_over
    assert bool(costs.carried) is carry_over


def test_a_run_begins_with_what_all_runs_came_to() -> None:
    costs, config = INDEPENDENT.costs(), config_of(INDEPENDENT)
    fresh = tokens_of(config, INDEPENDENT.costs())
    simulate(INDEPENDENT, 600, make_policy(config, costs), costs)
    assert tokens_of(config, costs) < 0.95 * fresh


def tokens_of(config: SpeculationConfig, costs: Costs) -> float:
    return Goodput(config, costs).choose().estimates[4].tokens


def test_a_neighbours_success_brings_a_drafter_back() -> None:
    """Two live runs share an engine's costs; what one has found out, the other looks at at once."""
    world = World((drafter("a", 0.05, 1.0, 1.0),), linear(5, 0.1))
    costs = world.costs()
    costs.backoffs.strikes["a"] = STRIKES - 1
    policies = [make_policy(config_of(world), costs) for _ in range(2)]
    dice = random.Random(1)
    for number in range(60):
        for policy in policies:
            policy.observe(world.round(number, 3 * number, policy.choose(), dice)[0])
    assert [policy.choose().length for policy in policies] == [0, 0]
    costs.backoffs.hopeless.clear()  # as a probe of a third one would
    policies[0].observe(world.round(60, 180, policies[0].choose(), dice)[0])
    assert policies[0].choose().length > 0


# -- what it says --


@pytest.mark.parametrize(
    ("fields", "drafters", "said"),
    [
        ({}, 3, "max_speculation_length is 16"),
        (
            {"expansion": (1, 1, 3, 1), "max_tree_nodes": 64},
            3,
            "max_tree_nodes is 64, which leaves 21 for each of 3 drafters, and a draft of 9 has 23 "
            "nodes",
        ),
        (
            {"max_tree_nodes": 8, "combine": "vote"},
            3,
            "max_tree_nodes is 8, and a draft of 9 has 9 nodes",
        ),
        (
            {"max_tree_nodes": 9, "draft": "best_first"},
            3,
            "max_tree_nodes is 9, which leaves 3 for each of 3 drafters",
        ),
        (
            {"max_tree_nodes": 9},
            1,
            "max_tree_nodes is 9, and a draft of 10 has 10 nodes",
        ),
    ],
)
def test_what_bounds_a_draft_is_said_with_its_number(
    fields: dict[str, Any], drafters: int, said: str
) -> None:
    world = World(tuple(drafter(name, 0.99, 0.1, 0.01) for name in "abc"), linear(5, 0.001))
    outlook = Outlook(config_of(world, **fields), world.costs())
    assert outlook.limit(drafters) == said


def test_a_length_that_rests_at_its_bound_says_which() -> None:
    world = World((drafter("a", 0.999, 0.1, 0.01),), linear(5, 0.001))
    config = config_of(world, max_tree_nodes=6)
    result = simulate(world, 400, make_policy(config, world.costs()))
    assert result.choices[-1].reason == (
        "6 stays: no longer draft is possible (max_tree_nodes is 6, and a draft of 7 has 7 nodes)"
    )


def test_rounds_of_earlier_runs_are_named_only_where_there_were_some() -> None:
    """A hopeless drafter's waiting is the engine's; a superfluous one's is the run's own."""
    costs = HOPELESS.costs()
    costs.backoffs.strikes["a"] = STRIKES - 1
    told = [
        choice.reason
        for _ in range(3)
        for choice in simulate(HOPELESS, 700, costs=costs).choices
        if "tried again" in choice.reason
    ]
    others = ["rounds of other runs among them" in reason for reason in told]
    assert not others[0] and any(others[1:])


def test_the_first_drafts_are_not_of_late() -> None:
    def said(acceptance: float) -> dict[int, str]:
        world = World((drafter("a", acceptance, 0.2, 0.2),), linear(5, 0.1))
        reasons = [choice.reason for choice in simulate(world, 400).choices]
        return {i: r for i, r in enumerate(reasons) if "no draft was sure enough" in r}

    early, late = said(0.3), said(0.5)
    assert min(early) < 20 and "so far no draft" in early[min(early)]
    assert min(late) > 32 and all("of late no draft" in reason for reason in late.values())
