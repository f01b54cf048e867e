"""Minions' rule on traces made by hand and in simulated worlds."""

from collections.abc import Iterable

import pytest

from core.config import SpeculationConfig
from core.speculation_length import RoundOutcome, make_policy
from core.speculation_length.trend import Trend
from tests.core.speculation_length.world import (
    Simulated,
    World,
    best_fixed,
    config_of,
    constant,
    simulate,
)


def outcome(length: int, verify_ms: float, tokens: int = 2) -> RoundOutcome:
    return RoundOutcome(length, tokens, length, verify_ms, verify_ms + 50.0)


def feed(policy: Trend, verify_ms: float, tokens: int = 2, times: int = 16) -> int:
    length = policy.choose().length
    for _ in range(times):
        policy.observe(outcome(length, verify_ms, tokens))
    return policy.choose().length


def trend(start: int = 4, max_length: int = 16) -> Trend:
    return Trend(SpeculationConfig(speculation_length=start, max_speculation_length=max_length))


def test_sixteen_verifications_close_a_point() -> None:
    policy = trend()
    assert feed(policy, 6.0, times=15) == 4
    assert policy.choose().reason == "4 stays: 15 of 16 verifications made with it"
    assert feed(policy, 6.0, times=1) == 5
    assert policy.choose().reason == "4 -> 5: nothing to compare with yet (at 4 it is 3.00 ms)"


@pytest.mark.parametrize(
    ("times", "lengths"),
    [
        # falling: a step up each time
        ((6.0, 5.0, 4.0, 3.0), [5, 6, 7, 8]),
        # rising: two steps down each time
        ((6.0, 7.0, 4.0), [5, 3, 1]),
        # level: no change
        ((6.0, 6.0, 6.0), [5, 5, 5]),
        # (length, ms): (4, 3) (5, 4) (3, 5). Slope -0.5: a step up, although the last step was down
        ((6.0, 8.0, 10.0), [5, 3, 4]),
    ],
)
def test_the_slope_against_the_length_decides(times: Iterable[float], lengths: list[int]) -> None:
    policy = trend()
    assert [feed(policy, ms) for ms in times] == lengths


def test_only_the_last_four_points_count() -> None:
    policy = trend()
    assert [feed(policy, ms) for ms in (20.0, 2.0, 4.0)] == [5, 6, 7]
    assert feed(policy, 6.0) == 8, "with (4, 10), the slope is negative"
    assert feed(policy, 8.0) == 6, "(5, 1) (6, 2) (7, 3) (8, 4): positive"


def test_times_are_divided_by_tokens() -> None:
    policy = trend()
    feed(policy, 6.0, tokens=2)
    assert feed(policy, 8.0, tokens=4) == 6, "2 ms per token, after 3 ms"
    policy = trend()
    feed(policy, 4.5, tokens=2)
    for _ in range(8):
        policy.observe(outcome(5, 2.0, 1))
        policy.observe(outcome(5, 12.0, 5))
    assert policy.choose().length == 3, (
        "2.25 ms per token, then 14 / 6; the mean of 2 / 1 and 12 / 5 is 2.2"
    )


def test_lengths_stay_within_their_bounds() -> None:
    policy = trend(start=15)
    assert [feed(policy, ms) for ms in (6.0, 5.0, 4.0)] == [16, 16, 16]
    policy = trend(start=1)
    feed(policy, 2.0)
    assert feed(policy, 6.0) == 1
    assert trend(start=0).choose().length == 1
    assert trend(start=3, max_length=3).choose().length == 3
    assert feed(trend(start=3, max_length=3), 5.0) == 3


@pytest.mark.parametrize(
    ("drafters", "fields", "max_length"),
    [
        (("a",), {"max_tree_nodes": 6}, 6),
        (("a", "b", "ngram"), {"max_tree_nodes": 6}, 2),
        (("a", "b", "ngram"), {"max_tree_nodes": 6, "combine": "vote"}, 6),
        (("a", "b", "ngram"), {"max_tree_nodes": 6, "combine": "log_pool"}, 4),
        (("a",), {"max_tree_nodes": 6, "expansion": (1, 2, 1)}, 3),
        (("a", "b"), {"max_tree_nodes": 1}, 1),
        ((), {"max_tree_nodes": 1}, 1),
        (("a",), {"max_tree_nodes": "uncut"}, 16),
    ],
)
def test_lengths_stay_within_the_node_budget(drafters, fields, max_length):
    settings = {"expansion": (1,), "speculation_length": 1, **fields}
    policy = Trend(SpeculationConfig(drafters=drafters, **settings))
    lengths = [feed(policy, ms) for ms in range(60, 30, -1)]
    assert lengths == [min(length, max_length) for length in range(2, 32)]
    # If all points are at the bound, there is nothing to compare with.
    assert policy.choose().reason.startswith(f"{max_length} stays: nothing to compare with yet")
    assert policy.choose().reason.endswith(f"; {max_length} is the most")
    settings["speculation_length"] = 16
    first = Trend(SpeculationConfig(drafters=drafters, **settings)).choose()
    assert first.length == max_length and first.reason == f"{max_length} to begin with"


def test_verifications_made_with_another_length_are_ignored() -> None:
    policy = trend()
    for _ in range(40):
        policy.observe(outcome(8, 1.0))
    assert policy.choose().length == 4
    assert feed(policy, 6.0) == 5
    # Drafts made with length 4 say nothing about length 5.
    for _ in range(3):
        policy.observe(outcome(4, 1000.0))
    assert feed(policy, 5.0) == 6


def test_choosing_twice_changes_nothing() -> None:
    policy = trend()
    assert policy.choose() == policy.choose()


def test_where_drafting_is_hidden_trend_is_near_the_best_fixed_length() -> None:
    """With SSM time 0, only the LLM's time per token counts."""
    drafter = Simulated("a", constant(0.8), constant(0.0), constant(0.0))
    world = World((drafter,), lambda n: 5 + 0.6 * n, noise=0.0, overhead=0.0)
    _, goodput = best_fixed(world, 2000, longest=8)
    config = config_of(world, length="trend")
    assert simulate(world, 4000, make_policy(config, world.costs())).goodput() > 0.85 * goodput


def test_where_ssm_time_dominates_trend_drafts_too_long() -> None:
    drafter = Simulated("a", constant(0.8), constant(3.0), constant(3.0))
    world = World((drafter,), lambda n: 5 + 0.02 * n, noise=0.0)
    best, goodput = best_fixed(world, 2000, longest=6)
    config = config_of(world, length="trend", speculation_length=4)
    result = simulate(world, 6000, make_policy(config, world.costs()))
    late = result.lengths[len(result.lengths) // 2 :]
    assert best <= 3
    assert sum(late) / len(late) > best + 4
    assert result.goodput(len(result.lengths) // 2) < 0.8 * goodput
    by_goodput = simulate(world, 2000)
    assert by_goodput.goodput() > 0.97 * goodput
