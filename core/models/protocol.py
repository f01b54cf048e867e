"""LanguageModel: the interface through which the engine and the drafters use a model.

A row of the KV cache holds committed tokens, then pending nodes: a tree of tokens that were fed but
not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.events import ModelInfo, RanksInfo, RankTraffic

__all__ = ["CACHED", "Feed", "LanguageModel", "chain", "rank_traffic", "ranks_info"]


CACHED = -1
"""The parent of nodes that follow the row's committed tokens."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to add to one row's pending nodes.

    `parents[i]` is CACHED or the index of a pending node of the row. The feed's own nodes are
    numbered after the nodes already pending. With `last_only`, only the last token's logits are
    returned.
    """

    row: int
    token_ids: Sequence[int]
    parents: Sequence[int]
    last_only: bool = False


def chain(row: int, token_ids: Sequence[int], first: int = 0, *, last_only: bool = False) -> Feed:
    """A chain of tokens after the last pending node; without pending nodes, after the committed
    tokens. `first`: the number of pending nodes."""
    parents = [CACHED if i == 0 and first == 0 else first + i - 1 for i in range(len(token_ids))]
    return Feed(row, token_ids, parents, last_only)


class LanguageModel(Protocol):
    """A causal language model with rows of cached context."""

    @property
    def info(self) -> ModelInfo:
        """The model's description in events."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of token ids that have logits."""
        ...

    @property
    def num_embeddings(self) -> int:
        """Number of token ids that may be fed."""
        ...

    @property
    def context_length(self) -> int:
        """Limit, in tokens, on a row's committed tokens plus its longest path of pending nodes."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of the logits."""
        ...

    @property
    def slots(self) -> int:
        """KV slots allocated per row; `forward` allocates more if needed."""
        ...

    def open_row(self) -> int:
        """Opens an empty row and returns its number."""
        ...

    def close_row(self, row: int) -> None:
        """Frees the row."""
        ...

    def length(self, row: int) -> int:
        """Number of committed tokens of the row."""
        ...

    def pending(self, row: int) -> int:
        """Number of pending nodes of the row."""
        ...

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        """One pass over feeds of different rows; float32 logits (tokens, V) for each feed, (1, V)
        with `last_only`.

        The tokens become pending nodes. Raises ContextLengthError past the context length and
        EngineError for a row that is not open or an unknown parent, before any row has changed.
        After any other error the tokens may be pending.
        """
        ...

    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        """Commits the pending `nodes`: indices of one path from CACHED down. Drops all other
        pending nodes except `keep`.

        `keep`: descendants of the last of `nodes` (ascending indices, closed under parents) that
        stay pending, renumbered from 0. Raises EngineError for an index that is not pending.
        """
        ...


def ranks_info(model: object) -> RanksInfo | None:
    """The division of a model over ranks; None for a model in one process."""
    # Read as an attribute: the implementation over ranks needs packages that not every installation
    # has.
    info: RanksInfo | None = getattr(model, "ranks", None)
    return info


def rank_traffic(model: object) -> tuple[RankTraffic, ...]:
    """Traffic of a model's ranks in its last pass; empty for a model in one process."""
    last_traffic: Callable[[], tuple[RankTraffic, ...]] | None
    last_traffic = getattr(model, "last_traffic", None)
    return () if last_traffic is None else last_traffic()
