"""`confidence`: a draft ends after its first unsure token."""

from core.config import SpeculationConfig
from core.speculation_length import make_policy
from core.speculation_length.confidence import Confidence
from tests.core.speculation_length.world import Simulated, World, config_of, constant, simulate


def test_a_node_under_the_threshold_has_no_children() -> None:
    stop = Confidence(SpeculationConfig(confidence_threshold=0.4)).choose().stop
    assert [stop.grows(score) for score in (1.0, 0.41, 0.4, 0.39, 0.0)] == [True] * 3 + [False] * 2
    assert not stop.grows(float("nan"))
    assert stop.continues("a", 3, [0.001])
    assert stop.keeps(0.001), "the unsure token is kept"


def test_the_configured_length_bounds_the_draft() -> None:
    choice = Confidence(SpeculationConfig(speculation_length=6)).choose()
    assert choice.length == 6
    assert choice.reason == "up to 6, and none behind a token whose score is under 0.4"
    assert Confidence(SpeculationConfig(speculation_length=0)).choose().length == 0


def test_drafts_end_after_the_first_unsure_token() -> None:
    drafter = Simulated(
        "a", lambda position: 0.3 if position % 3 == 2 else 0.9, constant(1.0), constant(1.0)
    )
    world = World((drafter,), lambda n: 5.0 + n)
    config = config_of(world, length="confidence", speculation_length=8)
    result = simulate(world, 300, make_policy(config, world.costs()))
    position = 0
    for outcome in result.outcomes:
        assert len(outcome.drafts["a"].depths) == 3 - position % 3
        position += outcome.num_tokens
    assert position >= 300
