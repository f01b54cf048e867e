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
    """Parts have at most 40 positions: two windows of 17."""
    monkeypatch.setattr("zoo.parallel_gradients.POSITIONS_PER_PART", 40)


def fresh(seed: int) -> nn.Module:
    return new_model(RECIPE, PRESETS["smoke"], 64, seed)


def lighter_last_window(model: nn.Module, windows: Tensor) -> Total:
    """Makes parts of equal size differ in weight."""
    total = next_token(model, windows)
    is_last = (windows == WINDOWS[-1]).all(-1)
    scale = 1.0 - 0.9 * is_last.float().mean()
    return Total(total.cost * scale, total.weight * scale)


def loss_and_gradients(
    workers: int, loss: Loss = next_token, *, in_parts: bool = True
) -> tuple[float, list[Tensor]]:
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
def test_gradients_of_parts_add_up_to_those_of_the_batch(workers: int, loss: Loss) -> None:
    expected_loss, expected = loss_and_gradients(1, loss, in_parts=False)
    loss_in_parts, gradients = loss_and_gradients(workers, loss)
    assert loss_in_parts == pytest.approx(expected_loss, rel=1e-5)
    for one, other in zip(expected, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_part_counts_by_the_weight_of_its_positions() -> None:
    costs = [lighter_last_window(fresh(0), part) for part in WINDOWS.tensor_split(4)]
    # 85 positions need three parts of at most 40: each of the two workers gets two parts.
    expected = sum(c.cost.item() for c in costs) / sum(c.weight.item() for c in costs)
    assert loss_and_gradients(2, lighter_last_window)[0] == pytest.approx(expected, rel=1e-5)
    assert abs(expected - sum(c.mean.item() for c in costs) / 4) > 1e-4


def test_gradients_are_reproducible() -> None:
    loss, gradients = loss_and_gradients(3)
    for _ in range(3):
        again, others = loss_and_gradients(3)
        assert again == loss
        assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))


def test_close_ends_threads_and_restores_num_threads() -> None:
    def num_threads_of_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loss_and_gradients(2)
        assert torch.get_num_threads() == num_threads_of_a_new_thread() == 2
    finally:
        torch.set_num_threads(before)
    assert not [one for one in threading.enumerate() if one.name.startswith("part")]


def test_an_error_of_a_part_is_raised() -> None:
    parallel = ParallelGradients(2)

    def fail(part: Tensor) -> Total:
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        parallel.set_gradients(fail, WINDOWS, [torch.zeros(1, requires_grad=True)])
    parallel.close()


@pytest.mark.parametrize(
    ("device", "threads", "workers"),
    [("cpu", 1, 1), ("cpu", 2, 2), ("cpu", 3, 1), ("cpu", 4, 4), ("cpu", 16, 1), ("cuda", 2, 1)],
)
def test_there_is_a_worker_per_thread_if_all_get_equally_many_windows(
    device: str, threads: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of RECIPE has four of the longest windows, each of 128 tokens."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    store: Any = None
    run = TrainingRun(PRESETS["smoke"], store, 1.0, torch.device(device))
    assert run.workers(RECIPE) == workers
    assert run.workers(replace(RECIPE, tokens_per_step=64)) == 1
