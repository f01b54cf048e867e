"""A growth that adopts another request ends as if it had grown for that request from the start."""

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
GROWN = [1, 2, 3]


def ask(kind: str, shape: tuple[int, ...], budget: int = 64) -> DraftRequest:
    greedy = kind in ("topk", "best_first")
    sampling = SamplingParams(30, temperature=0.0 if greedy else 0.9, seed=3)
    sequence = sequence_of(
        (1, 2), SpeculationConfig(), sampling, SeededNoise(3, VOCAB), context_length=64
    )
    return DraftRequest(sequence, 0, kind, shape, budget)


def feed(grown: Growth, passes: int) -> Growth:
    """Absorbs its frontier's logits, `passes` times or until it is done."""
    for _ in range(passes):
        if not grown.frontier:
            break
        rows = []
        for node in grown.frontier:
            path = []
            while node != -1:
                path.insert(0, grown.out.token_ids[node])
                node = grown.out.parents[node]
            rows.append(torch.tensor(TABLE((1, 2, *path)), dtype=torch.float64).log().float())
        grown.absorb(torch.stack(rows))
    return grown


def plain(draft: Draft) -> tuple[object, ...]:
    return draft.token_ids, draft.parents, draft.scores, draft.qs, draft.ranks


@pytest.mark.parametrize("kind", ["topk", "coupled", "sampled", "sampled_iid", "best_first"])
@pytest.mark.parametrize("passes", GROWN)
@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 1, 2), (2, 1, 2, 1), (2, 1, 2, 1, 1, 1)])
def test_shorter_and_longer_asks(kind: str, passes: int, shape: tuple[int, ...]) -> None:
    begun = feed(new_growth(ask(kind, (2, 1, 2, 1)), Calibration()), passes)
    expected = ask(kind, shape)
    assert begun.adopt(expected)
    straight = feed(new_growth(expected, Calibration()), 99)
    assert plain(feed(begun, 99).draft()) == plain(straight.draft())


@pytest.mark.parametrize("kind", ["topk", "sampled"])
def test_another_shape_is_refused_and_changes_nothing(kind: str) -> None:
    begun = feed(new_growth(ask(kind, (2, 1, 2)), Calibration()), 2)
    before = (list(begun.frontier), plain(begun.draft()))
    assert not begun.adopt(ask(kind, (1, 1, 2)))
    assert not begun.adopt(ask(kind, (2, 2)))
    assert not begun.adopt(replace(ask(kind, (2, 1, 2)), kind="coupled"))
    assert (begun.frontier, plain(begun.draft())) == before
    assert begun.adopt(ask(kind, (2, 1, 1)))  # the level that differs is not grown yet


def test_best_first_keeps_the_best_of_another_budget() -> None:
    begun = feed(new_growth(ask("best_first", (2, 2, 2), budget=9), Calibration()), 99)
    assert begun.adopt(ask("best_first", (2, 2, 2), budget=4))
    straight = feed(new_growth(ask("best_first", (2, 2, 2), budget=4), Calibration()), 99)
    assert plain(begun.draft()) == plain(straight.draft())
    assert not begun.adopt(ask("best_first", (4, 2), budget=4))
