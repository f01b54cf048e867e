"""Law 3: drafts made ahead leave the distribution of whole rounds unchanged."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from core.drafters.growth import Growth
from core.drafters.ssm import SsmDrafter
from core.engine.overlap import Job
from core.events import RoundCompleted
from tests.lanes import PunctualLane
from tests.laws.law3_cases import EXACT, NOTICED, case
from tests.laws.shared_noise import RepeatedNoise
from tests.laws.whole_rounds import EnumeratedCase, joint_of_walks, plain_joint, total_variation


class FirstRoundLane(PunctualLane):
    """Drafts ahead in the first of two rounds; drafts for a third round would only add branches."""

    def __init__(self, checks: int) -> None:
        super().__init__(checks)
        self._turns = itertools.cycle([True, False])

    @contextmanager
    def run_during(self, jobs: Sequence[Job]) -> Iterator[None]:
        with super().run_during(jobs if next(self._turns) else []):
            yield


CASES: dict[str, dict[str, Any]] = {
    "a chain, mss": {"draft": "sampled_iid", "shape": (1,), "verify": "mss"},
    "a chain, traversal": {"draft": "sampled_iid", "shape": (1, 1), "verify": "traversal"},
    "a fork without replacement": {"draft": "sampled", "shape": (2,), "verify": "mss"},
    "two tries": {"draft": "sampled_iid", "shape": (2,), "verify": "traversal"},
}


def ahead(name: str, checks: int = 999, **fields: Any) -> EnumeratedCase:
    settings = {"vocab": 2, "prompt_ids": (0, 1, 0), "pipeline": "ahead", **CASES[name], **fields}
    enumerated = case(1, settings.pop("draft"), settings.pop("shape"), 1, **settings)
    enumerated.engine._draft_thread = FirstRoundLane(checks)
    return enumerated


def deviation(enumerated: EnumeratedCase) -> float:
    return total_variation(
        joint_of_walks(enumerated, 2, 4, RepeatedNoise), plain_joint(enumerated, 4)
    )


# Many branches: nightly.
LONG = "a chain, traversal"


@pytest.mark.parametrize("name", [one for one in CASES if one != LONG])
def test_two_rounds_are_plain_sampling(name: str) -> None:
    assert deviation(ahead(name)) <= EXACT


@pytest.mark.nightly
def test_two_rounds_of_a_longer_chain_are_plain_sampling() -> None:
    assert deviation(ahead(LONG)) <= EXACT


@pytest.mark.parametrize("checks", [1, 2, 3])
def test_drafts_cut_off_anywhere_are_plain_sampling(checks: int) -> None:
    assert deviation(ahead("a chain, mss", checks)) <= EXACT


def test_some_guesses_come_true_in_these_cases() -> None:
    enumerated = ahead("a chain, mss")
    hits = []
    run_round = enumerated.engine.round

    def noting(live: Any) -> Any:
        for event in run_round(live):
            if isinstance(event, RoundCompleted):
                hits.extend(one.hit for one in event.ahead)
            yield event

    enumerated.engine.round = noting  # type: ignore[method-assign]
    joint_of_walks(enumerated, 2, 4, RepeatedNoise)
    assert any(hits) and not all(hits) and len(hits) > 20


def test_control_a_draft_changed_by_its_drawn_token_is_noticed(monkeypatch: pytest.MonkeyPatch):
    growth_ahead = SsmDrafter._growth_ahead

    def change_growth(drafter: SsmDrafter, ask: Any) -> Growth | None:
        growth = growth_ahead(drafter, ask)
        if growth is not None and growth.out.token_ids[:1] == [1]:
            growth.out.token_ids[0] = 0
            growth.out.scores[0] = 1.0
        return growth

    monkeypatch.setattr(SsmDrafter, "_growth_ahead", change_growth)
    result = deviation(ahead("a chain, mss"))
    assert result > NOTICED
