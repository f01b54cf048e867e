"""Where the ranks find each other: torch's store, and in it the leader's address for messages.

On one machine the store is a file in a private folder. Where RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are set (by a person or by torchrun) the ranks may be on several machines.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.config.ranks import RankSplit
from core.errors import ConfigError
from core.models.ranks.group import torch_distributed

__all__ = [
    "ENDS_WITH_INPUT",
    "RankPlace",
    "STORE_VARIABLE",
    "device_of_rank",
    "file_place",
    "given_place",
]

STORE_VARIABLE = "SPECSCOPE_RANK_STORE"
ENDS_WITH_INPUT = "SPECSCOPE_RANK_ENDS_WITH_INPUT"
"""Set where standard input is a pipe that the leader's process alone holds open."""
ADDRESS_KEY = "specscope/leader"


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Rank `rank` of `count`, which meet in `store`. `folder`: of ranks on one machine, theirs
    alone."""

    store: Any
    rank: int
    count: int
    folder: Path | None = None

    def publish(self, address: str) -> None:
        """The leader says where it listens."""
        self.store.set(ADDRESS_KEY, address)

    def check(self) -> None:
        """Raises RuntimeError where the store is gone, and with it the leader."""
        if not self.store.check([ADDRESS_KEY]):
            raise RuntimeError("the store of the ranks is empty")

    def address(self) -> str:
        """Where the leader listens; waits for it. Raises RuntimeError after torch's timeout."""
        return str(self.store.get(ADDRESS_KEY).decode())


def file_place(file: Path, rank: int, count: int) -> RankPlace:
    """Of ranks on this machine."""
    return RankPlace(torch_distributed().FileStore(str(file), count), rank, count, file.parent)


def given_place(split: RankSplit | None = None) -> RankPlace | None:
    """By the variables of the environment, None where they are not set. Raises ConfigError where
    they do not fit `split`."""
    if STORE_VARIABLE in os.environ:
        rank, count = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
        return file_place(Path(os.environ[STORE_VARIABLE]), rank, count)
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return None
    if split is not None and os.environ["WORLD_SIZE"] != str(split.count):
        raise ConfigError.of(
            "llm_ranks", str(split), f"WORLD_SIZE={os.environ['WORLD_SIZE']} ranks"
        )
    if split is not None and os.environ["RANK"] != "0":
        allowed = "0 for the process with the engine (the others: python -m core.models.ranks)"
        raise ConfigError.of("RANK", os.environ["RANK"], allowed)
    store, rank, count = next(torch_distributed().rendezvous("env://"))
    return RankPlace(store, rank, count)


def device_of_rank(device: torch.device, local_rank: int) -> torch.device:
    """On a machine with several GPUs each rank has its own."""
    return torch.device("cuda", local_rank) if device.type == "cuda" else device
