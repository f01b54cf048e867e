"""Statistics with known answers."""

import numpy as np
import pytest

from lab.figures import (
    Rows,
    Statistic,
    estimate,
    least_squares,
    median,
    middle,
    pooled_length,
    pooled_ratio,
)


def mean(rows: Rows) -> Rows:
    return rows[..., 0].mean(axis=-1)


@pytest.mark.parametrize(
    ("values", "middle"), [([3.0], 3.0), ([5.0, 1.0, 3.0], 3.0), ([4.0, 1.0, 2.0, 100.0], 3.0)]
)
def test_median(values: list[float], middle: float) -> None:
    assert median(values) == middle


def test_an_estimate_without_values_is_none() -> None:
    assert estimate([], middle) is None
    assert estimate([[]], middle) is None


def test_equal_values_have_no_width() -> None:
    result = estimate([[2.5]] * 7, middle)
    assert (result.value, result.low, result.high, result.half_width) == (2.5, 2.5, 2.5, 0.0)
    assert result.groups == 7


def test_the_interval_of_two_values_reaches_both() -> None:
    """Resampled means of {0, 1} are 0, 1/2, 1 with chances 1/4, 1/2, 1/4."""
    result = estimate([[0.0], [1.0]], mean)
    assert (result.value, result.low, result.high) == (0.5, 0.0, 1.0)


def test_the_default_seed_is_fixed() -> None:
    groups = [[float(x)] for x in np.random.default_rng(3).normal(size=20)]
    assert estimate(groups, middle) == estimate(groups, middle)
    assert estimate(groups, middle) != estimate(groups, middle, seed=1)


@pytest.mark.parametrize("count", range(2, 9))
def test_of_few_values_the_interval_is_from_the_lowest_to_the_highest(count: int) -> None:
    values = [float(i * i) for i in range(count)]
    result = estimate([[value] for value in values], middle)
    assert result is not None and result.ends == (count < 6)
    if result.ends:
        assert (result.low, result.high) == (values[0], values[-1])
    pooled = estimate([[(value, 1.0)] for value in values], pooled_length)
    assert pooled is not None and pooled.ends == (count < 4), (
        "from four values on, the interval is narrower"
    )


def test_intervals_cover_the_true_value_about_as_often_as_nominal() -> None:
    """Nominally 95 %; a percentile bootstrap of 30 values covers a little less."""
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        groups = [[float(x)] for x in random.normal(10.0, 2.0, size=30)]
        result = estimate(groups, mean, resamples=300)
        covered += result.low <= 10.0 <= result.high
    assert 0.87 <= covered / 200 <= 0.99


def test_repeating_a_group_s_values_does_not_narrow_the_interval() -> None:
    values = np.random.default_rng(7).normal(size=12).tolist()
    once = estimate([[v] for v in values], mean)
    thrice = estimate([[v] * 3 for v in values], mean)
    apart = estimate([[v] for v in values * 3], mean)
    assert once is not None and thrice is not None and apart is not None
    assert thrice.low == pytest.approx(once.low)
    assert thrice.high == pytest.approx(once.high)
    assert apart.half_width < 0.8 * once.half_width


def test_groups_of_equal_and_unequal_size_give_the_same_interval() -> None:
    """A row of zeros does not change ratios of sums."""
    rows = [[[1.0, 4.0]], [[6.0, 3.0]], [[2.0, 2.0]]]
    uneven = [[*rows[0], [0.0, 0.0]], *rows[1:]]
    fast, slow = estimate(rows, pooled_length), estimate(uneven, pooled_length)
    assert fast is not None and slow is not None
    assert (fast.value, fast.low, fast.high) == pytest.approx((slow.value, slow.low, slow.high))


def test_pooled_figures_count_rounds_not_prompts() -> None:
    rows = np.array([[6.0, 2.0, 1.0, 1.0], [2.0, 2.0, 1.0, 1.0]])
    assert pooled_ratio(rows) == pytest.approx((1 + 8 / 4) / (1 + 2 / 2))
    assert pooled_length(np.array([[9.0, 3.0], [1.0, 7.0]])) == 2.0


def test_least_squares() -> None:
    assert least_squares([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx((1.0, 2.0))
    assert least_squares([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)]) == pytest.approx((1 / 3, 0.0))
    assert least_squares([(4.0, 1.0), (4.0, 3.0)]) == (2.0, 0.0)


@pytest.mark.parametrize("statistic", [middle, pooled_length, pooled_ratio])
def test_unequal_groups_give_the_interval_of_samples_drawn_one_by_one(statistic: Statistic) -> None:
    random = np.random.default_rng(11)
    columns = 1 if statistic is middle else 4
    groups = [random.integers(1, 9, size=(size, columns)).tolist() for size in (1, 4, 2, 3, 2)]
    result = estimate(groups, statistic, resamples=300, seed=2)
    arrays = [np.asarray(group, dtype=float) for group in groups]
    picks = np.random.default_rng(2).integers(5, size=(300, 5))
    drawn = [float(statistic(np.concatenate([arrays[i] for i in pick]))) for pick in picks]
    assert result.value == float(statistic(np.concatenate(arrays)))
    assert (result.low, result.high) == tuple(np.percentile(drawn, [2.5, 97.5]))
