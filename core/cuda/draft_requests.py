"""DraftRequests: the requests that one DraftPass serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.cuda.draft_pass import (
    MAX_END_TOKENS,
    ChildChoice,
    draft_input_shapes,
    padded_ends,
)
from core.cuda.kv_view import ModelGroup, TreeLayout, model_group_of
from core.cuda.staging import HostToDevice, IntArray
from core.drafters.base import DraftRequest
from core.drafters.drafter_weights import needs_likelihoods
from core.drafters.native_inputs import COMPILED_KINDS
from core.drafters.ssm import NO_TOKEN, SsmDrafter
from core.drafters.ssm_state import SsmState
from core.models.graphed import WIDTHS
from core.models.hf_model import HfModel
from core.trees.draft import Draft
from core.trees.noise import SeededNoise, bases_of
from core.trees.tree import ROOT

__all__ = ["DraftRequests", "DraftRow", "expands", "host_draft", "present_nodes", "write_inputs"]

MAX_SSM_NODES = 64


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One row of a DraftPass: an SSM's model, draft request, and state for the sequence."""

    name: str
    model: HfModel
    request: DraftRequest
    state: SsmState

    @property
    def num_read(self) -> int:
        """The number of the text's tokens that the model has read."""
        return self.model.length(self.state.row)

    @property
    def unread(self) -> list[int]:
        """Tokens of the text that the model has not read yet."""
        return self.request.sequence.tokens[self.num_read :]


@dataclass(frozen=True)
class DraftRequests:
    """`rows`: for each sequence one row per SSM. The rows of one sequence are adjacent, in the
    order of `group.members`. `vocab_size` is the LLM's."""

    group: ModelGroup
    rows: tuple[DraftRow, ...]
    vocab_size: int

    @classmethod
    def of(
        cls,
        ssms: Mapping[str, SsmDrafter],
        by_ssm: Mapping[str, Sequence[DraftRequest]],
        vocab_size: int,
    ) -> DraftRequests | None:
        """Collects the SSMs' requests. None if the SSMs do not run in a single pass, or draft for
        different sequences."""
        group = model_group_of([ssms[name].model for name in by_ssm])
        sequences = {
            tuple(each.sequence.run_id for each in requests) for requests in by_ssm.values()
        }
        if group is None or len(sequences) != 1:
            return None
        names = {id(ssms[name].model): name for name in by_ssm}
        order = [(names[id(member)], member) for member in group.members]
        fitted = {
            n: [ssms[n].fit_context(each) for each in requests] for n, requests in by_ssm.items()
        }
        rows = tuple(
            DraftRow(name, model, fitted[name][i], ssms[name].state(fitted[name][i]))
            for i in range(len(sequences.pop()))
            for name, model in order
        )
        return cls(group, rows, vocab_size)

    @cached_property
    def layout(self) -> TreeLayout:
        """The layout of the deepest draft."""
        return TreeLayout(max((row.request.shape for row in self.rows), key=len))

    @cached_property
    def width(self) -> int:
        """The number of tokens per row that the pass reads, padding included. At least as many as a
        round can commit."""
        needed = max(len(self.layout.shape) + 1, *(len(row.unread) for row in self.rows))
        # Few widths: few graphs then serve all rounds.
        return next(width for width in WIDTHS if width >= needed)

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """See `draft_input_shapes`."""
        return draft_input_shapes(len(self.rows), self.width, len(self.layout.shape))

    @property
    def arena_rows(self) -> tuple[int, ...]:
        """Each row's index in the group's KV arena."""
        return tuple(row.model.place(row.state.row) for row in self.rows)

    @property
    def num_slots(self) -> int:
        """The largest number of KV slots that the pass uses in a row."""
        return max(len(row.request.sequence.tokens) for row in self.rows) + self.layout.num_fed

    @cached_property
    def choice(self) -> ChildChoice:
        """The first row's choice; `is_supported` checks that all rows agree."""
        return _choice_of(self.rows[0].request, self.vocab_size)

    @property
    def is_supported(self) -> bool:
        """Whether a DraftPass can make these drafts."""
        shape = self.layout.shape
        return (
            0 < len(self.layout) <= MAX_SSM_NODES
            and len(shape) < WIDTHS[-1]
            and max(shape) <= self.group.vocab_size
            and all(_is_row_supported(row) for row in self.rows)
            and all(row.request.shape == shape[: len(row.request.shape)] for row in self.rows)
            and len({_choice_of(row.request, self.vocab_size) for row in self.rows}) == 1
        )


def _is_row_supported(row: DraftRow) -> bool:
    request, state = row.request, row.state
    sequence = request.sequence
    return (
        request.kind in COMPILED_KINDS
        and bool(request.shape)
        and request.stop is None
        and request.beyond == 0
        and isinstance(sequence.noise, SeededNoise)
        and not sequence.sampling.penalizes
        and len(sequence.eos_ids) <= MAX_END_TOKENS
        and not needs_likelihoods(sequence.speculation)
        and state.pending.root is None
        and state.ready is None
        and row.model.pending(state.row) == 0
        and 0 < len(row.unread) <= WIDTHS[-1]
    )


def _choice_of(request: DraftRequest, vocab_size: int) -> ChildChoice:
    return ChildChoice(
        request.kind == "coupled", request.sequence.sampling.distribution, vocab_size
    )


def write_inputs(inputs: HostToDevice, rows: Sequence[DraftRow], *, coupled: bool) -> None:
    """Writes the inputs of a DraftPass; see `draft_input_shapes`."""
    host = inputs.host
    # Padding may be any token of the model.
    host["tokens"][:] = 0
    for i, row in enumerate(rows):
        unread = row.unread
        host["tokens"][i, : len(unread)] = unread
        host["first"][i], host["count"][i] = row.num_read, len(unread)
        host["depth"][i] = len(row.request.shape)
        host["ends"][i] = padded_ends(row.request.sequence.eos_ids)
        temperature = np.float64(row.state.calibration.temperature)
        host["temperature"][i] = temperature.view(np.int64)
    if coupled:
        by_run: dict[str, list[int]] = {}
        positions = host["bases"].shape[1]
        for i, row in enumerate(rows):
            sequence, first = row.request.sequence, row.request.root_position + 1
            if sequence.run_id not in by_run:
                by_run[sequence.run_id] = bases_of(sequence.noise, first, positions)
            host["bases"][i] = by_run[sequence.run_id]


def host_draft(
    layout: TreeLayout, tokens: IntArray, scores: IntArray, request: DraftRequest
) -> Draft:
    """A Draft without logits. `tokens` and `scores`: (n,), of the layout's nodes."""
    present = present_nodes(tokens)
    number = {ROOT: ROOT} | {node: i for i, node in enumerate(present)}
    parents = [node for node in present if expands(layout, tokens, node, request)]
    levels = {layout.depths[node] for node in parents}
    return Draft(
        [int(tokens[node]) for node in present],
        [number[layout.parents[node]] for node in present],
        [float(scores[node]) for node in present],
        [1.0] * len(present),
        [layout.ranks[node] for node in present],
        # Rows of `DraftTensors.logits`: the root's row, then one row for each fed node.
        {ROOT: 0} | {number[node]: node + 1 for node in parents},
        # One pass over the unread tokens, and one pass for each level whose nodes have children.
        passes=1 + len(levels),
    )


def present_nodes(tokens: IntArray) -> list[int]:
    """The nodes of the layout that a draft has, in order."""
    return [node for node, token in enumerate(tokens.tolist()) if token != NO_TOKEN]


def expands(layout: TreeLayout, tokens: IntArray, node: int, request: DraftRequest) -> bool:
    """Whether a node is present and children of the node were drafted."""
    if tokens[node] == NO_TOKEN:
        return False
    return (
        layout.depths[node] < len(request.shape)
        and int(tokens[node]) not in request.sequence.eos_ids
    )
