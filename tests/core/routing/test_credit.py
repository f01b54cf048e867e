"""Credit routing on synthetic log-probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import pytest

from core.routing import RoundEvidence, RoundTime
from core.routing.base import AUDITION_WINDOW
from core.routing.credit import (
    CHANGED_WINDOW,
    SHARE,
    STEADY_ROUNDS,
    CreditRouter,
    credit_of,
    has_dropped,
    noise_of,
)

NAMES = ("a", "b", "c", "d", "e")
WINDOW = 48


class Text:
    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.log_probs: dict[str, list[float]] = {name: [] for name in NAMES}

    def write(
        self, count: int, good: Sequence[str], means: Mapping[str, float] | None = None
    ) -> None:
        for _ in range(count):
            for name in NAMES:
                mean = (means or {}).get(name, 0.7 if name in good else 0.2)
                p = min(0.99, max(1e-4, self.rng.gauss(mean, 0.2)))
                self.log_probs[name].append(math.log(p))


def follow(
    text: Text, router: CreditRouter, until: int, start: int, audition_ms: float = 0.05
) -> list[int]:
    """Returns the positions at which the route changed."""
    switches, at = [], start
    before = {*router.route().drafters}
    while at < until:
        if router.needs_audition:
            results = {
                name: logs[max(0, at - WINDOW) : at] for name, logs in text.log_probs.items()
            }
            router.observe_audition(results, audition_ms)
        if {*router.route().drafters} != before:
            before = {*router.route().drafters}
            switches.append(at)
        reports = {name: text.log_probs[name][at : at + 4] for name in router.route().drafters}
        router.observe(RoundEvidence(3, 4, 4.0, log_probs=reports))
        at += 4
    return switches


def router(count: int = 2, ms: Mapping[str, float] | None = None) -> CreditRouter:
    return CreditRouter(NAMES, count, lambda name: RoundTime(0.0, (ms or {}).get(name, 4.0)))


@pytest.mark.parametrize("seed", range(5))
def test_the_prompt_decides_which_ssm_begins(seed: int) -> None:
    text, one = Text(seed), router()
    text.write(40, ["b", "d"])
    follow(text, one, 44, 40)
    assert set(one.route().drafters) == {"b", "d"}


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_domain_is_followed_within_24_tokens(seed: int) -> None:
    text, one = Text(seed), router()
    text.write(200, ["a", "b"])
    text.write(120, ["d", "e"])
    follow(text, one, 200, 40)
    assert set(one.route().drafters) == {"a", "b"}
    follow(text, one, 224, 200)
    assert {"d", "e"} & set(one.route().drafters)
    follow(text, one, 320, 224)
    assert set(one.route().drafters) == {"d", "e"}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2])
def test_equally_good_ssms_rarely_alternate(count: int, seed: int) -> None:
    text, one = Text(seed), router(count)
    text.write(1200, NAMES)
    switches = follow(text, one, 1200, 40)
    rounds = [at // 4 for at in switches]
    assert all(b - a >= STEADY_ROUNDS for a, b in zip(rounds, rounds[1:], strict=False))
    assert len(switches) <= 1 + 290 // 48, "in 290 rounds, and once after the prompt"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1, 2])
def test_rare_surprises_do_not_bring_switches_closer_together(count: int, seed: int) -> None:
    """A single surprising token looks like a change of domain."""
    text, one = Text(seed), router(count)
    for _ in range(2400):
        surprise = text.rng.expovariate(0.5) if text.rng.random() < 0.1 else 0.01
        for name in NAMES:
            text.log_probs[name].append(-surprise * math.exp(text.rng.gauss(0, 0.35)))
    rounds = [at // 4 for at in follow(text, one, 2400, 40)][1:]
    assert len(rounds) > 3
    assert all(b - a >= STEADY_ROUNDS for a, b in zip(rounds, rounds[1:], strict=False))


def test_soon_after_a_switch_a_clear_change_is_followed() -> None:
    text, one = Text(0), router(1)
    for good in "abc":
        text.write(48, [good])
        follow(text, one, len(text.log_probs["a"]), len(text.log_probs["a"]) - 48 or 40)
        assert one.route().drafters == (good,)


def test_scores_on_an_earlier_text_are_no_baseline_when_their_ssm_returns() -> None:
    """The audition that brings `a` back has already scored `a` on the new text."""
    one = CreditRouter(("a", "b"), 1, lambda name: RoundTime(2.0, 2.0))

    def audition_due(drafter: str, log_prob: float, count: int) -> list[bool]:
        assert one.route().drafters == (drafter,)
        due = []
        for _ in range(count):
            one.observe(RoundEvidence(3, 4, 4.0, log_probs={drafter: [log_prob] * 4}))
            due.append(one.needs_audition)
        return due

    # Auditions are expensive: after the prompt's audition, only a fall of scores causes another.
    one.observe_audition({"a": [-0.1] * WINDOW, "b": [-2.0] * WINDOW}, 1000.0)
    assert not any(audition_due("a", -0.1, 6)) and audition_due("a", -0.4, 2)[-1]
    one.observe_audition({"a": [-0.4] * CHANGED_WINDOW, "b": [-0.2] * CHANGED_WINDOW}, 1000.0)
    assert not any(audition_due("b", -0.2, 6)) and audition_due("b", -1.5, 2)[-1]
    one.observe_audition({"a": [-1.0] * CHANGED_WINDOW, "b": [-1.5] * CHANGED_WINDOW}, 1000.0)
    assert not any(audition_due("a", -1.0, 6))
    assert audition_due("a", -2.0, 2)[-1]


def test_without_a_change_of_domain_one_ssm_is_replaced_in_16_rounds() -> None:

    def likelihoods(good: str) -> dict[str, list[float]]:
        return {name: [math.log(0.8 if name in good else 0.3)] * WINDOW for name in NAMES}

    one, changes = router(), []
    one.observe_audition(likelihoods("ab"), 1.0)
    for number in range(1, 41):
        before = one.route().drafters
        one.observe(RoundEvidence(3, 4, 4.0))
        one.observe_audition(likelihoods("cd"), 1.0)
        if one.route().drafters != before:
            changes.append(number)
    assert changes == [16, 32] and one.route().drafters == ("c", "d")


@pytest.mark.parametrize("seed", range(5))
def test_ssms_that_predict_nothing_are_left_out(seed: int) -> None:
    """Credit comes from the LLM's tokens, not from an SSM's own scores."""
    text, one = Text(seed), router()
    text.write(400, ["c"], means={"a": 0.0, "b": 0.01})
    follow(text, one, 400, 40)
    assert "c" in one.route().drafters
    assert not {"a", "b"} & set(one.route().drafters)


def test_auditions_take_at_most_their_share_of_the_time() -> None:
    text, one = Text(1), router()
    text.write(2000, ["a", "b"])
    follow(text, one, 2000, 40, audition_ms=1.5)
    decode_ms = 4.0 * (2000 - 40) / 4
    assert 0 < one._audition_ms <= SHARE * decode_ms + 1.5


def test_a_slower_drafter_must_predict_better() -> None:
    text = Text(2)
    text.write(60, ["a", "b"])
    quick, slow = router(count=1), router(count=1, ms={"a": 40.0, "b": 4.0})
    for one in (quick, slow):
        follow(text, one, 44, 40)
    assert slow.route().drafters == ("b",)
    noisy = router(count=1, ms={"a": 4.0, "b": 4.4, "c": 3.6})
    follow(text, noisy, 44, 40)
    assert noisy.route().drafters == quick.route().drafters, "noise of timings does not decide"


def test_a_drafter_that_failed_is_replaced_by_the_best_of_the_rest() -> None:
    text, one = Text(3), router()
    text.write(60, ["b", "d"])
    follow(text, one, 44, 40)
    one.drop("b")
    assert "d" in one.route().drafters and len(one.route().drafters) == 2
    assert "b" not in one.drafter_scores()


def test_the_reason_names_a_higher_scoring_ssm_that_is_not_routed() -> None:
    one = CreditRouter(("a", "b"), 1, lambda name: RoundTime(2.0, 2.0))
    one.observe_audition({"a": [-0.5] * WINDOW, "b": [-1.0] * WINDOW}, 0.01)
    assert one.route().reason == "a predicted the prompt's end best"
    by_noise = {"a": [-0.5, -1.5] * (WINDOW // 2), "b": [-1.4, -0.4] * (WINDOW // 2)}
    one.observe_audition(by_noise, 0.01)
    assert one.route().reason == "b scores higher than a, but switches are 16 rounds apart"
    for _ in range(STEADY_ROUNDS):
        one.observe(RoundEvidence(3, 4, 1.0))
    one.observe_audition(by_noise, 0.01)
    assert one.route().reason == "b scores higher than a, but by no more than their noise"
    one.observe_audition({"a": [-0.5] * WINDOW, "b": [-1.0] * WINDOW}, 0.01)
    assert one.route().reason == "no other SSM scores higher" and one.route().drafters == ("a",)


def test_fewer_drafters_than_places_are_never_auditioned() -> None:
    one = CreditRouter(("a", "b"), 2, lambda name: RoundTime(2.0, 2.0))
    assert not one.needs_audition and one.route().drafters == ("a", "b")


def test_credit_is_a_discounted_mean_and_noise_its_error() -> None:
    assert credit_of([-1.0] * 9) == pytest.approx(-1.0)
    assert credit_of([-3.0, -1.0]) > credit_of([-1.0, -3.0])
    assert credit_of([-math.inf]) == pytest.approx(math.log(1e-3), abs=0.01)
    assert noise_of([-1.0, -2.0], [-2.0, -3.0]) == pytest.approx(0.0)
    assert noise_of([], []) == math.inf


def test_a_drop_is_distinguished_from_noise() -> None:
    rng = random.Random(0)
    usual = [math.log(max(0.01, rng.gauss(0.7, 0.15))) for _ in range(48)]
    assert not has_dropped(usual)
    assert has_dropped([*usual, *[math.log(0.1)] * 8])
    assert not has_dropped([math.log(0.1)] * 10), "there are no earlier scores"


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_busy_machine_does_not_change_the_choice(seed: int) -> None:
    rng, load = random.Random(seed), 1.0
    likelihoods = {name: [math.log(0.6)] * WINDOW for name in NAMES}

    def time_of_round(name: str) -> RoundTime:
        noise = math.exp(rng.gauss(0.0, 0.08))
        return RoundTime(load * 5.0, load * noise * (2.5 if name == "a" else 1.0))

    one, choices = CreditRouter(NAMES, 2, lambda name: time_of_round(name)), []
    for number in range(400):
        load = 3.0 if number // 25 % 2 else 1.0
        if one.needs_audition:
            one.observe_audition(likelihoods, 0.05)
        one.observe(RoundEvidence(3, 4, 4.0))
        choices.append(one.route().drafters)
    assert choices == [("b", "c")] * len(choices)


@pytest.mark.parametrize("factor", [1.3, 1.4, 1.5])
def test_times_near_a_bound_cause_few_switches(factor: float) -> None:
    likelihoods = {"a": [math.log(0.8)] * WINDOW, "b": [math.log(0.62)] * WINDOW}
    rng = random.Random(1)

    def time_of_round(name: str) -> RoundTime:
        noise = rng.uniform(0.9, 1.1)
        return RoundTime(0.0, 10.0 * noise * (factor if name == "a" else 1.0))

    one, switches = CreditRouter(("a", "b"), 1, time_of_round), 0
    one.observe_audition(likelihoods, 0.05)
    for _ in range(400):
        before = one.route().drafters
        one.observe(RoundEvidence(3, 4, 4.0))
        if one.needs_audition:
            one.observe_audition(likelihoods, 0.05)
        switches += one.route().drafters != before
    assert switches <= 2


def test_where_all_draft_the_reason_names_no_audition() -> None:
    for count, reason in (
        (1, "before the first audition: the first in order"),
        (2, "all SSMs draft: up to 2 may in a round"),
        (4, "all SSMs draft: up to 4 may in a round"),
    ):
        one = CreditRouter(("a", "b"), count, lambda _: RoundTime(4.0, 2.0))
        assert (one.route().drafters, one.route().reason) == (("a", "b")[:count], reason)
        assert one.needs_audition == (count < 2)


def test_times_that_are_known_later_change_the_choice_without_an_audition() -> None:
    known = False
    ms = {"a": 8.0, "b": 2.0, "c": 8.0}
    one = CreditRouter(tuple(ms), 1, lambda name: RoundTime(4.0, ms[name] if known else 0.0))
    one.observe_audition({name: [-0.5] * WINDOW for name in ms}, 1.0)
    assert one.route().drafters == ("a",), "of equal SSMs, the first in order"
    known, routes = True, []
    for _ in range(60):
        one.observe(RoundEvidence(3, 4, 1.0))
        assert not one.needs_audition
        routes.append(one.route().drafters)
    assert routes == [("a",)] * (STEADY_ROUNDS - 1) + [("b",)] * (61 - STEADY_ROUNDS)
    assert one.route().reason == "b for a: it drafts faster"


@pytest.mark.parametrize("domains", [("ab",), ("ab", "de") * 12], ids=["one", "alternating"])
def test_regular_auditions_take_a_share_of_the_time_and_a_drop_causes_one_at_once(
    domains: tuple[str, ...],
) -> None:
    text, one = Text(4), router()
    for good in domains:
        text.write(1200 // len(domains), good)
    spent, decoded, max_debt, windows = 0.0, 0.0, 0.0, []
    for at in range(WINDOW, 1200, 4):
        if one.needs_audition:
            window = one.audition_window
            logs = {n: values[at - window + 1 : at] for n, values in text.log_probs.items()}
            ms = 0.05 * window  # for the prompt's audition, 60 % of a round of 4 ms
            one.observe_audition(logs, ms)
            spent += ms
            windows.append(window)
            max_debt = max(max_debt, spent - SHARE * decoded)
        reports = {name: text.log_probs[name][at : at + 4] for name in one.route().drafters}
        one.observe(RoundEvidence(3, 4, 4.0, log_probs=reports))
        decoded += 4.0
    assert (CHANGED_WINDOW in windows) == (len(domains) > 1)
    if len(domains) == 1:
        # The debt was largest at the prompt's audition: nothing had been decoded yet.
        assert max_debt == pytest.approx(0.05 * AUDITION_WINDOW)
        assert 0.5 * SHARE * decoded < spent <= SHARE * decoded
    else:
        assert 6 <= windows.count(CHANGED_WINDOW) <= len(domains)
