"""The router that chooses one SSM for a whole run."""

from __future__ import annotations

import math

from core.routing import RoundEvidence, RoundTime
from core.routing.audition import AuditionRouter

NAMES = ("a", "b", "c")


def router() -> AuditionRouter:
    return AuditionRouter(NAMES, 2, lambda name: RoundTime(1.0, 0.0))


def test_the_ssm_that_predicts_the_prompt_best_drafts_to_the_end() -> None:
    one = router()
    assert one.needs_audition and one.route().drafters == ("a",), "nothing is known yet"
    one.observe_audition({"a": [-2.0, -1.0], "b": [-0.1, -0.3], "c": [-0.1, math.nan, -9.0]}, 1.0)
    assert one.drafter_scores()["b"] == math.exp(-0.2)
    for _ in range(3):
        route = one.route()
        assert (route.drafters, route.reason) == (("b",), "b predicted the text best")
        one.observe(RoundEvidence(0, 1, 1.0))
        assert not one.needs_audition


def test_after_ties_and_failures_the_next_ssm_in_order_drafts() -> None:
    one = router()
    one.observe_audition({"b": [-1.0], "c": [-1.0]}, 1.0)
    assert one.route().drafters == ("b",)
    one.drop("b")
    one.drop("unknown")
    assert one.route().drafters == ("c",)
    one.drop("c")
    assert (one.route().drafters, one.route().reason) == (("a",), "a is the first")
    one.drop("a")
    assert one.route().drafters == () and one.drafter_scores() == {}
