"""KvView: rows of a ModelGroup's KV cache. TreeLayout: a tree of fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from core.models.forward import KeysValues, TensorForward
from core.models.graphed import EXTENT
from core.models.hf_model import HfModel
from core.models.kv_cache import KVArena
from core.models.protocol import LanguageModel
from core.models.stacking import common_stack
from core.trees.tree import ROOT, depths_of

__all__ = [
    "KvView",
    "LayoutTensors",
    "ModelGroup",
    "TreeLayout",
    "first_equal",
    "model_group_of",
    "padded_extent",
]


def padded_extent(slots: int) -> int:
    """`slots` + 1, rounded up to a multiple of EXTENT: few graphs then serve all lengths. The
    additional slot is for padding."""
    return -(-(slots + 1) // EXTENT) * EXTENT


@dataclass(frozen=True, slots=True)
class KvView:
    """`rows` of an arena and the first `extent` slots of each row. `row_index` (rows, 1): `rows` on
    the arena's device."""

    forward: TensorForward
    arena: KVArena
    rows: tuple[int, ...]
    row_index: torch.Tensor
    extent: int
    num_embeddings: int

    @classmethod
    def of(
        cls,
        forward: TensorForward,
        arena: KVArena,
        rows: tuple[int, ...],
        extent: int,
        num_embeddings: int,
    ) -> KvView:
        """Copies the rows' indices to the device before a pass is captured."""
        row_index = torch.tensor(rows, device=forward.device)[:, None]
        return cls(forward, arena, rows, row_index, extent, num_embeddings)

    def logits(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        visible: torch.Tensor,
    ) -> torch.Tensor:
        """float32 logits (rows, width, V) of a pass over `tokens`. `tokens`, `positions` and
        `slots` are (rows, width). `visible` (rows, width, extent): the slots that each token
        attends to. Ids without an embedding are replaced by the last id with an embedding."""
        forward, extent = self.forward, self.extent
        mask = torch.zeros(visible.shape, dtype=forward.dtype, device=forward.device)
        mask = mask.masked_fill_(~visible, torch.finfo(forward.dtype).min)[:, None]

        def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> KeysValues:
            return self.arena.write_at(layer, self.rows, (self.row_index, slots), extent, (k, v))

        ids = tokens.clamp(max=self.num_embeddings - 1)
        return forward.over(ids, positions, (mask, mask), write).float()

    def text_logits(
        self, tokens: torch.Tensor, first: torch.Tensor, count: torch.Tensor
    ) -> torch.Tensor:
        """Logits (rows, 1, V) after the text. `first` (rows,): how many tokens of the text the
        model has read. `tokens` (rows, width): the text's other tokens, then padding. `count`
        (rows,): the number of these other tokens."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        last = (count - 1)[:, None]
        positions = first[:, None] + torch.minimum(steps, last)
        slots = (first[:, None] + steps).masked_fill(steps > last, self.extent - 1)
        # The causal mask: in committed text slot = position.
        visible = self._slots <= positions[..., None]
        logits = self.logits(tokens, positions, slots, visible)
        return logits.gather(1, last[..., None].expand(-1, -1, logits.shape[2]))

    def node_logits(
        self,
        tokens: torch.Tensor,
        depths: torch.Tensor,
        places: range,
        first: torch.Tensor,
        ancestors: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (rows, width, V) of tree nodes. `tokens` (rows, width): the nodes' tokens. Keys
        and values are stored at offsets `places` from slot `first` (rows,). `depths` (width,)
        count from the token before slot `first`. `ancestors` (width, n): which of the first n
        offsets each node attends to. Each node also attends to all slots before `first`, which are
        committed."""
        offsets = torch.arange(places.start, places.stop, device=tokens.device)
        positions = first[:, None] - 1 + depths
        # (rows, extent): negative for committed slots.
        offset = self._slots - first[:, None]
        size = ancestors.shape[1]
        # (rows, width, extent). The clamped entries are masked by `is_node`.
        is_ancestor = ancestors[:, offset.clamp(0, size - 1)].transpose(0, 1)
        is_node = ((offset >= 0) & (offset < size))[:, None]
        visible = (offset < 0)[:, None] | (is_node & is_ancestor)
        return self.logits(tokens, positions, first[:, None] + offsets, visible)

    def move(self, first: torch.Tensor, places: torch.Tensor) -> None:
        """Copies the slots `first` (rows,) + `places` (rows, n) to the slots from `first` on."""
        steps = torch.arange(places.shape[1], device=places.device)
        self.arena.move_at(self.row_index, first[:, None] + places, first[:, None] + steps)

    @property
    def _slots(self) -> torch.Tensor:
        return torch.arange(self.extent, device=self.row_index.device)


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """`members` have one vocabulary size, and are in the order of their rows in the `arena`."""

    members: tuple[HfModel, ...]
    forward: TensorForward
    arena: KVArena

    @property
    def vocab_size(self) -> int:
        return self.members[0].vocab_size

    @property
    def num_embeddings(self) -> int:
        return self.members[0].num_embeddings

    def reserve(self, extent: int) -> tuple[int, int]:
        """Grows the arena to at least `extent` slots a row. Returns the arena's numbers of rows and
        slots. If a number changes, the arena's tensors have moved."""
        self.arena.reserve(max(member.rows_held for member in self.members), extent)
        # If the rotary tables grew later, captured graphs would read the old tables.
        self.forward.reach(self.arena.slots)
        return self.arena.rows, self.arena.slots


def model_group_of(models: Sequence[LanguageModel]) -> ModelGroup | None:
    """The group of these models, given in any order. None if no TensorForward runs all of them."""
    stack = common_stack(models)
    if stack is not None:
        if stack.tensors is None:
            return None
        return ModelGroup(stack.members, stack.tensors, stack.arena)
    one = models[0] if len(models) == 1 else None
    if not isinstance(one, HfModel) or one.tensors is None:
        return None
    return ModelGroup((one,), one.tensors, one.arena)


TOKEN_ID_LIMIT = 1 << 32


@dataclass(frozen=True)
class TreeLayout:
    """`copies` trees of `shape` <k1,...,km>, side by side under one root.

    Nodes of a copy are numbered level by level, siblings together in the order of their parents.
    """

    shape: tuple[int, ...]
    copies: int = 1

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def levels(self) -> tuple[range, ...]:
        """The nodes of one copy, one range for each depth from 1 on."""
        ranges, width, start = [], 1, 0
        for children in self.shape:
            width *= children
            ranges.append(range(start, start + width))
            start += width
        return tuple(ranges)

    @cached_property
    def num_fed(self) -> int:
        """How many nodes of one copy an SSM is fed: all nodes but the last level's."""
        return self.levels[-1].start if self.levels else 0

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Each node's parent: a node, or ROOT."""
        nodes: list[int] = []
        previous = range(ROOT, ROOT + 1)
        for children, level in zip(self.shape, self.levels, strict=True):
            nodes += [previous[place // children] for place in range(len(level))]
            previous = level
        copy_size = len(nodes)
        return tuple(
            parent if parent == ROOT else copy * copy_size + parent
            for copy in range(self.copies)
            for parent in nodes
        )

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Each node's rank among its siblings of the same copy."""
        ranks = [
            place % children
            for children, level in zip(self.shape, self.levels, strict=True)
            for place in range(len(level))
        ]
        return tuple(ranks * self.copies)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        return depths_of(self.parents)

    def tensors(self, device: torch.device) -> LayoutTensors:
        """The layout's tables on the device."""
        size, depth = len(self), len(self.shape)
        ancestors = torch.zeros((size + 1, size + 1), dtype=torch.bool)
        lineage = torch.zeros((size + 1, depth), dtype=torch.long)
        ancestors[0, 0] = True
        for node, parent in enumerate(self.parents):
            ancestors[node + 1] = ancestors[parent + 1]
            lineage[node + 1] = lineage[parent + 1]
            ancestors[node + 1, node + 1] = True
            # Past the node's depth too: every row of `lineage` is full.
            lineage[node + 1, self.depths[node] - 1 :] = node
        return LayoutTensors(
            torch.tensor(self.parents, dtype=torch.long).add(1).to(device),
            torch.tensor((0, *self.depths), dtype=torch.long).to(device),
            ancestors.to(device),
            lineage.to(device),
            tuple(
                torch.tensor([i for i in range(size) if self.depths[i] == d + 1], device=device)
                for d in range(depth)
            ),
        )


@dataclass(frozen=True, slots=True)
class LayoutTensors:
    """Tables of n nodes. Row 0 is the root, row i + 1 is node i. `parents` (n,): the row of each
    node's parent. `depths` (1 + n,). `ancestors` (1 + n, 1 + n): True at each row's ancestors and
    at the row itself. `lineage` (1 + n, depth): the nodes on the path from the root to a row's
    node, then the row's node repeated; 0 in the root's row. `levels`: the nodes of each depth from
    1 on."""

    parents: torch.Tensor
    depths: torch.Tensor
    ancestors: torch.Tensor
    lineage: torch.Tensor
    levels: tuple[torch.Tensor, ...]


def first_equal(tokens: torch.Tensor, tables: LayoutTensors) -> torch.Tensor:
    """For the root and each node, the first node whose path from the root has the same tokens.
    Returns (rows, 1 + n), in which 0 is the root and i + 1 is node i. `tokens`: (rows, n)."""
    rows, size = tokens.shape
    first = torch.arange(size + 1, device=tokens.device).repeat(rows, 1)
    for nodes in tables.levels:
        merged_parents = first[:, tables.parents[nodes]]
        # One number for (merged parent, token); + 1 since an absent node's token is -1.
        key = merged_parents * TOKEN_ID_LIMIT + tokens[:, nodes] + 1
        same = key[:, :, None] == key[:, None]
        # Descending: the arg max is the first of equal nodes.
        order = torch.arange(len(nodes), 0, -1, device=tokens.device)
        first[:, nodes + 1] = nodes[(same * order).argmax(-1)] + 1
    return first
