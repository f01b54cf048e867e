"""StepRule, the bound and the reasons: single decisions by hand."""

from __future__ import annotations

import pytest

from core.length.cost_model import Acceptance
from core.length.goodput import reasons
from core.length.goodput.hysteresis import Bound, Step
from core.length.goodput.stop_rule import StepRule, Terms
from core.length.goodput.token_price import Price

FRESH = Acceptance()
STEPS = (Step(2.0, 0.8), Step(1.0, 0.6), Step(1.0, 0.5))


def rule(price: float, share: float = 1.0, longest: int = 3, node_ms: float = 0.5) -> StepRule:
    return StepRule({"a": Terms(FRESH, STEPS, share, longest)}, price, node_ms)


def test_a_step_is_run_if_its_tokens_are_worth_its_time() -> None:
    # 0.5 reached x 0.6 accepted = 0.3 tokens for 1 ms
    assert rule(price=0.29).steps("a", 2, [0.5])
    assert not rule(price=0.31).steps("a", 2, [0.5])
    # Two nodes in the frontier are reached as often as both together.
    assert rule(price=0.31).steps("a", 2, [0.5, 0.2])
    assert rule(price=0.59).steps("a", 2, [0.9, 0.9]), "more than surely it is not reached"
    assert not rule(price=0.61).steps("a", 2, [0.9, 0.9])


def test_only_what_is_beyond_the_others_counts() -> None:
    assert rule(price=0.29).steps("a", 2, [0.5])
    assert not rule(price=0.29, share=0.5).steps("a", 2, [0.5])
    assert rule(price=0.1).keeps("a", 2, 0.08)
    assert not rule(price=0.1, share=0.5).keeps("a", 2, 0.08)


def test_the_first_step_is_decided_beforehand() -> None:
    assert rule(price=100.0).steps("a", 1, [1.0])
    assert not rule(price=0.1).steps("b", 1, [1.0]), "not chosen"
    assert not rule(price=0.0, longest=2).steps("a", 3, [1.0])
    assert not rule(price=0.0, longest=9).steps("a", 4, [1.0]), "beyond what is possible"


def test_a_probe_is_carried_through() -> None:
    forced = StepRule({"a": Terms(FRESH, STEPS, 1.0, 2, forced=True)}, 100.0, 0.5)
    assert forced.steps("a", 2, [0.001])
    assert not forced.steps("a", 3, [1.0])


def test_a_node_is_kept_if_its_chance_is_worth_its_time() -> None:
    assert rule(price=0.2, node_ms=0.5).keeps("a", 1, 0.11)
    assert not rule(price=0.2, node_ms=0.5).keeps("a", 1, 0.09)
    assert rule(price=0.2).keeps("stranger", 1, 0.0)
    assert rule(price=0.2).grows(0.0)


# -- the bound --


def test_the_bound_moves_only_by_clear_evidence() -> None:
    def steps(third: float) -> list[Step]:
        return [Step(1.0, 1.0), Step(1.0, 1.0), Step(1.0, third), Step(1.0, 0.0)]

    for third, after in ((1.2, 3), (1.1, 2), (0.9, 2), (0.8, 2)):
        bound = Bound(2)
        for _ in range(3):
            bound.follow(steps(third), 1.0)
        assert bound.length == after, third
    for third, after in ((0.8, 2), (0.9, 3), (1.1, 3)):
        bound = Bound(3)
        for _ in range(3):
            bound.follow(steps(third), 1.0)
        assert bound.length == after, third


def test_the_bound_rests_between_moves() -> None:
    rich, poor = [Step(1.0, 2.0)] * 6, [Step(1.0, 0.1)] * 6
    bound = Bound(2)
    lengths = []
    for steps in (rich, rich, poor, poor, rich, rich):
        bound.follow(steps, 1.0)
        lengths.append(bound.length)
    assert lengths == [2, 6, 6, 1, 1, 6]


def test_the_bound_gives_way_to_a_budget() -> None:
    bound = Bound(8)
    bound.follow([Step(1.0, 2.0)] * 3, 1.0)
    assert bound.length == 3


# -- the price --


def test_the_price_is_never_below_plain_decoding() -> None:
    price = Price()
    assert not price.known and price.get(5.0) == 0.2
    for _ in range(200):
        price.observe(1, 10.0, 10.0, 5.0)
    assert price.known and price.get(5.0) == 0.2
    for _ in range(400):
        price.observe(4, 10.0, 10.0, 5.0)
    assert price.get(5.0) == pytest.approx(0.4, rel=1e-3)
    assert price.get(10.0) == pytest.approx(0.2, rel=1e-3), "all is half as fast"


def test_an_outlier_counts_as_four_rounds() -> None:
    price = Price()
    price.observe(4, 10_000.0, 10.0, 5.0)
    assert price.get(5.0) == 0.2
    for _ in range(31):
        price.observe(4, 10.0, 10.0, 5.0)
    assert price.get(5.0) > 0.36
    price.observe(4, 0.0, 10.0, 5.0)
    assert price.get(5.0) > 0.36


# -- the reasons --


def test_sentences() -> None:
    step = Step(1.9, 0.41)
    assert reasons.moved(4, 5, step, 0.18) == (
        "4 -> 5: where the drafter is surest, a fifth step costs 1.9 ms and brings 0.41 tokens, "
        "worth 2.3 ms at 180 tokens a second"
    )
    assert ": where the drafter is surest, an eighth step costs 1.9 ms" in reasons.moved(
        9, 7, step, 0.18
    )
    assert reasons.rests(4, step, 0.18).startswith(
        "4 stays: where the drafter is surest, a fifth step would cost 1.9 ms and bring 0.41"
    )
    assert reasons.rests(4, Step(1.9, 0.0), 0.18) == (
        "4 stays: of late no draft was sure enough of its first 4 tokens for a fifth to be worth a "
        "try"
    )
    assert reasons.rests(4, None, 0.18) == "4 stays: no longer draft is possible"
    assert reasons.rests(4, None, 0.18, limit="because").endswith("is possible (because)")
    assert ": so far no draft was sure enough" in reasons.rests(
        4, Step(1.9, 0.0), 0.18, lately=False
    )
    waited = "a is tried again: 34 rounds passed without it"
    assert reasons.tried_again("a", 34, 40) == waited
    assert reasons.tried_again("a", 34, 12) == f"{waited}, rounds of other runs among them"
    assert reasons.plain(3, 0.18).startswith("3 -> 0: no draft beats plain decoding at 180 tokens")
    assert reasons.plain(0, 0.18).startswith("0 stays: ")
    numbers = [reasons.ordinal(n) for n in (1, 11, 16, 17, 21, 22, 33, 41, 111)]
    assert numbers == [
        "first",
        "eleventh",
        "sixteenth",
        "17th",
        "21st",
        "22nd",
        "33rd",
        "41st",
        "111th",
    ]


def test_several_drafters_are_spoken_of_as_several() -> None:
    one, pool = "ssm-code", "ssm-code + ssm-dialogue"
    assert reasons.stops(one, 0.2, 3.0, 1.0, hopeless=True) == (
        "ssm-code stops drafting: its drafts bring 0.20 tokens for 3.0 ms and 1.0 ms of verifying"
    )
    assert reasons.stops(pool, 0.2, 3.0, 1.0, hopeless=True) == (
        "ssm-code + ssm-dialogue stop drafting: their drafts bring 0.20 tokens for 3.0 ms and "
        "1.0 ms of verifying"
    )
    told = reasons.stops(pool, 0.2, 3.0, 1.0, hopeless=False)
    assert "stop drafting: beyond the others they bring 0.20" in told
    assert reasons.tried_again(pool, 16, 16).startswith(f"{pool} are tried again: ")
    assert reasons.tried_again(one, 16, 16).startswith("ssm-code is tried again: ")


def test_a_step_that_nearly_pays_is_said_to_bring_no_clear_gain() -> None:
    """Both numbers may look the same."""
    price = 0.1
    near = reasons.rests(4, Step(2.0, 0.2), price)
    assert near.endswith("worth 2.0 ms at 100 tokens a second, not clearly more")
    assert "clearly" not in reasons.rests(4, Step(2.0, 0.1), price)
