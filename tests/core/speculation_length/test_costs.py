"""Costs and back-offs on traces with known results."""

import math

import pytest

from core.speculation_length.cost_model import (
    Average,
    Backoffs,
    Costs,
    DraftCosts,
    Meter,
    RunBackoffs,
    VerifyCosts,
)
from core.speculation_length.cost_model.backoff import MAX_FAILED_RUNS


def test_a_meter_follows_lasting_changes_and_ignores_outliers() -> None:
    meter = Meter()
    assert meter.value is None and meter.get(7.0) == 7.0
    for _ in range(10):
        meter.add(2.0)
    for outlier in (500.0, math.inf, math.nan, -3.0, 0.0):
        meter.add(outlier)
        assert meter.get() == pytest.approx(2.0)
        for _ in range(3):
            meter.add(2.0)
    for _ in range(12):
        meter.add(6.0)
    assert meter.get() == pytest.approx(6.0, rel=0.1)


def test_an_average_follows_recent_values() -> None:
    average = Average(10)
    assert average.get(3.0) == 3.0
    average.add(1.0)
    assert average.get() == 1.0
    for _ in range(100):
        average.add(5.0)
    assert average.get() == pytest.approx(5.0, abs=1e-3)
    assert average.weight == pytest.approx(10, abs=1e-3)


def test_a_drafts_time_is_split_into_start_and_steps() -> None:
    costs = DraftCosts()
    costs.add(1.0, 6.0, 3, late=False)
    assert (costs.start.value, costs.step.value) == (1.0, 2.0)
    costs = DraftCosts()
    costs.add(1.0, 0.5, 0, late=True)
    assert (costs.start.value, costs.late.value, costs.step.value) == (None, 1.5, None)


def test_the_table_is_interpolated_and_extrapolated() -> None:
    near = VerifyCosts({0: 4.0, 4: 6.0, 8: 5.0, 16: 9.0}, 64)
    assert near.curve(20)[:5] == [4.0, 4.25, 4.5, 4.75, 5.0], "6.0 was noise: 8 nodes took less"
    assert near.curve(20)[6] == 5.0
    assert near.curve(20)[12] == 7.0
    assert near.curve(20)[20] == pytest.approx(9.0 + 4 * 5 / 16)
    assert near.curve(2) == [4.0, 4.25, 4.5]
    assert VerifyCosts({0: math.nan, 1: -1.0, 2: 3.0}, 64).curve(2) == [3.0, 3.0, 3.0]
    assert VerifyCosts({0: 2.0, 1: 3.0, 2: math.inf}, 64).curve(2) == [2.0, 3.0, 3.0]
    assert VerifyCosts({0: math.nan, 1: 0.0}, 64).curve(1) == [0.0, 0.0]


def test_one_slow_pass_does_not_make_larger_trees_expensive() -> None:
    measured = VerifyCosts({0: 61.6, 1: 64.6, 4: 64.0, 7: 137.0, 16: 64.2, 64: 64.8}, 64)
    assert max(measured.curve(64)) == 64.8
    assert measured.affordable_nodes() == 64


def costs(far: VerifyCosts | None = None) -> Costs:
    return Costs(None, VerifyCosts({0: 4.0, 8: 8.0}, 100, far))  # type: ignore[arg-type]


def test_costs_are_interpolated_between_two_contexts() -> None:
    two = costs(VerifyCosts({0: 6.0, 8: 14.0}, 300))
    assert [two.verify_ms(0, context) for context in (0, 100, 200, 300, 500)] == [4, 4, 5, 6, 8]
    assert two.verify_ms(8, 200) == 11.0
    assert two.verify_ms(4, 200) == 8.0
    assert costs().verify_ms(8, 500) == 8.0
    cheaper = costs(VerifyCosts({0: 3.0, 8: 14.0}, 300))
    assert cheaper.verify_ms(0, 300) == 4.0, "a longer context is cheaper only by noise"


def test_predicted_pass_times_follow_recent_passes() -> None:
    one = costs()
    for _ in range(30):
        one.observe_pass(8, 100, 24.0)
    assert one.verify_ms(0, 100) == pytest.approx(12.0, rel=0.01)
    for _ in range(30):
        one.observe_pass(0, 100, 2.0)
    assert one.verify_ms(8, 100) == pytest.approx(4.0, rel=0.01)
    one.observe_pass(0, 100, math.nan)
    one.observe_pass(0, 100, 0.0)
    assert one.verify_ms(8, 100) == pytest.approx(4.0, rel=0.01)


def test_the_wait_doubles_up_to_128_rounds_and_a_success_ends_it() -> None:
    backoffs = RunBackoffs(Backoffs())
    backoffs.record_round(1e6, ())
    backoffs.switch_off("a")
    waits = []
    for _ in range(5):
        rounds = 0
        while not backoffs.due("a", 1.0):
            backoffs.record_round(5.0, ("a",))
            rounds += 1
        waits.append(rounds)
        backoffs.record_probe("a", 1.0, success=False)
    assert waits == [16, 32, 64, 128, 128]
    backoffs.record_probe("a", 1.0, success=True)
    assert "a" not in backoffs
    backoffs.switch_off("a")
    for _ in range(16):
        backoffs.record_round(5.0, ("a",))
    assert backoffs.due("a", 1.0), "after a success the wait begins with 16 again"


def test_all_probes_share_one_hundredth_of_the_time() -> None:
    backoffs = RunBackoffs(Backoffs())
    for name in ("a", "b"):
        backoffs.switch_off(name)
    for _ in range(100):
        backoffs.record_round(10.0, ("a", "b"))
    assert backoffs.due("a", 10.0) and not backoffs.due("a", 10.1)
    backoffs.record_probe("a", 6.0, success=False)
    assert backoffs.due("b", 4.0) and not backoffs.due("b", 4.1)


def test_concurrent_runs_may_probe_the_same_drafter() -> None:
    for second in (True, False):
        shared = Backoffs()
        one, other = RunBackoffs(shared), RunBackoffs(shared)
        one.switch_off("a")
        one.record_probe("a", 1.0, success=True)
        other.record_probe("a", 2.0, success=second)
        assert "a" not in one and "a" not in other and shared.probe_ms == 3.0


def test_a_second_run_that_switches_a_drafter_off_keeps_its_wait() -> None:
    shared = Backoffs()
    one, other = after_failed_runs(shared, "a", MAX_FAILED_RUNS), RunBackoffs(shared)
    one.record_probe("a", 0.0, success=False)
    other.switch_off("a")
    assert other["a"].interval == 32


def after_failed_runs(shared: Backoffs, name: str, runs: int) -> RunBackoffs:
    for _ in range(runs):
        one = RunBackoffs(shared)
        one.switch_off(name)
    return one


def test_a_drafter_that_did_not_pay_in_several_runs_is_off_in_all() -> None:
    shared = Backoffs()
    one = after_failed_runs(shared, "a", MAX_FAILED_RUNS - 1)
    assert "a" in one and "a" not in RunBackoffs(shared), "another text may suit the drafter"
    RunBackoffs(shared).record_success("a")
    assert "a" not in RunBackoffs(shared) and "a" in after_failed_runs(
        shared, "a", MAX_FAILED_RUNS - 1
    )
    assert "a" not in RunBackoffs(shared)
    after_failed_runs(shared, "a", 1)
    assert "a" in RunBackoffs(shared)
