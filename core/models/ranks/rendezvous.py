"""Rendezvous of the ranks: torch's store, which also holds the address of the leader (rank 0).

If the leader starts the ranks, the store is a file in a private folder. With RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT set, the ranks may be on several machines.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from core.config.nodes import in_brackets
from core.config.ranks import RankSplit
from core.errors import ConfigError, RankError
from core.models.ranks.group import torch_distributed

__all__ = [
    "ENDS_WITH_INPUT",
    "Rendezvous",
    "STORE_VARIABLE",
    "device_of_rank",
    "file_rendezvous",
    "env_rendezvous",
]

STORE_VARIABLE = "SPECSCOPE_RANK_STORE"
ENDS_WITH_INPUT = "SPECSCOPE_RANK_ENDS_WITH_INPUT"
"""Set if standard input is a pipe that only the leader's process holds open."""
ADDRESS_KEY = "specscope/leader"
MEETING_S = 600.0
"""Seconds that ranks wait for each other if the leader did not start them."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Rank `rank` of `count`; `store` is torch's. `folder`: a private folder if the leader starts
    the ranks, else None."""

    store: Any
    rank: int
    count: int
    folder: Path | None = None

    def publish(self, address: str) -> None:
        """Stores the leader's address."""
        self.store.set(ADDRESS_KEY, address)

    def check(self) -> None:
        """Raises RuntimeError if the leader has ended: the store is empty or unreachable."""
        if not self.store.check([ADDRESS_KEY]):
            raise RuntimeError("the store of the ranks is empty")

    def address(self) -> str:
        """The leader's address; waits for it. Raises RuntimeError after torch's timeout."""
        return str(self.store.get(ADDRESS_KEY).decode())


def file_rendezvous(file: Path, rank: int, count: int) -> Rendezvous:
    """The rendezvous of ranks that the leader starts."""
    return Rendezvous(torch_distributed().FileStore(str(file), count), rank, count, file.parent)


def env_rendezvous(split: RankSplit | None = None) -> Rendezvous | None:
    """The rendezvous that the environment describes, or None. Ranks that the leader did not start
    wait here for each other. Raises ConfigError if the variables are wrong or contradict `split`,
    RankError if the ranks do not meet."""
    # The leader sets STORE_VARIABLE for the ranks that it starts.
    if STORE_VARIABLE in os.environ:
        rank, count = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
        return file_rendezvous(Path(os.environ[STORE_VARIABLE]), rank, count)
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return None
    count = _whole_number("WORLD_SIZE", 2)
    rank, port = _whole_number("RANK", 0, count - 1), _whole_number("MASTER_PORT", 1, 65535)
    if split is not None and os.environ["WORLD_SIZE"] != str(split.count):
        raise ConfigError.of(
            "llm_ranks", str(split), f"WORLD_SIZE={os.environ['WORLD_SIZE']} ranks"
        )
    if split is not None and os.environ["RANK"] != "0":
        allowed = "0 for the process with the engine (the others: python -m core.models.ranks)"
        raise ConfigError.of("RANK", os.environ["RANK"], allowed)
    # Rank 0 serves the store at this address.
    _check_address(must_be_local=rank == 0)
    where = f"{in_brackets(os.environ['MASTER_ADDR'])}:{port}"
    # The call below blocks: rank 0 waits for all ranks, the other ranks wait for rank 0.
    print(f"rank {rank} of {count} waits at {where}", file=sys.stderr)
    limit = timedelta(seconds=MEETING_S)
    try:
        store, rank, count = next(torch_distributed().rendezvous("env://", timeout=limit))
    except RuntimeError as error:
        # After the first line comes torch's call stack.
        reason = str(error).partition("\n")[0]
        raise RankError(
            f"MASTER_ADDR and MASTER_PORT are {where}: the {count} ranks do not meet there "
            f"({reason})"
        ) from error
    return Rendezvous(store, rank, count)


def _whole_number(variable: str, least: int, most: int | None = None) -> int:
    value = os.environ[variable]
    allowed = f"a whole number from {least}" + (f" to {most}" if most is not None else "")
    if not value.isdecimal() or int(value) < least or (most is not None and int(value) > most):
        raise ConfigError.of(variable, value, allowed)
    return int(value)


def _check_address(*, must_be_local: bool) -> None:
    """Raises ConfigError for a MASTER_ADDR in brackets and, with `must_be_local`, for an address
    that is not this machine's: torch would wait until its timeout."""
    address = os.environ["MASTER_ADDR"]
    if address.startswith("["):
        raise ConfigError.of("MASTER_ADDR", address, "an IPv6 address without brackets")
    if not must_be_local:
        return
    try:
        family, kind, _, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # Port 0 means any free port: only the address is checked.
            probe.bind(where)
    except OSError as error:
        raise ConfigError.of("MASTER_ADDR", address, "an address of rank 0's machine") from error


def device_of_rank(device: torch.device, local_rank: int) -> torch.device:
    """The device of a rank: for CUDA, the GPU with the rank's number on its machine; else
    `device`."""
    return torch.device("cuda", local_rank) if device.type == "cuda" else device
