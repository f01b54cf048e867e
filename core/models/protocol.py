"""LanguageModel: what the engine and the drafters need of a model, in token ids and plain values.

A model keeps rows, one per active request. A row holds committed tokens (slot = position) and,
after them, pending nodes: a tree of tokens that were fed but not committed. `forward` adds pending
nodes, `commit` keeps one path of them and forgets the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.events import ModelInfo, RanksInfo, RankTraffic
from core.trees.tree import ROOT

__all__ = ["Feed", "LanguageModel", "chain", "rank_traffic", "ranks_info"]


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to add to one row's pending nodes.

    `parents[i]` is an index among the row's pending nodes, counting those of this feed after the
    ones already there; ROOT (-1) hangs a node under the last token in the row's KV cache. With
    `last_only` the logits of the last token alone are returned.
    """

    row: int
    token_ids: Sequence[int]
    parents: Sequence[int]
    last_only: bool = False


def chain(row: int, token_ids: Sequence[int], first: int = 0, *, last_only: bool = False) -> Feed:
    """A feed whose tokens follow one another; `first` is the number of nodes already pending."""
    # The first token hangs under the last committed one, or under the last pending node.
    parents = [ROOT if i == 0 and first == 0 else first + i - 1 for i in range(len(token_ids))]
    return Feed(row, token_ids, parents, last_only)


class LanguageModel(Protocol):
    """A causal language model with rows of cached context."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def vocab_size(self) -> int:
        """Token ids that logits are over."""
        ...

    @property
    def num_embeddings(self) -> int:
        """Token ids that may be fed: more than `vocab_size` where the head is narrow."""
        ...

    @property
    def context_length(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """Device of the logits."""
        ...

    @property
    def slots(self) -> int:
        """KV slots of a row now; `forward` makes more, up to the context length."""
        ...

    def open_row(self) -> int:
        """Opens an empty row and returns its number."""
        ...

    def close_row(self, row: int) -> None:
        """Frees the row; its context is dropped."""
        ...

    def length(self, row: int) -> int:
        """Committed tokens of the row."""
        ...

    def pending(self, row: int) -> int:
        """Number of pending nodes of the row."""
        ...

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        """One pass over feeds of different rows; float32 logits (tokens, V) for each feed.

        The tokens become pending nodes. Raises ContextLengthError past the context length.
        """
        ...

    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        """Keeps the KV of the pending `nodes` (indices of one path that starts under ROOT) and
        drops every other pending node but `keep`. In the LLM's row the first of them is the token
        tree's root: the last committed token, which had no KV yet.

        `keep` (rising indices, closed under parents) hangs below the last of `nodes`; these stay
        pending, numbered anew from 0 in their order.
        """
        ...


def ranks_info(model: object) -> RanksInfo | None:
    """How a model over ranks is divided; None of any other."""
    found: RanksInfo | None = getattr(model, "ranks", None)
    return found


def rank_traffic(model: object) -> tuple[RankTraffic, ...]:
    """What the ranks of a model exchanged in its last pass; nothing where it is in one process."""
    last: Callable[[], tuple[RankTraffic, ...]] | None = getattr(model, "last_traffic", None)
    return () if last is None else last()
