"""`goodput` where drafting does not cost what it takes: other work hides it, or it was made ahead;
and where a step is dear no longer."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from core.length import Choice, RoundOutcome
from core.length.goodput.overlap_credit import Cover
from core.length.goodput.probe import Look
from tests.core.length.test_goodput import drafter, linear
from tests.core.length.world import Simulated, World, best_fixed, constant, simulate

# Acceptance, milliseconds of a step; passes take 20.
DRAFTING = [(0.4, 4.0), (0.7, 5.0), (0.7, 3.0), (0.5, 8.0), (0.8, 2.0)]
LONGEST = 16


class Across(World):
    """A pass over other requests, as long as the own, hides the drafting."""

    def round(
        self, number: int, position: int, choice: Choice, timing: random.Random
    ) -> tuple[RoundOutcome, float]:
        outcome, true_ms = super().round(number, position, choice, timing)
        hidden = min(sum(draft.ms for draft in outcome.drafts.values()), outcome.verify_ms)
        told = replace(outcome, round_ms=outcome.round_ms - hidden, hidden_ms=hidden)
        return told, max(0.01, true_ms - min(hidden, true_ms))


class Ahead(World):
    """Seven guesses of ten come true, and spare the whole draft."""

    def round(
        self, number: int, position: int, choice: Choice, timing: random.Random
    ) -> tuple[RoundOutcome, float]:
        outcome, true_ms = super().round(number, position, choice, timing)
        if not outcome.drafts or random.Random(f"{position}").random() > 0.7:
            return outcome, true_ms
        spared = sum(draft.ms for draft in outcome.drafts.values())
        drafts = {
            name: replace(draft, ms=0.0, start_ms=0.0, steps=0, ahead=True)
            for name, draft in outcome.drafts.items()
        }
        told = replace(outcome, round_ms=outcome.round_ms - spared, drafts=drafts)
        return told, max(0.01, true_ms - spared)


@pytest.mark.parametrize("kind", [World, Across, Ahead])
@pytest.mark.parametrize(("acceptance", "step"), DRAFTING)
def test_it_finds_the_optimum(kind: type[World], acceptance: float, step: float) -> None:
    noise = 0.05 if kind is Across else 0.0
    world = kind((drafter("a", acceptance, step, step),), linear(20, 0.05), noise=noise)
    _, goodput = best_fixed(world, 1500, most=12)
    assert simulate(world, 1500).goodput(150) >= 0.96 * goodput


def test_it_follows_a_further_step_that_alone_becomes_cheap() -> None:
    """At one step a draft, a second is timed only where it is looked at."""

    def step(number: int) -> float:
        return 14.0 if number < 300 else 1.0

    world = World((Simulated("a", constant(0.8), constant(3.0), step),), linear(20, 0.05))
    result = simulate(world, 3000)
    after = World((drafter("a", 0.8, 3.0, 1.0),), linear(20, 0.05))
    _, goodput = best_fixed(after, 1500, most=12)
    before = result.lengths[150:300]
    assert set(before) <= {1, 2} and before.count(2) <= 6
    said = [choice.reason for choice in result.choices[150:300]]
    assert any("two steps are tried" in reason for reason in said)
    # The next sentence begins with what the page has just shown as this round's length.
    behind = [b for a, b in pairwise(said) if "two steps are tried" in a and a != b]
    assert behind and all(reason.startswith("2 was for a try; ") for reason in behind)
    assert result.goodput(600) >= 0.95 * goodput


def test_looks_grow_rare_and_frequent_again() -> None:
    look, due = Look(), []
    for number in range(600):
        look.plan(1, LONGEST)
        due += [number] if look.due else []
        look.observe(9.0 if number < 400 else 5.0, 9.0)
    gaps = [after - before for before, after in zip(due, due[1:], strict=False)]
    assert gaps[:3] == [33, 65, 129] and gaps[-1] == 17
    look.plan(2, LONGEST)
    assert not look.due
    for _ in range(20):
        look.observe(9.0, 9.0)
    look.plan(1, 1)
    assert not look.due, "there is no room for a second step"


def test_what_is_not_hidden_costs_what_it_takes() -> None:
    cover = Cover()
    for _ in range(50):
        cover.observe(7.0, 0.0, 0.0, 2.0)
        assert cover.charged(5.0, 3.0) == 5.0
    cover.observe(math.nan, 3.0, 0.0, 2.0)
    cover.observe(0.0, 0.0, 0.0, 2.0)
    assert cover.charged(5.0) == 5.0


def test_room_is_found_step_by_step_and_kept_to() -> None:
    """20 ms are hidden, whatever is drafted."""
    cover, drafted = Cover(), 4.0
    for _ in range(40):
        cover.observe(drafted, min(drafted, 20.0), 0.0, 4.0)
        if not cover.charged(4.0, drafted):
            drafted += 4.0
    assert drafted == 24.0, "one step too many is how the end is found"
    for _ in range(20):
        cover.observe(drafted, 20.0, 0.0, 4.0)
    assert cover.charged(4.0, 16.0) == pytest.approx(0.0, abs=0.1)
    assert cover.charged(4.0, 20.0) == pytest.approx(4.0, abs=0.1)
    for _ in range(40):
        cover.observe(drafted, 0.0, 0.0, 4.0)
    assert cover.charged(4.0) == pytest.approx(4.0, abs=0.01)


def test_what_guesses_spare_is_a_share() -> None:
    cover = Cover()
    for i in range(64):
        spared = 8.0 if i % 4 else 0.0
        cover.observe(8.0 - spared, 0.0, spared, 2.0)
    assert cover.charged(8.0) == pytest.approx(2.0, abs=0.6)
    assert cover.charged(4.0, 99.0) == pytest.approx(1.0, abs=0.3)
