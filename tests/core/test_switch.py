"""The switch of `pipeline=auto` on made-up rounds whose right answer is known."""

import random

from hypothesis import given
from hypothesis import strategies as st

from core.length.cost_model import Switch
from tests.core.engines import engine_of, tables


def rounds(switch: Switch, on_ms: float, off_ms: float, count: int, noise: float = 0.0) -> list:
    """Feeds rounds; how the switch stood in each."""
    random.seed(7)
    stood = []
    for _ in range(count):
        stood.append(switch.on)
        ms = on_ms if switch.on else off_ms
        switch.observe(ms * (1 + random.uniform(-noise, noise)))
    return stood


def test_what_pays_is_left_on() -> None:
    stood = rounds(Switch(), on_ms=8.0, off_ms=10.0, count=400, noise=0.2)
    assert not any(stood[:6]) and all(stood[7:20])
    assert sum(stood) > 0.8 * len(stood)


def test_what_does_not_pay_is_tried_ever_more_seldom() -> None:
    stood = rounds(Switch(), on_ms=13.0, off_ms=10.0, count=1000, noise=0.2)
    starts = [i for i in range(1, 1000) if stood[i] and not stood[i - 1]]
    gaps = [b - a for a, b in zip(starts, starts[1:], strict=False)]
    assert gaps == sorted(gaps) and gaps[-1] > 128
    # 30 % of less than a tenth of the rounds.
    assert sum(stood) < 0.08 * len(stood)


def test_no_difference_is_no_reason() -> None:
    assert sum(rounds(Switch(), on_ms=10.0, off_ms=10.0, count=500)) < 50


def test_it_follows_a_change() -> None:
    switch = Switch()
    rounds(switch, on_ms=13.0, off_ms=10.0, count=300)
    assert not switch.on
    after = rounds(switch, on_ms=7.0, off_ms=10.0, count=300)
    assert all(after[-100:-40]) or sum(after[-150:]) > 120
    back = rounds(switch, on_ms=13.0, off_ms=10.0, count=300)
    assert sum(back[-150:]) < 30


def test_it_tells_what_it_compared() -> None:
    switch, told = Switch(), []
    for _ in range(40):
        found = switch.observe(8.0 if switch.on else 10.0)
        if found:
            told.append(found)
    assert told[0] == (8.0, 10.0)
    assert told[1:] == [(8.0, 10.0)] and switch.on


def test_one_outlier_decides_nothing() -> None:
    switch = Switch()
    for i in range(60):
        ms = 8.0 if switch.on else 10.0
        switch.observe(500.0 if i % 9 == 8 else ms)
    assert switch.on


def test_where_a_round_seems_to_be_all_drafting_one_without_still_takes_something() -> None:
    """The line would go through nothing or less where the tried rounds of no steps lie."""
    switch, steps = Switch(), 0.0
    while not switch.on:
        steps = 3.0 - steps if steps else 1.0
        switch.observe(10.0 * steps - 5.0, steps)
    assert sum(switch.observe(10.0, 0.0) is not None for _ in range(24)) > 0


@given(
    st.lists(st.tuples(st.floats(-1.0, 1e6), st.sampled_from((0.0, 0.5, 1.0, 8.0))), max_size=90)
)
def test_no_times_break_it(seen: list[tuple[float, float]]) -> None:
    switch = Switch()
    for ms, steps in seen:
        found = switch.observe(ms, steps)
        assert found is None or min(found) >= 0


def test_what_holds_for_some_drafters_does_not_for_others() -> None:
    costs = engine_of(*tables()).costs
    rounds(costs.pipelining("across", ["a", "b"]), on_ms=8.0, off_ms=10.0, count=40)
    rounds(costs.pipelining("across", ["a"]), on_ms=13.0, off_ms=10.0, count=40)
    assert costs.pipelining("across", ("b", "a")).on
    assert not costs.pipelining("across", ["a"]).on
    assert not costs.pipelining("ahead", ["a", "b"]).on
