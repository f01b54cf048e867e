"""RankGroup: this process's place among the ranks, and the collectives of a pass, which it counts.

torch has one default process group a process, and transformers divides a model over that one: so a
process has at most one RankGroup at a time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch

from core.errors import ConfigError
from core.models.ranks.shared_memory import SharedMemory, is_ordered

__all__ = ["GROUP_TIMEOUT_S", "PassTraffic", "RankGroup", "torch_distributed"]

GROUP_TIMEOUT_S = 20.0
"""How long a collective waits for another rank. Ranks that idle wait for a message, not in here."""


@dataclass(frozen=True, slots=True)
class PassTraffic:
    """Collectives since the last report: how many, bytes of the tensors handed to them, and the
    seconds in them, waiting for the other ranks included."""

    collectives: int = 0
    bytes: int = 0
    seconds: float = 0.0


class RankGroup:
    """Rank `rank` of `count`."""

    def __init__(self, place: Any, device: torch.device, timeout_s: float) -> None:
        """`place`: a RankPlace. `timeout_s`: how long a collective waits for another rank, and this
        call for all of them. Raises RuntimeError where they do not come."""
        self._dist = dist = torch_distributed()
        self.rank, self.count, self.device = place.rank, place.count, device
        self._collectives, self._bytes, self._seconds = 0, 0, 0.0
        backend = "nccl" if device.type == "cuda" else "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self._shared: SharedMemory | None = None
        if place.folder is not None and device.type == "cpu" and is_ordered():
            self._shared = SharedMemory(place.folder, self.rank, self.count, timeout_s)
        with ExitStack() as on_failure, _loopback(local=place.folder is not None):
            on_failure.callback(self.end)
            dist.init_process_group(
                backend,
                store=place.store,
                rank=place.rank,
                world_size=place.count,
                timeout=timedelta(seconds=timeout_s),
            )
            # gloo connects now, while the environment names the interface; and who has come this
            # far has opened the shared memory.
            dist.all_reduce(torch.zeros(1, device=device))
            on_failure.pop_all()
        self.take_traffic()

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """Adds up a tensor over all ranks, in place; returns it."""
        began = time.perf_counter()
        if self._shared is not None and self._shared.takes(part):
            self._shared.all_reduce(part)
        else:
            # Of a tensor with gaps gloo adds up what lies in memory from its first element on.
            whole = part.contiguous()
            self._dist.all_reduce(whole)
            if whole is not part:
                part.copy_(whole)
        self.count_one(part.nbytes, began)
        return part

    def to_leader(self, part: torch.Tensor) -> list[torch.Tensor] | None:
        """Every rank's tensor of this one's shape on rank 0, None elsewhere."""
        began = time.perf_counter()
        if self._shared is not None and self._shared.takes(part):
            parts = self._shared.gather(part)
        else:
            parts = [torch.empty_like(part) for _ in range(self.count)] if not self.rank else None
            self._dist.gather(part, parts, dst=0)
        self.count_one(part.nbytes, began)
        return parts

    def of_leader(self, value: float) -> float:
        """Rank 0's number, on every rank."""
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        self._dist.broadcast(shared, src=0)
        return float(shared)

    def count_one(self, num_bytes: int, began: float) -> None:
        """Counts a collective that has ended. On a GPU the time is that of its launch."""
        self._seconds += time.perf_counter() - began
        self._collectives += 1
        self._bytes += num_bytes

    def take_traffic(self) -> PassTraffic:
        """What was counted since the last call."""
        traffic = PassTraffic(self._collectives, self._bytes, self._seconds)
        self._collectives, self._bytes, self._seconds = 0, 0, 0.0
        return traffic

    def end(self) -> None:
        """Leaves the group. Idempotent; another group may follow."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


def torch_distributed() -> ModuleType:
    """torch.distributed. Raises ConfigError where this build of torch has none."""
    import torch.distributed as dist

    if not dist.is_available():
        raise ConfigError("llm_ranks needs torch.distributed: this build of torch has none")
    return dist


@contextmanager
def _loopback(*, local: bool) -> Iterator[None]:
    """Ranks of one machine listen on its loopback interface alone: gloo's connections are neither
    encrypted nor authenticated."""
    name, before = "GLOO_SOCKET_IFNAME", os.environ.get("GLOO_SOCKET_IFNAME")
    if local and before is None:
        os.environ[name] = next(n for _, n in socket.if_nameindex() if n.startswith("lo"))
    try:
        yield
    finally:
        if local and before is None:
            del os.environ[name]
