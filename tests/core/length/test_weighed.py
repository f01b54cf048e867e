"""What `goodput` puts into its scales, each alone: nodes, books, context, what others bring, what a
probe costs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from core.config import SpeculationConfig
from core.length import DraftOutcome, Goodput, RoundOutcome
from core.length.cost_model import Acceptance, Costs, VerifyCosts
from core.length.goodput.drafter_group import Team
from core.length.goodput.forecast import Outlook
from core.length.goodput.selection import Crew
from core.length.goodput.stop_rule import StepRule
from tests.core.length.test_goodput import linear
from tests.core.length.world import Simulated, World, constant, simulate

NODES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64)


def costs_of(slope: float = 1.0, context: float = 0.0) -> Costs:
    """A pass takes 5 ms, `slope` a node and `context` a hundred tokens behind the first 64."""
    near = VerifyCosts({n: 5 + slope * n for n in NODES}, 64)
    far = VerifyCosts({n: 5 + slope * n + 4.48 * context for n in NODES}, 512)
    return Costs(cast(Any, None), VerifyCosts(near.ms, 64, far))


def outlook_of(costs: Costs, **fields: Any) -> Outlook:
    given = {"drafters": ("a", "b"), "expansion": (1,), "max_tree_nodes": "uncut"}
    return Outlook(SpeculationConfig(**{**given, **fields}), costs)


def outcome(**drafts: DraftOutcome) -> RoundOutcome:
    deepest = max(draft.accepted_depth for draft in drafts.values())
    return RoundOutcome(2, deepest + 1, 2, 5.0, 20.0, drafts, widths=(1, 1))


def drafted(reached: int, prefill_ms: float = 0.0) -> DraftOutcome:
    path = tuple(range(reached))
    return DraftOutcome(2.0, 1, (1, 2), (0.9, 0.8), path, reached, 1.0, prefill_ms, num_verified=2)


def test_nodes_that_cost_more_than_they_bring_are_not_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def chance(position: int) -> float:
        return (0.95, 0.9, 0.6, 0.3)[position * 7919 % 4]

    world = World((Simulated("a", chance, constant(0.2), constant(0.2)),), linear(5, 1.0))
    weighed = simulate(world, 1500).goodput(50)
    monkeypatch.setattr(StepRule, "keeps", lambda *_: True)
    assert weighed > 1.04 * simulate(world, 1500).goodput(50)


def test_keeping_the_books_of_a_draft_is_added() -> None:
    costs = costs_of()
    costs.overhead[False].add(0.5)
    outlook = outlook_of(costs)
    assert outlook.added_ms(3) == pytest.approx(3.0)
    costs.overhead[True].add(2.0)
    assert outlook.added_ms(3) == pytest.approx(3.0 + 1.5)


def test_a_longer_context_is_dearer() -> None:
    outlook = outlook_of(costs_of(context=1.0))
    outlook.refresh(64)
    assert outlook.verify_ms(4) == pytest.approx(9.0)
    outlook.refresh(264)
    assert outlook.verify_ms(4) == pytest.approx(11.0)


def crew_of(costs: Costs) -> tuple[Crew, Team, Team]:
    teams = [Team((name,), costs, Acceptance()) for name in ("a", "b")]
    return Crew(teams, outlook_of(costs)), teams[0], teams[1]


def test_a_follower_is_credited_with_what_it_brings_beyond_the_first() -> None:
    crew, first, second = crew_of(costs_of())
    for _ in range(40):
        crew.observe(outcome(a=drafted(2), b=drafted(2)))
    assert crew.share(first) == 1.0
    assert crew.share(second) < 0.1
    for _ in range(60):
        crew.observe(outcome(a=drafted(0), b=drafted(2)))
    assert crew.share(second) > 0.9


def test_a_probe_costs_its_prompt_too_and_what_succeeds_is_judged_anew() -> None:
    costs = costs_of()
    crew, _, second = crew_of(costs)
    for _ in range(9):
        crew.observe(outcome(a=drafted(1), b=drafted(0)))
    believed = second.rates.upto(1)[0]
    crew.on = [team for team in crew.on if team is not second]
    crew.backoffs.switch_off("b", hopeless=False)
    crew.probed = second
    crew.observe(outcome(a=drafted(1), b=drafted(2, prefill_ms=30.0)))
    assert costs.backoffs.probe_ms == pytest.approx(2.0 + 30.0 + 2.0)
    assert second in crew.on and second.rounds == 0
    assert second.rates.upto(1)[0] > max(0.5, believed)


def test_what_varies_is_hoped_for() -> None:
    costs = costs_of()
    (steady, varied) = (Team((name,), costs, Acceptance()) for name in ("a", "b"))
    for i in range(16):
        steady.observe(steady.drafted(outcome(a=drafted(1))) or pytest.fail("it drafted"))
        varied.observe(varied.drafted(outcome(b=drafted(2 * (i % 2)))) or pytest.fail("it drafted"))
    assert steady.hoped == pytest.approx(1.0)
    assert varied.hoped > varied.tokens.get() + 0.1


def test_a_follower_whose_worth_varies_is_not_dropped_by_chance() -> None:
    crew, first, second = crew_of(costs_of())
    for i in range(40):
        crew.observe(outcome(a=drafted(0), b=drafted(2 * (i % 2))))
    assert crew.extra(second, [first]) > 1.0 + 0.1


def test_a_followers_steps_are_weighed_by_its_share() -> None:
    config = SpeculationConfig(
        drafters=("a", "b"), expansion=(1,), max_tree_nodes="uncut", length="goodput"
    )
    policy = Goodput(config, costs_of(slope=0.01))
    shares = []
    for _ in range(8):
        stop = policy.choose().stop
        assert isinstance(stop, StepRule)
        shares.append({name: terms.share for name, terms in stop._terms.items()})
        policy.observe(outcome(a=drafted(2), b=drafted(2)))
    assert shares[0] == {"a": 1.0, "b": 1.0}
    assert any(share.get("b", 1.0) < 0.9 for share in shares)
