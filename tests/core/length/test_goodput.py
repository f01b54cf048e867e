"""`goodput` in worlds whose best length is known beforehand, by trying every fixed one."""

from __future__ import annotations

import functools
import math
import re
from itertools import pairwise

import pytest

from core.length import DraftOutcome, RoundOutcome, make_policy
from core.length.cost_model import Costs, VerifyCosts
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

TOKENS = 1500


def drafter(name: str, chance: float, start: float, step: float, source: str = "") -> Simulated:
    return Simulated(name, constant(chance), constant(start), constant(step), source)


def linear(plain: float, node: float) -> functools.partial[float]:
    return functools.partial(lambda a, b, n: a + b * n, plain, node)


def hilly(position: int) -> float:
    """Four tokens in a row, of which the drafter knows the first two."""
    return (0.95, 0.9, 0.6, 0.3)[position * 7919 % 4]


CHEAP = World((drafter("a", 0.8, 0.3, 0.3),), linear(5, 0.05))
DEAR = World((drafter("a", 0.7, 2.0, 1.8),), linear(5, 0.1))
STEEP = World((drafter("a", 0.85, 0.2, 0.2),), lambda n: 5 + max(0, n - 4))
UNCALIBRATED = World(
    (Simulated("a", hilly, constant(0.6), constant(0.6), error=2.0),), linear(5, 0.1)
)
INDEPENDENT = World((drafter("a", 0.6, 0.4, 0.4), drafter("b", 0.6, 0.4, 0.4)), linear(5, 0.1))
TWINS = World(
    (drafter("a", 0.75, 0.8, 0.8, "x"), drafter("b", 0.75, 0.8, 0.8, "x")), linear(5, 0.1)
)
HOPELESS = World((drafter("a", 0.08, 1.0, 1.0),), linear(5, 0.1))
SURE = World((drafter("a", 0.96, 0.4, 0.4),), linear(5, 0.05))
WORLDS = {
    "cheap": CHEAP,
    "sure": SURE,
    "dear": DEAR,
    "steep": STEEP,
    "uncalibrated": UNCALIBRATED,
    "independent": INDEPENDENT,
    "twins": TWINS,
    "hopeless": HOPELESS,
}
# The longest that is worth trying; elsewhere it is 8.
MOST = {"sure": 16, "hopeless": 2, "dear": 4, "steep": 6}


@functools.cache
def found(name: str) -> Result:
    return simulate(WORLDS[name], TOKENS)


@pytest.mark.parametrize("name", WORLDS)
def test_it_reaches_the_best_fixed_length(name: str) -> None:
    _, goodput = best_fixed(WORLDS[name], TOKENS, most=MOST.get(name, 8))
    assert found(name).goodput() >= 0.97 * goodput


def test_it_settles_on_the_best_length() -> None:
    for name in ("cheap", "dear", "steep"):
        best, _ = best_fixed(WORLDS[name], TOKENS, most=9)
        late = found(name).lengths[100:]
        assert abs(sum(late) / len(late) - best) <= 1.2, name


@pytest.mark.parametrize("name", WORLDS)
def test_it_does_not_oscillate(name: str) -> None:
    """In a stationary world the length rests; a probe's two rounds are no move."""
    lengths = found(name).lengths
    probes = sum("tried again" in choice.reason for choice in found(name).choices)
    assert found(name).changes - 2 * probes <= 8 + len(lengths) / 100


def test_a_hopeless_drafter_costs_next_to_nothing() -> None:
    plain = fixed(HOPELESS, TOKENS, 0).goodput()
    assert found("hopeless").goodput() >= 0.97 * plain
    assert found("hopeless").lengths[-1] == 0
    assert found("hopeless").choices[-1].drafters == frozenset()
    assert "0 stays: no draft beats plain decoding at" in found("hopeless").choices[-1].reason


def test_where_nobody_drafts_a_plan_is_kept_until_a_probe_can_be_paid() -> None:
    """Working out that nothing is to be done costs as much as it saves."""
    late = found("hopeless").choices[100:]
    plans = sum(after is not before for before, after in pairwise(late))
    probes = sum("tried again" in choice.reason for choice in late)
    assert probes >= 2
    assert plans <= len(late) / 16 + 4 * probes


def test_a_drafter_that_repeats_another_is_dropped() -> None:
    late = found("twins").choices[40:]
    alone = [choice for choice in late if choice.drafters == {"a"}]
    assert len(alone) >= 0.95 * len(late)
    single = World(TWINS.drafters[:1], TWINS.verify)
    assert found("twins").goodput(40) >= 0.97 * best_fixed(single, TOKENS, most=6)[1]
    said = [
        choice.reason for choice in found("twins").choices if "b stops drafting" in choice.reason
    ]
    assert said and "beyond the others it brings" in said[0]


def test_the_better_drafter_stays_wherever_it_stands() -> None:
    bad, good = drafter("bad", 0.4, 0.8, 0.8), drafter("good", 0.85, 0.8, 0.8)
    for drafters in ((bad, good), (good, bad)):
        late = simulate(World(drafters, linear(5, 0.1)), TOKENS).choices[60:]
        assert sum(c.drafters == {"good"} for c in late) >= 0.8 * len(late)


def test_drafters_that_know_different_things_stay_together() -> None:
    late = found("independent").choices[50:]
    together = sum(choice.drafters == {"a", "b"} for choice in late)
    assert together >= 0.6 * len(late)


def test_easy_and_hard_stretches_beat_every_fixed_length() -> None:
    def chance(position: int) -> float:
        return 0.95 if position // 60 % 2 == 0 else 0.25

    world = World((Simulated("a", chance, constant(0.6), constant(0.6)),), linear(5, 0.1))
    result = simulate(world, TOKENS)
    assert result.goodput() >= 1.03 * best_fixed(world, TOKENS, most=9)[1]


def test_sixteen_drafters_are_few_in_the_end() -> None:
    drafters = tuple(drafter(f"d{i}", 0.7, 0.5, 0.5, "x") for i in range(16))
    result = simulate(World(drafters, linear(5, 0.1)), 300)
    assert len(result.choices[-1].drafters or ()) <= 2
    assert len(result.choices[0].drafters or ()) == 16


# -- what it says --


@pytest.mark.parametrize("name", ["cheap", "dear", "steep"])
def test_estimates_are_right(name: str) -> None:
    """Tokens and milliseconds of each length, on average over a run, within a tenth."""
    world = WORLDS[name]
    (only,) = world.drafters
    chance, start, step = only.chance(0), only.start(0), only.step(0)
    late = found(name).choices[50:]
    for length in range(6):
        mine = [choice.estimates[length] for choice in late]
        assert {e.length for e in mine} == {length}
        tokens = (1 - chance ** (length + 1)) / (1 - chance)
        drafting = start + (length - 1) * step if length else 0.0
        ms = world.verify(length) + world.books + drafting
        assert sum(e.tokens for e in mine) / len(mine) == pytest.approx(tokens, rel=0.1)
        assert sum(e.ms for e in mine) / len(mine) == pytest.approx(ms, rel=0.1)


@pytest.mark.parametrize("name", ["cheap", "dear", "hopeless", "uncalibrated"])
def test_rounds_take_as_long_as_predicted(name: str) -> None:
    result = found(name)
    predicted = sum(choice.predicted_ms for choice in result.choices[20:])
    assert predicted == pytest.approx(sum(result.true_ms[20:]), rel=0.1)


def test_a_move_is_told_with_its_numbers() -> None:
    moves = [c for c in found("cheap").choices if " -> " in c.reason]
    assert moves
    pattern = (
        r"^\d+ -> \d+: where the drafter is surest, an? \w+ step costs \d+\.\d ms and brings "
        r"\d+\.\d\d tokens, worth \d+\.\d ms at \d+ tokens a second"
    )
    assert all(re.match(pattern, choice.reason) for choice in moves)
    up = next(c.reason for c in moves)
    assert up.startswith(f"4 -> {moves[0].length}: where")


def test_asking_twice_changes_nothing() -> None:
    policy = make_policy(config_of(CHEAP), CHEAP.costs())
    assert policy.choose() is policy.choose()


# -- what it is given --


def test_a_node_budget_bounds_the_length() -> None:
    for nodes, most in ((6, 6), (3, 3)):
        config = config_of(CHEAP, max_tree_nodes=nodes)
        result = simulate(CHEAP, 400, make_policy(config, CHEAP.costs()))
        assert max(result.lengths) == most
        assert len(result.choices[-1].estimates) == nodes + 1
    config = config_of(INDEPENDENT, max_tree_nodes=6)
    first = make_policy(config, INDEPENDENT.costs()).choose()
    assert first.length == 3, "six nodes for two drafters are three each"
    names = ("a", "b", "ngram")
    pool = config_of(INDEPENDENT, drafters=names, combine="log_pool", max_tree_nodes=6)
    estimates = make_policy(pool, INDEPENDENT.costs()).choose().estimates
    assert len(estimates) == 5, "six nodes are four for the pool of two, and two beside it"
    wide = config_of(CHEAP, expansion=(1, 1, 3, 1), max_tree_nodes=8)
    assert len(make_policy(wide, CHEAP.costs()).choose().estimates) == 5
    assert [e.nodes for e in make_policy(wide, CHEAP.costs()).choose().estimates] == [0, 1, 2, 5, 8]


@pytest.mark.parametrize("combine", ["vote", "log_pool"])
def test_who_votes_or_pools_is_judged_together(combine: str) -> None:
    for world in (
        INDEPENDENT,
        World((*HOPELESS.drafters, drafter("b", 0.1, 1, 1)), linear(5, 0.1)),
    ):
        config = config_of(world, combine=combine)
        result = simulate(world, 400, make_policy(config, world.costs()))
        assert {choice.drafters for choice in result.choices} <= {frozenset("ab"), frozenset()}
        assert (result.lengths[-1] == 0) == (world is not INDEPENDENT)


def test_without_drafters_it_is_plain_decoding() -> None:
    choice = make_policy(config_of(World((), linear(5, 0.1))), CHEAP.costs()).choose()
    assert choice.length == 0 and choice.drafters is None
    assert choice.reason == "plain decoding: there is no drafter"


@pytest.mark.parametrize("ms", [0.0, math.nan, math.inf, -1.0])
def test_times_that_are_none_break_nothing(ms: float) -> None:
    table = VerifyCosts({0: ms, 1: ms, 8: 0.0}, 64)
    policy = make_policy(config_of(CHEAP), Costs(None, table))  # type: ignore[arg-type]
    for _ in range(40):
        choice = policy.choose()
        depths = tuple(range(1, choice.length + 1))
        if choice.stop is not None:
            choice.stop.steps("a", 2, [math.nan])
            choice.stop.keeps("a", 1, math.nan)
        count, chances = len(depths), (math.nan,) * len(depths)
        draft = DraftOutcome(ms, count, depths, chances, (0,), 1, ms, ms, num_verified=count)
        ones = (1,) * count
        policy.observe(RoundOutcome(choice.length, 2, count, ms, ms, {"a": draft}, widths=ones))
    assert 0 <= policy.choose().length <= 16
    assert all(math.isfinite(e.ms) and math.isfinite(e.tokens) for e in policy.choose().estimates)
