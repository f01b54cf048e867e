"""LanguageModel: the interface through which the engine and the drafters use a model.

A model has rows of its KV cache, one per active request. A row holds committed tokens (slot =
position) and, after them, pending nodes: a tree of tokens that were fed but not committed.
`forward` adds pending nodes; `commit` commits one path of pending nodes and drops all others that
the caller does not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.events import ModelInfo, RanksInfo, RankTraffic

__all__ = ["CACHED", "Feed", "LanguageModel", "chain", "rank_traffic", "ranks_info"]


CACHED = -1
"""The parent of nodes that follow the last token in the row's cache."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to add to one row's pending nodes.

    `parents[i]` is CACHED or the index of a pending node of the row; the feed's own nodes are
    numbered after the nodes already pending. (CACHED is not a token tree's ROOT: a round feeds the
    root as a node, with parent CACHED.) With `last_only` only the logits of the last token are
    returned.
    """

    row: int
    token_ids: Sequence[int]
    parents: Sequence[int]
    # For prompts: the logits of all their tokens, (tokens, V), would not be read.
    last_only: bool = False


def chain(row: int, token_ids: Sequence[int], first: int = 0, *, last_only: bool = False) -> Feed:
    """A feed of consecutive tokens; `first`: the number of nodes already pending."""
    # The first token's parent is the last token in the cache, or the last pending node.
    parents = [CACHED if i == 0 and first == 0 else first + i - 1 for i in range(len(token_ids))]
    return Feed(row, token_ids, parents, last_only)


class LanguageModel(Protocol):
    """A causal language model with rows of cached context."""

    @property
    def info(self) -> ModelInfo:
        """Name, architecture and sizes, as events report them."""
        ...

    @property
    def vocab_size(self) -> int:
        """Size of the logits."""
        ...

    @property
    def num_embeddings(self) -> int:
        """Number of token ids that may be fed: more than `vocab_size` with a narrow head."""
        ...

    @property
    def context_length(self) -> int:
        """Limit on the tokens of a row, including the longest path of pending nodes."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of the logits."""
        ...

    @property
    def slots(self) -> int:
        """KV slots allocated per row; `forward` allocates more as needed. Pending nodes take slots
        beyond the committed tokens, so a slot is not a position."""
        ...

    def open_row(self) -> int:
        """Opens an empty row and returns its number."""
        ...

    def close_row(self, row: int) -> None:
        """Frees the row; its context is dropped."""
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
        After any other error, such as OutOfMemoryError, the tokens may be pending already.
        """
        ...

    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        """Commits the KV of the pending `nodes` (indices of one path from CACHED down) and drops
        every other pending node except `keep`. In the LLM's row the first of `nodes` is the token
        tree's root: the last committed token, whose KV was not in the cache before.

        `keep`: descendants of the last of `nodes` (ascending indices, closed under parents) that
        stay pending, renumbered from 0 in their order. Raises EngineError for an index that is not
        pending.
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
