"""The switch of `pipeline=auto` on made-up rounds."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.speculation_length.cost_model import Switch
from tests.core.engines import engine_of, tables

SEEDS, ROUNDS = 12, 1000
World = Callable[[random.Random, bool], tuple[float, float]]
"""`world(rng, on)`: the (milliseconds, drafted steps) of a round; `on`: whether the switch is
on."""


def feed(switch: Switch, on_ms: float, off_ms: float, count: int, noise: float = 0.0) -> list:
    """Returns, for each round, whether the switch was on."""
    random.seed(7)
    was_on = []
    for _ in range(count):
        was_on.append(switch.on)
        ms = on_ms if switch.on else off_ms
        switch.observe(ms * (1 + random.uniform(-noise, noise)))
    return was_on


def test_the_switch_stays_on_where_it_pays() -> None:
    was_on = feed(Switch(), on_ms=8.0, off_ms=10.0, count=400, noise=0.2)
    assert not any(was_on[:6]) and all(was_on[7:20])
    assert sum(was_on) > 0.8 * len(was_on)


def test_a_switch_that_does_not_pay_is_tried_less_and_less_often() -> None:
    was_on = feed(Switch(), on_ms=13.0, off_ms=10.0, count=1000, noise=0.2)
    starts = [i for i in range(1, 1000) if was_on[i] and not was_on[i - 1]]
    gaps = [b - a for a, b in zip(starts, starts[1:], strict=False)]
    assert gaps == sorted(gaps) and gaps[-1] > 128
    assert sum(was_on) < 0.08 * len(was_on)


def test_the_switch_follows_a_change() -> None:
    switch = Switch()
    feed(switch, on_ms=13.0, off_ms=10.0, count=300)
    assert not switch.on
    after = feed(switch, on_ms=7.0, off_ms=10.0, count=300)
    assert all(after[-100:-40]) or sum(after[-150:]) > 120
    back = feed(switch, on_ms=13.0, off_ms=10.0, count=300)
    assert sum(back[-150:]) < 30


def test_one_outlier_decides_nothing() -> None:
    switch = Switch()
    for i in range(60):
        ms = 8.0 if switch.on else 10.0
        switch.observe(500.0 if i % 9 == 8 else ms)
    assert switch.on


def test_a_negative_prediction_does_not_stop_comparisons() -> None:
    """The line through the first rounds' times is negative at 0 steps."""
    switch, steps = Switch(), 0.0
    while not switch.on:
        steps = 3.0 - steps if steps else 1.0
        switch.observe(10.0 * steps - 5.0, steps)
    assert sum(switch.observe(10.0, 0.0) is not None for _ in range(24)) > 0


@given(
    st.lists(st.tuples(st.floats(-1.0, 1e6), st.sampled_from((0.0, 0.5, 1.0, 8.0))), max_size=90)
)
def test_the_reported_times_are_never_negative(seen: list[tuple[float, float]]) -> None:
    switch = Switch()
    for ms, steps in seen:
        result = switch.observe(ms, steps)
        assert result is None or min(result) >= 0


def test_each_set_of_drafters_has_its_own_switch() -> None:
    costs = engine_of(*tables()).costs
    feed(costs.pipeline_switch("across", ["a", "b"]), on_ms=8.0, off_ms=10.0, count=40)
    feed(costs.pipeline_switch("across", ["a"]), on_ms=13.0, off_ms=10.0, count=40)
    assert costs.pipeline_switch("across", ("b", "a")).on
    assert not costs.pipeline_switch("across", ["a"]).on
    assert not costs.pipeline_switch("ahead", ["a", "b"]).on


@dataclass(frozen=True)
class SwitchStats:
    """`flips`: changes of the switch's decision per thousand rounds. `lost`: the share of time lost
    against a switch that is always off."""

    on: float
    flips: float
    lost: float


def serve(world: World, factor: float, noise: float, *, observes_steps: bool = True) -> SwitchStats:
    """With the switch on, a round takes `factor` times as long."""
    on = flips = 0
    spent = always_off = 0.0
    for seed in range(SEEDS):
        rng, switch = random.Random(seed), Switch()
        for _ in range(ROUNDS):
            previous = switch._default
            ms, steps = world(rng, switch.on)
            on += switch.on
            always_off += 1
            spent += factor if switch.on else 1
            ms *= (factor if switch.on else 1) * rng.lognormvariate(0, noise)
            switch.observe(ms, steps if observes_steps else 0.0)
            flips += switch._default != previous
    rounds = SEEDS * ROUNDS
    return SwitchStats(on / rounds, 1000 * flips / rounds, spent / always_off - 1)


def steady(rng: random.Random, on: bool) -> tuple[float, float]:
    return 5.0, 4.0


def short_or_long(rng: random.Random, on: bool) -> tuple[float, float]:
    steps = rng.choice((0.0, 0.0, 8.0))
    return 4.0 + steps, steps


def longer_when_on(rng: random.Random, on: bool) -> tuple[float, float]:
    steps = rng.choice((5.0, 6.0, 7.0) if on else (2.0, 3.0, 4.0))
    return 4.0 + steps, steps


@pytest.mark.parametrize("observes_steps", [True, False])
def test_in_varying_rounds_the_switch_stays_off_where_it_does_not_pay(observes_steps: bool) -> None:
    result = serve(short_or_long, 1.15, 0.1, observes_steps=observes_steps)
    assert result.on < 0.15 and result.lost < 0.025 and result.flips < 1


@pytest.mark.parametrize("noise", [0.05, 0.25])
def test_without_a_difference_the_decision_does_not_change(noise: float) -> None:
    assert serve(steady, 1.0, noise).flips < 2
    assert sum(feed(Switch(), on_ms=10.0, off_ms=10.0, count=500)) < 50, "the switch stays off"


def test_without_a_difference_short_and_long_rounds_do_not_change_it() -> None:
    assert serve(short_or_long, 1.0, 0.1).flips < 2
    assert serve(short_or_long, 1.0, 0.1, observes_steps=False).flips < 2.5


@pytest.mark.parametrize(("factor", "noise", "on"), [(0.9, 0.05, 0.93), (0.8, 0.25, 0.9)])
def test_the_switch_turns_on_in_noise_where_it_pays(factor: float, noise: float, on: float) -> None:
    assert serve(steady, factor, noise).on > on
    assert serve(short_or_long, factor, 0.1).on > 0.85


def test_a_switch_that_no_longer_pays_is_turned_off() -> None:
    on = 0
    for seed in range(40):
        rng, switch = random.Random(seed), Switch()
        switch.on = switch._default = True
        for _ in range(600):
            on += switch.on
            switch.observe(5 * (1.1 if switch.on else 1.0) * rng.lognormvariate(0, 0.25), 4.0)
    assert on / 40 / 600 < 0.13


def test_trials_without_success_cost_little() -> None:
    assert serve(steady, 1.15, 0.05).lost < 0.008
    assert serve(steady, 1.15, 0.25).lost < 0.015


def test_longer_drafts_while_on_do_not_turn_the_switch_off() -> None:
    result = serve(longer_when_on, 0.8, 0.1)
    assert result.on > 0.9 and result.flips < 2
    assert serve(longer_when_on, 1.15, 0.1).on < 0.1


def test_the_round_after_a_change_is_not_compared() -> None:
    switch, results, was_on = Switch(), [], False
    for _ in range(40):
        changed, was_on = switch.on != was_on, switch.on
        ms = 8.0 if switch.on else 10.0
        results.append(switch.observe(ms * 2 if changed else ms))
    assert [result for result in results if result] == [(8.0, 10.0)] * 2, "the compared times"
    assert switch.on


def test_a_clearly_worse_setting_is_tried_for_three_rounds() -> None:
    switch, was_on = Switch(), []
    for _ in range(12):
        was_on.append(switch.on)
        switch.observe(13.0 if switch.on else 10.0)
    assert was_on == [False] * 6 + [True] * 4 + [False] * 2


def test_invalid_times_are_ignored() -> None:
    switch = Switch()
    for ms in (float("nan"), 0.0, float("inf")):
        for _ in range(20):
            assert switch.observe(ms, 3.0) is None
    assert not switch.on
