"""Drafter weights on traces with known results."""

import math

import pytest

from core.config import SpeculationConfig
from core.drafters.drafter_weights import (
    CORRECTED,
    LikelihoodHistory,
    LikelihoodWeights,
    MinionsWeights,
    make_weights,
    needs_likelihoods,
)

NAMES = ("a", "b", "c")


def paper(**fields: float) -> MinionsWeights:
    return MinionsWeights(SpeculationConfig(**fields), NAMES)


def full() -> LikelihoodWeights:
    return LikelihoodWeights(NAMES)


def observe(weights: LikelihoodWeights, likelihoods: dict[str, list[float]]) -> None:
    history = LikelihoodHistory({name: len(result) for name, result in likelihoods.items()})
    weights.observe_likelihoods(likelihoods, history)


def test_a_winner_above_the_mean_gains_and_below_it_loses_by_one_tenth() -> None:
    weights = paper()
    weights.observe_wins([("a", 0.5)])  # the first win sets the mean, and changes no weight
    assert weights.values() == dict.fromkeys(NAMES, 1.0)
    weights.observe_wins([("b", 0.8)])
    raised = (1.1, 1.0, 1.0)
    mean = sum(raised) / 3
    assert weights.values() == pytest.approx({"a": 1 / mean, "b": 1.1 / mean, "c": 1 / mean})
    before = weights.values()
    weights.observe_wins([("c", 0.1)])
    lowered = {**before, "c": before["c"] / 1.1}
    mean = sum(lowered.values()) / 3
    assert weights.values() == pytest.approx({k: v / mean for k, v in lowered.items()})


def test_only_winners_change_and_their_requests_are_averaged() -> None:
    weights = paper(eta=0.5)
    weights.observe_wins([("a", 0.5), ("b", 0.5)])
    # a: 0.4 on average, below the mean; b: 0.9, above the mean; c did not win.
    weights.observe_wins([("a", 0.7), ("a", 0.1), ("b", 0.9)])
    moved = {"a": 1 / 1.5, "b": 1.5, "c": 1.0}
    mean = sum(moved.values()) / 3
    assert weights.values() == pytest.approx({k: v / mean for k, v in moved.items()})


@pytest.mark.parametrize(("share", "gains"), [(0.143, False), (0.149, True)])
def test_the_mean_follows_recent_wins(share: float, gains: bool) -> None:
    """With rate 1 / 64, ten wins raise the mean to 1 - (63 / 64)^10 = 0.146."""
    weights = paper()
    for _ in range(200):
        weights.observe_wins([("a", 0.0)])
    for _ in range(10):
        weights.observe_wins([("a", 1.0)])
    before = weights.values()
    weights.observe_wins([("b", share)])
    weights_after = weights.values()
    assert (weights_after["b"] / weights_after["c"] > before["b"] / before["c"]) == gains


def test_at_first_the_mean_is_that_of_all_wins() -> None:
    for share, gains in ((0.16, False), (0.17, True)):
        weights = paper()
        weights.observe_wins([("a", 0.0)] * 50 + [("a", 1.0)] * 10)
        weights.observe_wins([("b", share)])
        assert (weights.values()["b"] > 1.0) == gains


def test_weights_stay_within_their_bounds() -> None:
    weights = paper(eta=1.0, weight_bounds=(0.2, 2.0))
    for step in range(40):
        weights.observe_wins([("a", 1.0), ("b", 0.0)] if step % 2 else [("b", 0.0), ("a", 1.0)])
    values = weights.values()
    assert values["a"] == 2.0 and values["b"] == 0.2
    assert all(0.2 <= value <= 2.0 for value in values.values())


def test_no_win_and_an_equal_one_change_nothing() -> None:
    weights = paper()
    weights.observe_wins([])
    weights.observe_wins([("a", 0.5)])
    weights.observe_wins([("b", 0.5)])
    assert weights.values() == dict.fromkeys(NAMES, 1.0)


def test_a_share_equal_to_the_mean_except_for_rounding_changes_nothing() -> None:
    weights = paper()
    # The running mean is 0.6666666666666667, but 2 / 3 is 0.6666666666666666.
    weights.observe_wins([("a", share) for share in (1.0, 1.0, 1 / 3, 1.0, 0.0)])
    weights.observe_wins([("b", 2 / 3)])
    assert weights.values() == dict.fromkeys(NAMES, 1.0)


def test_weights_are_the_likelihoods_with_forgetting() -> None:
    weights = full()
    observe(weights, {"a": [0.5, 0.25], "b": [0.25, 0.5], "c": [0.1, 0.1]})
    raw = {"a": 0.5**0.95 * 0.25, "b": 0.25**0.95 * 0.5, "c": 0.1**1.95}
    mean = sum(raw.values()) / 3
    assert weights.values() == pytest.approx({k: v / mean for k, v in raw.items()})


def test_likelihoods_below_the_floor_count_as_the_floor() -> None:
    floor, below = full(), full()
    observe(floor, {"a": [1e-3], "b": [0.5]})
    observe(below, {"a": [0.0], "b": [0.5]})
    assert floor.values() == below.values()


Report = tuple[dict[str, list[float]], int]


def weights_after(*reports: Report) -> dict[str, float]:
    """A report is (likelihoods by drafter, length of the text)."""
    weights, history = full(), LikelihoodHistory()
    for probabilities, length in reports:
        for name, result in probabilities.items():
            history.advance(name, len(result), length, whole=False)
        weights.observe_likelihoods(probabilities, history)
    return weights.values()


A, B = [0.9, 0.5, 0.2, 0.6, 0.8, 0.4], [0.3, 0.7, 0.1, 0.9, 0.2, 0.5]


def test_a_drafter_without_a_report_gets_the_others_mean() -> None:
    alone = weights_after(({"a": A}, 7))
    assert alone == pytest.approx(dict.fromkeys(NAMES, 1.0)), "nothing to compare it with"
    expected = weights_after(({"a": A, "b": B}, 7))
    assert expected["c"] == pytest.approx(math.sqrt(expected["a"] * expected["b"]))
    assert weights_after(({"a": A, "b": B, "c": []}, 7)) == pytest.approx(expected)
    only_nan = weights_after(({"a": A, "b": B, "c": [math.nan] * 6}, 7))
    assert only_nan == pytest.approx(expected)


@pytest.mark.parametrize(
    "reports",
    [
        (
            ({"a": A[:1], "b": B[:1]}, 2),
            ({"a": A[1:4], "b": B[1:2]}, 7),
            ({"a": A[4:], "b": B[2:]}, 7),
        ),
        (({"a": A[:2], "b": B[:2]}, 3), ({"a": A[2:]}, 7), ({"b": B[2:]}, 7)),
        (({"a": A[:2]}, 3), ({"a": A[2:5], "b": B[:5]}, 6), ({"b": B[5:], "a": A[5:]}, 7)),
        (({"b": B}, 7), ({"a": A}, 7)),
        (({"a": A[:2], "c": []}, 3), ({"c": [math.nan] * 4}, 7), ({"a": A[2:], "b": B}, 7)),
    ],
    ids=["both lag", "one lags", "one opens late", "one opens later", "the first word is none"],
)
def test_a_late_report_counts_as_one_in_time(reports: tuple[Report, ...]) -> None:
    assert weights_after(*reports) == pytest.approx(weights_after(({"a": A, "b": B}, 7)))


def test_old_tokens_are_not_corrected() -> None:
    long, less = [0.5] * (CORRECTED + 30), [0.1] * 30 + [0.5] * CORRECTED
    report = ({"a": long, "b": long}, len(long) + 1)
    assert weights_after(report, ({"c": less}, len(long) + 1)) == pytest.approx(
        weights_after(report)
    )
    corrected = weights_after(report, ({"c": [0.1] + less[-CORRECTED + 1 :]}, len(long) + 1))
    assert corrected["c"] / corrected["a"] == pytest.approx(0.2 ** (0.95 ** (CORRECTED - 1)))
    # Positions that no drafter reported are skipped.
    weights, history = full(), LikelihoodHistory({"a": 3})
    weights.observe_likelihoods({"a": [0.5] * 2}, history)
    history.positions["b"] = 10**12
    weights.observe_likelihoods({"b": [0.5] * 2}, history)
    assert len(history.tokens) == CORRECTED


def test_texts_that_share_their_weights_are_not_mixed_up() -> None:
    weights, texts = full(), (LikelihoodHistory({"a": 2}), LikelihoodHistory({"a": 2}))
    weights.observe_likelihoods({"a": [0.5]}, texts[0])
    weights.observe_likelihoods({"a": [0.25]}, texts[1])
    texts[0].positions["b"] = 2
    weights.observe_likelihoods({"b": [0.1]}, texts[0])
    values = weights.values()
    assert values["a"] / values["b"] == pytest.approx(5**0.95)


def test_likelihood_weights_follow_likelihoods_and_not_wins() -> None:
    weights = full()
    weights.observe_wins([("a", 1.0)])
    assert weights.values() == dict.fromkeys(NAMES, 1.0)
    observe(weights, {"b": [0.9], "a": [0.1], "c": [0.1]})
    assert weights.values()["b"] > 2


def test_a_very_long_text_neither_overflows_nor_vanishes() -> None:
    weights = full()
    observe(weights, {"a": [0.9] * 50_000, "b": [1e-9] * 50_000, "c": [0.5] * 50_000})
    values = weights.values()
    assert sum(values.values()) == pytest.approx(3.0)
    assert all(value >= 0 for value in values.values())


@pytest.mark.parametrize(
    ("combine", "rule", "expected"),
    [
        ("union", "full_information", False),
        ("vote", "paper", False),
        ("vote", "full_information", True),
        ("vote_tree", "full_information", True),
        ("log_pool", "full_information", True),
    ],
)
def test_likelihoods_are_needed_only_where_they_are_read(combine: str, rule: str, expected: bool):
    assert needs_likelihoods(SpeculationConfig(combine=combine, weights=rule)) == expected


def test_each_rule_has_its_weights() -> None:
    for rule, kind in (("paper", MinionsWeights), ("full_information", LikelihoodWeights)):
        assert isinstance(make_weights(SpeculationConfig(weights=rule), NAMES), kind)
    assert make_weights(SpeculationConfig(), ()).values() == {}
