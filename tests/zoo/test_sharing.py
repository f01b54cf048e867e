"""Threads that share a step's windows come to the gradients of one that makes them all."""

from __future__ import annotations

import pytest
import torch

from zoo.losses import next_token
from zoo.presets import PRESETS
from zoo.sharing import Sharing
from zoo.trainer import new_model

RECIPE = PRESETS["smoke"].models[1]
WINDOWS = torch.randint(0, 64, (5, 17), generator=torch.Generator().manual_seed(1))


def found(workers: int) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of one model and one batch."""
    model = new_model(RECIPE, PRESETS["smoke"], 64, seed=0)
    sharing = Sharing(workers)
    loss = sharing.gradients(
        lambda part: next_token(model, part), WINDOWS, list(model.parameters())
    )
    sharing.close()
    gradients = [each.grad for each in model.parameters()]
    assert all(gradient is not None for gradient in gradients)
    return loss.item(), [each for each in gradients if each is not None]


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_parts_make_up_the_whole(workers: int) -> None:
    """Of five windows the parts differ in size: each counts by its windows."""
    loss, whole = found(1)
    shared, parts = found(workers)
    assert shared == pytest.approx(loss, rel=1e-5)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_same_every_time() -> None:
    loss, gradients = found(3)
    for _ in range(3):
        again, others = found(3)
        assert again == loss
        assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))


def test_the_threads_and_their_number_do_not_outlast_it() -> None:
    before = torch.get_num_threads()
    found(2)
    assert torch.get_num_threads() == before


def test_what_a_part_raises_is_raised() -> None:
    sharing = Sharing(2)

    def fails(part: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        sharing.gradients(fails, WINDOWS, [torch.zeros(1, requires_grad=True)])
    sharing.close()
