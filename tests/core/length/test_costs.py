"""What costs and acceptance are learnt with: each part on traces with known answers."""

from __future__ import annotations

import math
import random

import pytest

from core.length.cost_model import (
    Acceptance,
    Average,
    Backoffs,
    Costs,
    DraftCosts,
    Meter,
    Odds,
    Rates,
    RunBackoffs,
    VerifyCosts,
)
from core.length.cost_model.backoff import STRIKES

# -- meters --


def test_a_meter_follows_a_lasting_change_and_no_outlier() -> None:
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


def test_an_average_forgets() -> None:
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


# -- verification --


def test_the_table_is_read_between_its_entries_and_beyond() -> None:
    near = VerifyCosts({0: 4.0, 4: 6.0, 8: 5.0, 16: 9.0}, 64)
    assert near.curve(20)[:5] == [4.0, 4.5, 5.0, 5.5, 6.0]
    assert near.curve(20)[6] == 6.0, "a larger tree is never cheaper but for noise"
    assert near.curve(20)[12] == 7.5
    assert near.curve(20)[20] == pytest.approx(9.0 + 4 * 5 / 16)
    assert near.curve(2) == [4.0, 4.5, 5.0]
    broken = VerifyCosts({0: math.nan, 1: -1.0, 2: 3.0}, 64)
    assert broken.curve(2) == [0.0, 0.0, 3.0]


def costs(far: VerifyCosts | None = None) -> Costs:
    return Costs(None, VerifyCosts({0: 4.0, 8: 8.0}, 100, far))  # type: ignore[arg-type]


def test_both_contexts_count() -> None:
    two = costs(VerifyCosts({0: 6.0, 8: 14.0}, 300))
    assert [two.verify_ms(0, context) for context in (0, 100, 200, 300, 500)] == [4, 4, 5, 6, 8]
    assert two.verify_ms(8, 200) == 11.0
    assert two.verify_ms(4, 200) == 8.0
    assert costs().verify_ms(8, 500) == 8.0
    cheaper = costs(VerifyCosts({0: 3.0, 8: 14.0}, 300))
    assert cheaper.verify_ms(0, 300) == 4.0, "a longer context is never cheaper but for noise"


def test_verification_is_corrected_and_the_correction_forgets() -> None:
    one = costs()
    for _ in range(30):
        one.verified(8, 100, 24.0)
    assert one.verify_ms(0, 100) == pytest.approx(12.0, rel=0.01)
    for _ in range(30):
        one.verified(0, 100, 2.0)
    assert one.verify_ms(8, 100) == pytest.approx(4.0, rel=0.01)
    one.verified(0, 100, math.nan)
    one.verified(0, 100, 0.0)
    assert one.verify_ms(8, 100) == pytest.approx(4.0, rel=0.01)


# -- back-off --


def test_the_wait_doubles_up_to_128_rounds_and_a_success_ends_it() -> None:
    backoffs = RunBackoffs(Backoffs())
    backoffs.passed(1e6, ())
    backoffs.switch_off("a", hopeless=True)
    waits = []
    for _ in range(5):
        rounds = 0
        while not backoffs.due("a", 1.0):
            backoffs.passed(5.0, ("a",))
            rounds += 1
        waits.append(rounds)
        backoffs.probed("a", 1.0, success=False)
    assert waits == [16, 32, 64, 128, 128]
    backoffs.probed("a", 1.0, success=True)
    assert "a" not in backoffs
    backoffs.switch_off("a", hopeless=True)
    for _ in range(16):
        backoffs.passed(5.0, ("a",))
    assert backoffs.due("a", 1.0), "after a success it begins with 16 again"


def test_all_probes_share_one_hundredth_of_the_time() -> None:
    backoffs = RunBackoffs(Backoffs())
    for name in ("a", "b"):
        backoffs.switch_off(name, hopeless=True)
    for _ in range(100):
        backoffs.passed(10.0, ("a", "b"))
    assert backoffs.due("a", 10.0) and not backoffs.due("a", 10.1)
    backoffs.probed("a", 6.0, success=False)
    assert backoffs.due("b", 4.0) and not backoffs.due("b", 4.1)


def test_live_neighbours_may_probe_the_same_drafter() -> None:
    """Two runs share the engine's back-offs: what one has ended, the other only pays for."""
    for second in (True, False):
        shared = Backoffs()
        one, other = RunBackoffs(shared), RunBackoffs(shared)
        one.switch_off("a", hopeless=True)
        one.probed("a", 1.0, success=True)
        other.probed("a", 2.0, success=second)
        assert "a" not in one and "a" not in other and shared.probe_ms == 3.0


def test_a_neighbour_that_gives_it_up_too_does_not_begin_anew() -> None:
    shared = Backoffs()
    one, other = in_vain(shared, "a", STRIKES), RunBackoffs(shared)
    one.probed("a", 0.0, success=False)
    other.switch_off("a", hopeless=True)
    assert other["a"].interval == 32


def in_vain(shared: Backoffs, name: str, runs: int) -> RunBackoffs:
    """The last of so many runs in which it did not pay."""
    for _ in range(runs):
        one = RunBackoffs(shared)
        one.switch_off(name, hopeless=True)
    return one


def test_who_was_only_superfluous_is_so_in_one_run() -> None:
    shared = Backoffs()
    one = in_vain(shared, "hopeless", STRIKES)
    one.switch_off("superfluous", hopeless=False)
    another = RunBackoffs(shared)
    assert ("superfluous" in one, "superfluous" in another) == (True, False)
    assert "hopeless" in one and "hopeless" in another


def test_who_does_not_pay_is_hopeless_after_several_runs_in_a_row() -> None:
    shared = Backoffs()
    one = in_vain(shared, "a", STRIKES - 1)
    assert "a" in one and "a" not in RunBackoffs(shared), "another text may suit it"
    RunBackoffs(shared).paid("a")
    assert "a" not in RunBackoffs(shared) and "a" in in_vain(shared, "a", STRIKES - 1)
    assert "a" not in RunBackoffs(shared)
    in_vain(shared, "a", 1)
    assert "a" in RunBackoffs(shared)


# -- acceptance --


def test_a_run_begins_with_its_record_and_adds_to_it() -> None:
    record = Acceptance.of_all_runs()
    for _ in range(200):
        Acceptance(record).rates.observe(1, 2)
    run = Acceptance(record)
    first, second, third = run.rates.upto(3)
    assert first > 0.95 and second < 0.05 and third == second, "the third was never tried"
    for _ in range(6):
        run.rates.observe(0, 2)
    assert 0.5 < run.rates.upto(1)[0] < 0.7, "ten tries of before stand against six of its own"
    alone = Rates()
    for _ in range(6):
        alone.observe(0, 2)
    assert alone.upto(1)[0] < 0.3
    assert record.rates.upto(1)[0] > 0.9, "it forgets slowly"


def test_a_record_of_few_tries_says_nothing() -> None:
    record = Acceptance.of_all_runs()
    for _ in range(10):
        record.rates.observe(0, 1)
    assert Acceptance(record).rates.upto(2) == [0.7, 0.7]


def test_odds_begin_as_the_record_has_them() -> None:
    record = Acceptance.of_all_runs()
    for _ in range(300):
        Acceptance(record).learn(1, 0.9, False)
    run = Acceptance(record)
    assert run.seen(1) == record.seen(1) != (0.0, 1.0)
    run.learn(1, 0.9, True)
    assert run.seen(1) != record.seen(1), "from here on they differ"


def test_rates_find_a_falling_curve() -> None:
    truth = (0.9, 0.7, 0.4)
    dice = random.Random(1)
    found = [0.0, 0.0, 0.0]
    rates = Rates()
    for number in range(2000):
        reached = next((d for d in range(3) if dice.random() >= truth[d]), 3)
        rates.observe(reached, 3)
        if number >= 1000:
            found = [sum(pair) for pair in zip(found, rates.upto(3), strict=True)]
    assert [total / 1000 for total in found] == pytest.approx(truth, abs=0.06)


def test_rates_begin_optimistic_and_unknown_depths_follow_the_one_above() -> None:
    assert Rates().upto(3) == [0.7, 0.7, 0.7]
    rates = Rates()
    for _ in range(100):
        rates.observe(0, 1)
    low = rates.upto(3)
    assert low[0] < 0.1 and low[1] == low[2] == low[0]
    assert Rates().upto(2, [0.3, 0.2]) == [0.3, 0.2]


def test_rates_follow_a_text_that_changes() -> None:
    rates = Rates()
    for _ in range(200):
        rates.observe(2, 2)
    for _ in range(60):
        rates.observe(0, 2)
    assert rates.upto(1)[0] < 0.35
    stale = rates.upto(2)[1]
    for _ in range(600):
        rates.observe(0, 1)
    assert rates.upto(2)[1] < stale / 2, "what was never tried again is forgotten too"
    rates.restart(2)
    assert rates.upto(2)[1] > 0.7


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (-1.0, 1.0), (0.5, 0.5), (0.0, 2.0)])
def test_odds_learn_what_scores_are_worth(a: float, b: float) -> None:
    dice = random.Random(2)
    odds = Odds()
    errors = []
    for number in range(6000):
        chance = dice.uniform(0.05, 0.95)
        truth = 1 / (1 + math.exp(-a - b * math.log(chance / (1 - chance))))
        if number > 3000:
            errors.append(abs(odds(chance) - truth))
        odds.observe(chance, dice.random() < truth)
    assert sum(errors) / len(errors) < 0.05


def test_odds_follow_a_text_that_changes() -> None:
    odds = Odds()
    for accepted, expected in ((True, 0.95), (False, 0.05), (True, 0.95)):
        for _ in range(500):
            odds.observe(0.5, accepted)
        assert odds(0.5) == pytest.approx(expected, abs=0.1)


def test_odds_take_any_chance() -> None:
    odds = Odds()
    for chance in (0.0, 1.0, math.nan, -1.0, 2.0):
        for accepted in (True, False):
            odds.observe(chance, accepted)
        assert 0 < odds(chance) < 1


def test_a_new_depth_begins_as_the_one_above_it_stands() -> None:
    acceptance = Acceptance()
    for _ in range(300):
        acceptance.odds(1).observe(0.8, False)
    assert acceptance.odds(4)(0.8) == acceptance.odds(1)(0.8) < 0.2
