"""What-if predictions: the formula against its limits and a simulation, and where sliders start."""

from __future__ import annotations

import random

import pytest

from tests.synthetic import synthetic_run
from ui.run.frame import Baseline, Frame
from ui.run.view import reduce_all
from ui.run.what_if import RoundCost, expected_tokens, predicted_speedup, what_if_value


@pytest.mark.parametrize(("acceptance", "length"), [(0.3, 2), (0.8, 6), (1.0, 4), (0.0, 5)])
def test_expected_tokens_are_those_of_a_simulation(acceptance: float, length: int) -> None:
    coin = random.Random(7)

    def tokens() -> int:
        accepted = 0
        while accepted < length and coin.random() < acceptance:
            accepted += 1
        return accepted + 1

    mean = sum(tokens() for _ in range(20_000)) / 20_000
    assert mean == pytest.approx(expected_tokens(acceptance, length), abs=0.05)


def test_a_bigger_llm_gains_and_a_slow_connection_loses() -> None:
    cost = RoundCost(step_ms=1.0, pass_ms=4.0, plain_ms=4.0, other_ms=0.5)
    here = predicted_speedup(cost, 0.7, 4)
    assert here == pytest.approx(expected_tokens(0.7, 4) * 4.0 / 8.5)
    assert predicted_speedup(cost, 0.7, 4, llm_size=8) > here
    assert predicted_speedup(cost, 0.7, 4, llm_size=1e9) == pytest.approx(expected_tokens(0.7, 4))
    far = RoundCost(step_ms=1.0, pass_ms=4.0, plain_ms=4.0, other_ms=0.5, trip_ms=50.0)
    assert predicted_speedup(far, 0.7, 4) < 1 < here
    assert predicted_speedup(far, 0.7, 0) == 1.0


def test_the_sliders_start_at_what_the_run_measured() -> None:
    view = reduce_all(synthetic_run(8))
    stats = view.stats
    frame = Frame(view=view, ended=True, at_end=True)
    baseline = Baseline(stats.tokens_per_second / 2, "plain", "measured")
    value = what_if_value(frame, baseline)
    assert value["speedup"] == pytest.approx(2.0)
    assert value["tokens"] == stats.num_new_tokens / stats.num_rounds
    rejected = sum(line.accepted < line.depth for line in view.rounds)
    accepted = stats.num_accepted_tokens
    assert value["acceptance"] == pytest.approx(accepted / (accepted + rejected))
    times = value["length"] * value["step_ms"] + value["pass_ms"] + value["other_ms"]
    assert times * stats.num_rounds <= 1000 * stats.num_new_tokens / stats.tokens_per_second * 1.5
    assert what_if_value(frame, None)["speedup"] is None
    assert what_if_value(Frame(), None) == {}
