"""Stopping a draft because of drawn tokens does not change the LLM's distribution."""

from collections.abc import Sequence

import pytest

from core.config import SpeculationConfig
from core.config.mechanisms import VerifyRule
from core.speculation_length import Choice, LengthPolicy, RoundOutcome, Stop
from core.speculation_length.base import StopLimits
from core.speculation_length.confidence import Confidence
from core.speculation_length.cost_model import Costs
from core.speculation_length.stop_rule import StopRule, step_limits
from tests.laws.law3_cases import EXACT, NOTICED, case, deviation


class GivenStop:
    """Learns nothing, since every branch that `deviation` enumerates must see the same stop."""

    def __init__(self, length: int, stop: Stop) -> None:
        self._choice = Choice(length, stop=stop)

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing is learnt."""


LIMITS = {f"model-{i}": step_limits(0.9, (0.36, 0.36), 3) for i in range(4)}


class DropsImprobable(StopRule):
    """The engine calls `keeps` only under verify rules without `reads_q`."""

    def keeps(self, score: float) -> bool:
        return score > 0.4


def use_stop(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> list[bool]:
    """Returns a list to which runs append the answers of `grows` and `continues`."""
    answers: list[bool] = []

    class RecordingStop:
        def grows(self, score: float) -> bool:
            answers.append(stop.grows(score))
            return answers[-1]

        def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
            answers.append(stop.continues(drafter, depth, scores))
            return answers[-1]

        def keeps(self, score: float) -> bool:
            return stop.keeps(score)

        def limits(self, drafter: str) -> StopLimits | None:
            return None

    def make(config: SpeculationConfig, costs: Costs) -> LengthPolicy:
        return GivenStop(config.speculation_length, RecordingStop())

    monkeypatch.setattr("core.engine.engine.make_policy", make)
    return answers


def confidence(threshold: float) -> Stop:
    stop = Confidence(SpeculationConfig(confidence_threshold=threshold)).choose().stop
    return stop


STOPS: dict[str, Stop] = {"confidence": confidence(0.4), "goodput": StopRule(LIMITS, 0.1)}
SHAPES = {"chain": (1, "sampled_iid", (1, 1, 1)), "siblings": (1, "sampled", (2, 1))}


@pytest.mark.parametrize("verify", ["mss", "traversal"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_draft_is_plain_sampling(stop: str, shape: str, verify: str, monkeypatch):
    answers = use_stop(monkeypatch, STOPS[stop])
    assert deviation(case(*SHAPES[shape], verify=verify), rounds=1, count=4) <= EXACT
    assert {True, False} <= set(answers), "the stop ended some drafts, but not all"


def test_stopped_drafts_of_two_drafters_and_two_rounds_are_plain_sampling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = use_stop(monkeypatch, STOPS["goodput"])
    two = case(2, "sampled_iid", (1, 1), verify="mss")
    assert deviation(two, rounds=1, count=3) <= EXACT
    chain = case(1, "sampled_iid", (1, 1), verify="mss")
    assert deviation(chain, rounds=2, count=4) <= EXACT
    assert {True, False} <= set(answers)


def test_control_a_drawn_token_dropped_for_its_chance_is_noticed(monkeypatch: pytest.MonkeyPatch):
    dropping = DropsImprobable(LIMITS, 0.1)
    use_stop(monkeypatch, dropping)
    drawn = case(1, "sampled_iid", (2,), verify="mss")
    assert deviation(drawn, rounds=1, count=2) <= EXACT, "the engine does not call `keeps`"
    monkeypatch.setattr("core.engine.round_state.verify_rule", lambda name: VerifyRule(name, name))
    assert deviation(drawn, rounds=1, count=2) > NOTICED
