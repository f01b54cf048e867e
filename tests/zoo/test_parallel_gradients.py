"""Threads that share a step's windows give the gradients of a single thread."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.losses import Distillation, Loss, Total, next_token
from zoo.parallel_gradients import ParallelGradients
from zoo.presets import PRESETS
from zoo.train import TrainingRun
from zoo.trainer import new_model

RECIPE = PRESETS["smoke"].models[1]
WINDOWS = torch.randint(0, 64, (5, 17), generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two windows for one worker."""
    monkeypatch.setattr("zoo.parallel_gradients.POSITIONS_PER_PART", 40)


def fresh(seed: int) -> nn.Module:
    return new_model(RECIPE, PRESETS["smoke"], 64, seed)


def by_positions(model: nn.Module, windows: Tensor) -> Total:
    """A part's cost and weight are scaled down by its share of the last window, so parts differ in
    weight."""
    total = next_token(model, windows)
    tenth = (windows == WINDOWS[-1]).all(-1)
    share = 1.0 - 0.9 * tenth.float().mean()
    return Total(total.cost * share, total.weight * share)


def loss_and_gradients(
    workers: int, loss: Loss = next_token, *, in_parts: bool = True
) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one model and one batch."""
    model = fresh(0)
    parallel = ParallelGradients(workers, in_parts=in_parts)
    mean = parallel.set_gradients(lambda part: loss(model, part), WINDOWS, list(model.parameters()))
    parallel.close()
    gradients = [each.grad for each in model.parameters()]
    assert all(gradient is not None for gradient in gradients)
    return mean.item(), [each for each in gradients if each is not None]


@pytest.mark.parametrize(
    "loss",
    [next_token, Distillation(fresh(1)), Distillation(fresh(1), (fresh(2),))],
    ids=["next token", "distilled", "boosted"],
)
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_parts_make_up_the_whole(workers: int, loss: Loss) -> None:
    """The parts of five windows differ in size and in the weight of their positions."""
    mean, whole = loss_and_gradients(1, loss, in_parts=False)
    shared, parts = loss_and_gradients(workers, loss)
    assert shared == pytest.approx(mean, rel=1e-5)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_part_counts_by_what_its_positions_weigh() -> None:
    costs = [by_positions(fresh(0), part) for part in WINDOWS.tensor_split(4)]
    # 85 positions, at most 40 in a part: two parts for each of the two workers.
    expected = sum(c.cost.item() for c in costs) / sum(c.weight.item() for c in costs)
    assert loss_and_gradients(2, by_positions)[0] == pytest.approx(expected, rel=1e-5)
    assert abs(expected - sum(c.mean.item() for c in costs) / 4) > 1e-4


def test_the_same_every_time() -> None:
    loss, gradients = loss_and_gradients(3)
    for _ in range(3):
        again, others = loss_and_gradients(3)
        assert again == loss
        assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))


def test_close_ends_threads_and_restores_num_threads() -> None:
    def of_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loss_and_gradients(2)
        assert torch.get_num_threads() == of_a_new_thread() == 2
    finally:
        torch.set_num_threads(before)
    assert not [one for one in threading.enumerate() if one.name.startswith("part")]


def test_what_a_part_raises_is_raised() -> None:
    sharing = ParallelGradients(2)

    def fails(part: Tensor) -> Total:
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        sharing.set_gradients(fails, WINDOWS, [torch.zeros(1, requires_grad=True)])
    sharing.close()


@pytest.mark.parametrize(
    ("device", "threads", "workers"),
    [("cpu", 1, 1), ("cpu", 2, 2), ("cpu", 3, 1), ("cpu", 4, 4), ("cpu", 16, 1), ("cuda", 2, 1)],
)
def test_a_thread_per_core_if_all_get_as_many_windows(
    device: str, threads: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four windows of 128 tokens a step."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    store: Any = None
    run = TrainingRun(PRESETS["smoke"], store, 1.0, torch.device(device))
    assert run.workers(RECIPE) == workers
    assert run.workers(replace(RECIPE, tokens_per_step=64)) == 1
