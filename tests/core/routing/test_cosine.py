"""CoSine's routing rule."""

from __future__ import annotations

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.routing import DraftEvidence, RoundEvidence, RoundTime
from core.routing.cosine import RATE, START, CosineRouter, harmonic_score
from tests.core.engines import VOCAB, rounds_of
from tests.fakes import TableModel, loaded_tables, random_table

NAMES = ("a", "b", "c", "d", "e")


def router(count: int = 2, names: tuple[str, ...] = NAMES) -> CosineRouter:
    return CosineRouter(names, count, lambda name: RoundTime(1.0, 0.0))


def evidence(
    accepted: int, routed: tuple[str, ...] | None = None, **drafts: tuple[float, float]
) -> RoundEvidence:
    """`drafts`: confidence and similarity of one drafted token, by SSM."""
    evidence_by_name = {n: DraftEvidence((c,), (s,)) for n, (c, s) in drafts.items()}
    return RoundEvidence(accepted, accepted + 1, 1.0, routed or tuple(drafts), evidence_by_name)


@pytest.mark.parametrize(
    ("scores", "similarities", "expected"),
    [
        ((0.5,), (0.5,), 0.5),
        ((1.0, 0.5), (1.0, 0.0), 2 * 0.75 * 0.5 / 1.25),
        ((0.9,), (-0.4,), 0.0),
        ((0.0,), (0.0,), 0.0),
        ((), (), None),
        ((0.4, 0.6), (), None),
    ],
)
def test_the_score_is_the_harmonic_mean(scores, similarities, expected) -> None:  # type: ignore[no-untyped-def]
    result = harmonic_score(DraftEvidence(scores, similarities))
    assert result == expected if expected is None else result == pytest.approx(expected)


def test_a_score_moves_towards_what_a_round_showed() -> None:
    one = router()
    one.observe(evidence(3, a=(0.8, 0.8), b=(0.0, 0.0)))
    assert one.drafter_scores()["a"] == pytest.approx(START + RATE * (0.8 - START))
    assert one.drafter_scores()["b"] == pytest.approx(START * (1 - RATE))
    assert one.drafter_scores()["c"] == START, "c did not draft"


def test_while_little_is_accepted_half_of_the_places_go_to_those_tried_least() -> None:
    one = router()
    drafted = []
    for _ in range(5):
        route = one.route()
        drafted.append(set(route.drafters))
        assert len(route.drafters) == 2 and len(route.explored) == 1
        one.observe(evidence(0, **dict.fromkeys(route.drafters, (0.5, 0.5))))
    assert set.union(*drafted) == {*NAMES}, "all SSMs were tried"


@pytest.mark.parametrize(("accepted", "explored"), [(1, {"b"}), (2, set())])
def test_two_accepted_tokens_are_enough_to_explore_nothing(
    accepted: int, explored: set[str]
) -> None:
    one = router(count=1, names=("a", "b"))
    one.observe(evidence(accepted, a=(0.9, 0.9)))
    assert one.route().explored == explored
    assert one.route().drafters == (("b",) if explored else ("a",))


def test_an_ssm_that_has_not_drafted_replaces_one_that_scores_under_a_half() -> None:
    for score, drafter in ((0.6, "tried"), (0.4, "untried")):
        one = router(count=1, names=("tried", "untried"))
        one.observe(evidence(3, tried=(score, score)))
        assert one.route().drafters == (drafter,) and not one.route().explored
        assert one.drafter_scores()["untried"] == 0.5


def test_while_enough_is_accepted_the_best_ssms_draft() -> None:
    one = router()
    for _ in range(8):
        scores = {"a": 0.1, "b": 0.9, "c": 0.2, "d": 0.8, "e": 0.3}
        one.observe(evidence(4, **{name: (s, s) for name, s in scores.items()}))
    assert one.route().drafters == ("b", "d") and not one.route().explored


def test_a_confident_ssm_with_wrong_drafts_is_not_routed() -> None:
    """The harmonic mean is 0 if the mean similarity to the LLM's tokens is not positive."""
    one = router(count=1, names=("wrong", "unsure"))
    for _ in range(6):
        one.observe(evidence(4, wrong=(1.0, -0.1), unsure=(0.3, 0.6)))
    assert one.route().drafters == ("unsure",)


def routes_where_one_is_right(one: CosineRouter, right: str, rounds: int) -> list[tuple[str, ...]]:
    routes = []
    for _ in range(rounds):
        names = one.route().drafters
        routes.append(names)
        drafts = {name: (0.9, 0.9 if name == right else 0.1) for name in names}
        one.observe(evidence(5 if right in names else 0, **drafts))
    return routes


def test_a_change_of_domain_is_followed() -> None:
    one = router()
    before = routes_where_one_is_right(one, "b", 12)
    assert all("b" in names for names in before)
    after = routes_where_one_is_right(one, "e", 12)
    first = next(i for i, names in enumerate(after) if "e" in names)
    assert 0 < first <= len(NAMES)
    assert all("e" in names for names in after[first:])


def test_equal_ssms_do_not_alternate() -> None:
    for score in (0.5, 0.8):
        one, routes = router(), []
        for _ in range(30):
            routes.append(one.route().drafters)
            one.observe(evidence(4, **dict.fromkeys(routes[-1], (score, score))))
        assert {*routes} == {("a", "b")}


def test_a_drafter_that_failed_is_not_routed() -> None:
    one = router()
    one.drop("a")
    assert "a" not in one.route().drafters and "a" not in one.drafter_scores()
    for name in NAMES[1:]:
        one.drop(name)
    assert one.route().drafters == ()


def test_the_route_stays_until_the_next_round() -> None:
    one = router()
    assert one.route() is one.route()


def test_an_ssm_without_a_share_of_the_budget_is_not_explored_for_ever() -> None:
    one = router()
    explored = set()
    for _ in range(5):
        route = one.route()
        explored |= route.explored
        one.observe(evidence(0, route.drafters, **{route.drafters[0]: (0.5, 0.5)}))
    assert explored == {*NAMES}


def test_a_round_without_drafts_does_not_change_the_route() -> None:
    one = router()
    for _ in range(20):
        one.observe(evidence(0))
    assert one.route().reason == "nothing drafted yet: the first in order"
    assert one.route().drafters == ("a", "b"), "no SSM counts as tried"
    one.observe(evidence(5, a=(0.9, 0.9), b=(0.9, 0.9)))
    best = one.route()
    one.observe(evidence(0))
    assert one.route() == best and not best.explored, "nothing was drafted that could be accepted"


def test_routed_ssms_that_could_not_draft_count_as_tried() -> None:
    one = router(count=1, names=("full", "other"))
    one.observe(evidence(3, full=(0.9, 0.9)))
    assert one.route().drafters == ("full",)
    one.observe(evidence(0, ("full",)))
    assert one.route().drafters == ("other",) and one.drafter_scores()["full"] > START


def test_an_ssm_whose_context_is_full_does_not_keep_the_others_from_drafting() -> None:
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1, sharpness=2.5), 64)
    ssms = [TableModel("short", VOCAB, llm._table, 20), TableModel("long", VOCAB, llm._table, 64)]
    engine = Engine(loaded_tables(llm, ssms))
    config = SpeculationConfig(routing="cosine", routed_drafters=1, speculation_length=3)
    request = Request("w0 w1", SamplingParams(56, seed=1, ignore_eos=True), config)
    late = [one for one in rounds_of(engine.generate(request)) if one.round >= 8]
    assert len(late) < 30 and max(one.num_accepted for one in late) > 0, "about 35 tokens are left"


def test_rounds_without_ssm_drafts_do_not_change_the_route() -> None:
    """With `speculation_length=0`, the router chooses SSMs, but no SSM drafts."""
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1, sharpness=2.5), 64)
    ssms = [TableModel(name, VOCAB, llm._table, 64) for name in ("a", "b", "c")]
    engine = Engine(loaded_tables(llm, ssms))
    config = SpeculationConfig(routing="cosine", routed_drafters=1, speculation_length=0)
    request = Request("w0 w1", SamplingParams(8, seed=1, ignore_eos=True), config)
    rounds = rounds_of(engine.generate(request))
    routed = [[one.drafter for one in r.routing if one.role != "waiting"] for r in rounds]
    assert len(rounds) == 8 and routed == [["a"]] * 8


def test_an_ssm_that_the_grant_left_out_does_not_count_as_tried() -> None:
    one = router()
    assert one.route().drafters == ("a", "b")
    one.observe(evidence(0, a=(0.5, 0.5)))
    assert one.route().explored == {"b"}
