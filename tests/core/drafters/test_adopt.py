"""A growth that adopts another request ends with the draft of that request."""

from dataclasses import replace

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, new_growth
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from tests.fakes import random_table, sequence_of

VOCAB = 8
TABLE = random_table(VOCAB, 4, sharpness=1.5)
PASSES = [1, 2, 3]


def draft_request(kind: str, shape: tuple[int, ...], budget: int = 64) -> DraftRequest:
    greedy = kind in ("topk", "best_first")
    sampling = SamplingParams(30, temperature=0.0 if greedy else 0.9, seed=3)
    sequence = sequence_of(
        (1, 2), SpeculationConfig(), sampling, SeededNoise(3, VOCAB), context_length=64
    )
    return DraftRequest(sequence, 0, kind, shape, budget)


def feed(growth: Growth, passes: int) -> Growth:
    for _ in range(passes):
        if not growth.frontier:
            break
        rows = []
        for node in growth.frontier:
            path = []
            while node != -1:
                path.insert(0, growth.out.token_ids[node])
                node = growth.out.parents[node]
            rows.append(torch.tensor(TABLE((1, 2, *path)), dtype=torch.float64).log().float())
        growth.absorb(torch.stack(rows))
    return growth


def fields_of(draft: Draft) -> tuple[object, ...]:
    return draft.token_ids, draft.parents, draft.scores, draft.qs, draft.ranks


@pytest.mark.parametrize("kind", ["topk", "coupled", "sampled", "sampled_iid", "best_first"])
@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 1, 2), (2, 1, 2, 1), (2, 1, 2, 1, 1, 1)])
def test_a_growth_may_adopt_a_shorter_or_longer_request(
    kind: str, passes: int, shape: tuple[int, ...]
) -> None:
    growth = feed(new_growth(draft_request(kind, (2, 1, 2, 1)), Calibration()), passes)
    expected = draft_request(kind, shape)
    assert growth.adopt(expected)
    from_start = feed(new_growth(expected, Calibration()), 99)
    assert fields_of(feed(growth, 99).draft()) == fields_of(from_start.draft())


@pytest.mark.parametrize("kind", ["topk", "sampled"])
def test_another_shape_is_refused_and_changes_nothing(kind: str) -> None:
    growth = feed(new_growth(draft_request(kind, (2, 1, 2)), Calibration()), 2)
    before = (list(growth.frontier), fields_of(growth.draft()))
    assert not growth.adopt(draft_request(kind, (1, 1, 2)))
    assert not growth.adopt(draft_request(kind, (2, 2)))
    assert not growth.adopt(replace(draft_request(kind, (2, 1, 2)), kind="coupled"))
    assert (growth.frontier, fields_of(growth.draft())) == before
    assert growth.adopt(draft_request(kind, (2, 1, 1)))  # the level that differs is not grown yet


def test_best_first_keeps_the_best_of_another_budget() -> None:
    growth = feed(new_growth(draft_request("best_first", (2, 2, 2), budget=9), Calibration()), 99)
    assert growth.adopt(draft_request("best_first", (2, 2, 2), budget=4))
    from_start = feed(
        new_growth(draft_request("best_first", (2, 2, 2), budget=4), Calibration()), 99
    )
    assert fields_of(growth.draft()) == fields_of(from_start.draft())
    assert not growth.adopt(draft_request("best_first", (4, 2), budget=4))
