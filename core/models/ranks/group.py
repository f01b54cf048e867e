"""RankGroup: this process's rank and its collectives.

transformers divides a model over torch's default process group, so a process has at most one
RankGroup at a time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

from core.errors import ConfigError
from core.models.ranks.shared_memory import SharedMemory, is_ordered

__all__ = [
    "GROUP_TIMEOUT_S",
    "ExchangeError",
    "PassTraffic",
    "RankGroup",
    "exchange",
    "torch_distributed",
]

GROUP_TIMEOUT_S = 20.0
"""Seconds that a collective waits for another rank."""
P = ParamSpec("P")
R = TypeVar("R")


class ExchangeError(RuntimeError):
    """A collective failed: another rank has failed, ended or not answered."""


def exchange(collective: Callable[P, R]) -> Callable[P, R]:
    """Wraps a collective: its RuntimeErrors become ExchangeErrors."""

    @wraps(collective)
    def with_exchange_error(*args: P.args, **options: P.kwargs) -> R:
        try:
            return collective(*args, **options)
        except RuntimeError as error:
            raise ExchangeError(str(error)) from error

    return with_exchange_error


@dataclass(frozen=True, slots=True)
class PassTraffic:
    """Collectives since the last report: number, bytes of the tensors, and seconds, including the
    wait for other ranks."""

    collectives: int = 0
    bytes: int = 0
    seconds: float = 0.0


class RankGroup:
    """Rank `rank` of `count`."""

    def __init__(self, rendezvous: Any, device: torch.device, timeout_s: float) -> None:
        """`rendezvous`: a Rendezvous. `timeout_s`: how long this call and each collective wait for
        other ranks. Raises RuntimeError after that time."""
        self._dist = dist = torch_distributed()
        self.rank, self.count, self.device = rendezvous.rank, rendezvous.count, device
        self._traffic = PassTraffic()
        backend = "nccl" if device.type == "cuda" else "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        # None if the ranks cannot share memory.
        self._shared_memory: SharedMemory | None = None
        if rendezvous.folder is not None and device.type == "cpu" and is_ordered():
            self._shared_memory = SharedMemory(rendezvous.folder, self.rank, self.count, timeout_s)
        with ExitStack() as on_failure, _loopback(local=rendezvous.folder is not None):
            on_failure.callback(self.end)
            dist.init_process_group(
                backend,
                store=rendezvous.store,
                rank=rendezvous.rank,
                world_size=rendezvous.count,
                timeout=timedelta(seconds=timeout_s),
            )
            # gloo connects here, while the environment names the interface. After this call every
            # rank has opened the shared memory.
            dist.all_reduce(torch.zeros(1, device=device))
            on_failure.pop_all()

    @exchange
    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """Adds up a tensor over all ranks, in place; returns it."""
        start = time.perf_counter()
        if self._shared_memory is not None and self._shared_memory.fits(part):
            self._shared_memory.all_reduce(part)
        else:
            # gloo ignores strides: it reads memory contiguously from the first element on.
            contiguous = part.contiguous()
            self._dist.all_reduce(contiguous)
            if contiguous is not part:
                part.copy_(contiguous)
        self.count_collective(part.nbytes, start)
        return part

    @exchange
    def gather(self, part: torch.Tensor) -> list[torch.Tensor] | None:
        """On rank 0 the tensors of all ranks, elsewhere None. All tensors have one shape."""
        start = time.perf_counter()
        if self._shared_memory is not None and self._shared_memory.fits(part):
            parts = self._shared_memory.gather(part)
        else:
            parts = [torch.empty_like(part) for _ in range(self.count)] if not self.rank else None
            self._dist.gather(part, parts, dst=0)
        self.count_collective(part.nbytes, start)
        return parts

    @exchange
    def broadcast(self, value: float) -> float:
        """Rank 0's `value`, on every rank."""
        # float64 keeps all bits of the value.
        values = torch.tensor([value], dtype=torch.float64, device=self.device)
        self._dist.broadcast(values, src=0)
        return float(values)

    def count_collective(self, num_bytes: int, start: float) -> None:
        """Counts a collective that began at `start` (time.perf_counter) and ends now. On a GPU only
        the launch is timed."""
        seconds, so_far = time.perf_counter() - start, self._traffic
        self._traffic = PassTraffic(
            so_far.collectives + 1, so_far.bytes + num_bytes, so_far.seconds + seconds
        )

    def take_traffic(self) -> PassTraffic:
        """Traffic since the last call."""
        traffic, self._traffic = self._traffic, PassTraffic()
        return traffic

    def end(self) -> None:
        """Leaves the group. Idempotent."""
        if self._shared_memory is not None:
            self._shared_memory.close()
            self._shared_memory = None
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


def torch_distributed() -> ModuleType:
    """torch.distributed. Raises ConfigError if this build of torch has none."""
    import torch.distributed as dist

    if not dist.is_available():
        raise ConfigError("llm_ranks needs torch.distributed: this build of torch has none")
    return dist


@contextmanager
def _loopback(*, local: bool) -> Iterator[None]:
    """With `local`, restricts gloo to the loopback interface, since gloo's connections are neither
    encrypted nor authenticated. No effect if GLOO_SOCKET_IFNAME is set."""
    name, before = "GLOO_SOCKET_IFNAME", os.environ.get("GLOO_SOCKET_IFNAME")
    if local and before is None:
        os.environ[name] = next(n for _, n in socket.if_nameindex() if n.startswith("lo"))
    try:
        yield
    finally:
        if local and before is None:
            del os.environ[name]
