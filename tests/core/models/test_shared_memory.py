"""Collectives over shared memory, with threads for ranks."""

import fcntl
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.models.ranks import shared_memory
from core.models.ranks.group import RankGroup
from core.models.ranks.rendezvous import file_rendezvous
from core.models.ranks.shared_memory import CAPACITY, SharedMemory

SHAPES = ((1,), (16, 24), (3, 5, 7), (1000,))


def over_ranks(
    folder: Path, count: int, work: Callable[[SharedMemory, int], object], timeout_s: float = 20.0
) -> list:
    opened = [SharedMemory(folder, rank, count, timeout_s) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(work, opened, range(count)))
    for one in opened:
        one.close()
    return results


def part_of(step: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    noise = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(SHAPES[step % len(SHAPES)], generator=noise).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_sums_are_those_of_one_process_whichever_rank_is_late(
    tmp_path: Path, count: int, dtype: torch.dtype
) -> None:
    steps = 150

    def work(memory: SharedMemory, rank: int) -> list[torch.Tensor]:
        rng, results = random.Random(rank), []
        for step in range(steps):
            part = part_of(step, rank, dtype)
            if rng.random() < 0.1:
                time.sleep(rng.random() / 500)
            memory.all_reduce(part)
            results.append(part)
        return results

    everywhere = over_ranks(tmp_path, count, work)
    for step in range(steps):
        expected = part_of(step, 0, dtype)
        for rank in range(1, count):
            expected = expected + part_of(step, rank, dtype)
        assert all(torch.equal(of_rank[step], expected) for of_rank in everywhere), step


def test_gathered_parts_are_not_overwritten_before_the_leader_reads_them(tmp_path: Path) -> None:
    steps = 40

    def work(memory: SharedMemory, rank: int) -> list[list[float]]:
        results = []
        for step in range(steps):
            if rank == 0 and step % 5 == 0:
                time.sleep(0.002)
            parts = memory.gather(torch.tensor([float(100 * step + rank)]))
            assert (parts is None) == (rank > 0)
            results.append([float(part) for part in parts or ()])
            if step % 7 == 0:
                memory.all_reduce(torch.ones(3))
        return results

    leader, *_ = over_ranks(tmp_path, 3, work)
    assert leader == [[100.0 * step + rank for rank in range(3)] for step in range(steps)]


@pytest.mark.parametrize("second", [torch.no_grad, torch.enable_grad])
def test_passes_in_inference_mode_and_others_may_alternate(
    tmp_path: Path, second: Callable
) -> None:
    def work(memory: SharedMemory, rank: int) -> list[float]:
        results = []
        # Two sums in each mode, since the memory's two slots take turns.
        for mode in (*[torch.inference_mode] * 2, *[second] * 2, *[torch.inference_mode] * 2):
            with mode():
                part = torch.tensor([rank + 1.0])
                memory.all_reduce(part)
                results.append(float(part))
        return results

    assert over_ranks(tmp_path, 2, work, 1.0) == [[3.0] * 6] * 2


def test_the_memory_is_allocated_at_the_start(tmp_path: Path) -> None:
    """With a later allocation, a full disk would kill the process during a pass."""
    memory = SharedMemory(tmp_path, 0, 2, 1.0)
    assert 512 * (tmp_path / "exchange").stat().st_blocks >= 2 * 2 * CAPACITY
    memory.close()


def test_a_rank_that_does_not_arrive_is_an_error(tmp_path: Path) -> None:
    one, other = (SharedMemory(tmp_path, rank, 2, 0.3) for rank in range(2))
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"rank 1 has not come within 0.3 s"):
        one.all_reduce(torch.ones(2))
    assert 0.3 <= time.monotonic() - began < 5
    other.close()
    one.close()


def test_a_rank_that_has_ended_is_noticed_before_the_timeout(tmp_path: Path) -> None:
    one, other = (SharedMemory(tmp_path, rank, 2, 60.0) for rank in range(2))
    other.close()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1 has ended"):
        one.all_reduce(torch.ones(2))
    assert time.monotonic() - began < 5
    one.close()


def test_only_contiguous_tensors_up_to_the_capacity_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SharedMemory(tmp_path, 0, 1, 1.0)
    assert memory.fits(torch.empty(CAPACITY // 4)) and memory.fits(torch.ones(1))
    assert not memory.fits(torch.empty(CAPACITY // 4 + 1)) and not memory.fits(torch.empty(0))
    assert not memory.fits(torch.empty(4, 4).t()[1:])
    memory.close()
    for machine, ordered in (("x86_64", True), ("aarch64", False)):
        monkeypatch.setattr("platform.machine", lambda name=machine: name)
        assert shared_memory.is_ordered() == ordered


def test_a_tensor_that_is_not_contiguous_is_summed(tmp_path: Path) -> None:
    group = RankGroup(file_rendezvous(tmp_path / "store", 0, 1), torch.device("cpu"), 5.0)
    was_contiguous = []

    def double(tensor: torch.Tensor) -> None:
        """Like gloo, assumes contiguous memory."""
        was_contiguous.append(tensor.is_contiguous())
        tensor.as_strided((tensor.numel(),), (1,)).mul_(2)

    group._dist, dist = SimpleNamespace(all_reduce=double), group._dist
    base = torch.arange(24.0).view(4, 6)
    for part in (base.t()[1:], base[:, :3], base.t()):
        expected = 2 * part
        assert torch.equal(group.all_reduce(part), expected) and torch.equal(part, expected)
    assert was_contiguous == [True] * 3
    group._dist = dist
    group.end()


def test_a_group_that_does_not_start_releases_its_lock(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        RankGroup(file_rendezvous(tmp_path / "store", 0, 2), torch.device("cpu"), 0.5)
    with (tmp_path / "rank-0").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
