"""Native drafting: one call of the compiled kernel drafts for all SSMs of a stack and all
sequences, from the pass over unread text (catch-up) to the last level.

The drafts equal the drafts of `SsmDrafter.draft_steps`, except for ties, for tokens whose score is
close to 0, and for the scores' last digits (float32).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core.drafters.base import DraftRequest
from core.drafters.drafter_weights import needs_likelihoods
from core.drafters.native_inputs import (
    DraftSlot,
    NoiseBuffer,
    can_batch,
    pack,
    stop_limits,
    workspace_for,
)
from core.drafters.ssm import SsmDrafter
from core.drafters.ssm_state import PendingTrie
from core.errors import EXPECTED_ERRORS, EngineError
from core.events.parts import Timed
from core.models.protocol import CACHED
from core.models.stacking import batched_models_of
from core.trees.draft import Draft
from core.trees.tree import ROOT

if TYPE_CHECKING:
    from core.models.native.forward import DraftResult

__all__ = ["NativeDrafting", "native_drafts"]


class NativeDrafting:
    """Drafts with the native kernel. `ssms`: by name."""

    def __init__(self, ssms: Mapping[str, SsmDrafter]) -> None:
        self._ssms = ssms

    def draft(self, by_ssm: Mapping[str, Sequence[DraftRequest]]) -> dict[str, list[Draft]]:
        """One draft per request, by SSM. SSMs that the kernel cannot serve, or whose call raises
        one of EXPECTED_ERRORS, are left out with their states unchanged."""
        by_name: dict[str, list[Draft]] = {}
        stacks: dict[int, list[tuple[int, DraftSlot]]] = {}
        for name, requests in by_ssm.items():
            slots = _slots(self._ssms[name], requests)
            if slots is not None:
                by_name[name] = [Draft()] * len(requests)
                for number, slot in slots:
                    # SSMs with the same runner draft in one call.
                    stacks.setdefault(id(slot.models.runner), []).append((number, slot))
        for numbered in stacks.values():
            # The kernel expects drafts in the order of the stacked weights.
            numbered.sort(key=lambda one: one[1].member)
            drafts, of_stack = None, [slot for _, slot in numbered]
            if can_batch(of_stack):
                with suppress(*EXPECTED_ERRORS):
                    drafts = native_drafts(of_stack)
            if drafts is None:
                for _, slot in numbered:
                    by_name.pop(slot.ssm.name, None)
                continue
            for (number, slot), draft in zip(numbered, drafts, strict=True):
                by_name[slot.ssm.name][number] = draft
        return by_name


def _slots(ssm: SsmDrafter, requests: Sequence[DraftRequest]) -> list[tuple[int, DraftSlot]] | None:
    """(index of the request, slot) for each request worth starting; None if the kernel cannot
    serve the SSM."""
    models = batched_models_of(ssm.model)
    if models is None or not all(ssm.has_state(request.sequence) for request in requests):
        return None
    # All or nothing: an SSM's requests of one round are drafted in one way.
    fitted = [ssm.fit_context(request) for request in requests]
    if not all(_starts_from_text(ssm, request) for request in fitted):
        return None
    member = models.members.index(ssm.model)
    return [
        (i, DraftSlot(ssm, models, member, request, ssm.state(request), stop_limits(request)))
        for i, request in enumerate(fitted)
        if request.worth_starting
    ]


def _starts_from_text(ssm: SsmDrafter, request: DraftRequest) -> bool:
    """Whether the draft starts with unread committed text alone: no draft made ahead, no pending
    nodes, and no likelihoods needed."""
    state = ssm.state(request)
    # Likelihoods need the logits after every unread token. Of the text, the kernel returns logits
    # after the last token only.
    return (
        request.beyond == 0
        and state.ready is None
        and state.pending.root is None
        and ssm.model.pending(state.row) == 0
        and ssm.model.length(state.row) < len(request.sequence.tokens)
        and not needs_likelihoods(request.sequence.speculation)
    )


def native_drafts(slots: Sequence[DraftSlot]) -> list[Draft]:
    """The drafts of one stack's slots, which are in the order of the stack's members. Rows and
    states are left as after `SsmDrafter.draft_steps`. Errors are raised before any row or state has
    changed."""
    start = time.perf_counter()
    models = slots[0].models
    noise = NoiseBuffer()
    # The kernel calls `fill_level` before it chooses a level's nodes.
    outputs = models.runner.drafts(pack(slots, noise), workspace_for(slots), noise.fill_level)
    drafts = [_Draft.of(slot, i, outputs) for i, slot in enumerate(slots)]
    # Checked before any state changes: `SsmDrafter.draft_steps` can still serve the requests.
    if not all(score > 0 for one in drafts for score in one.scores) or any(
        math.isnan(plain_sum) for one in drafts for *_, plain_sum in one.moments
    ):
        raise EngineError("logits are NaN or infinite, or the score of a drafted token is 0")
    # The choice of children belongs to the pass: a pass ends when the next pass begins.
    ends = [*(begin for begin, _ in outputs.passes[1:]), time.perf_counter()]
    times = _timings_by_member(drafts, ends, start)
    # Rows and states change from here on.
    for one in drafts:
        one.write_back()
    return [one.draft(times[one.slot.member]) for one in drafts]


@dataclass(frozen=True, slots=True)
class _Draft:
    """One draft of the kernel. `fed`: the nodes that were fed, in order. `logits` and `utilities`
    (1 + fed, V), `moments` (1 + fed): after the root and each fed node, see
    core.models.native.kernel_args.DraftOutputs. `passes`: the number of passes that fed it."""

    slot: DraftSlot
    token_ids: list[int]
    parents: list[int]
    scores: list[float]
    ranks: list[int]
    fed: list[int]
    logits: torch.Tensor
    utilities: torch.Tensor | None
    moments: list[tuple[float, float, float]]
    passes: int

    @classmethod
    def of(cls, slot: DraftSlot, i: int, result: DraftResult) -> _Draft:
        arrays = result.outputs
        count, fed, passes = arrays.counts[i].tolist()
        token_ids, parents, ranks = arrays.nodes[i, :count].T.tolist()
        rows = arrays.rows[i, : fed + 1]
        contiguous = int(rows[-1]) - int(rows[0]) == fed  # then a view instead of a copy
        at = slice(int(rows[0]), int(rows[-1]) + 1) if contiguous else rows
        logits = slot.ssm.feeder.pad_logits(result.logits[at])
        utilities = None
        if slot.is_coupled:
            outputs = arrays.utilities.reshape(len(result.logits), -1)[at, : result.logits.shape[1]]
            utilities = slot.ssm.feeder.pad_logits(torch.from_numpy(outputs))
        return cls(
            slot, token_ids, parents, arrays.scores[i, :count].tolist(), ranks,
            arrays.fed[i, :fed].tolist(), logits, utilities, arrays.moments[at].tolist(), passes,
        )  # fmt: skip

    def draft(self, timings: tuple[Timed, Timed]) -> Draft:
        return Draft(
            self.token_ids, self.parents, self.scores, [1.0] * len(self.token_ids), self.ranks,
            self.rows, self.logits, self.utilities, timings=timings, passes=self.passes,
            moments=[(mean, variance) for mean, variance, _ in self.moments],
        )  # fmt: skip

    @property
    def rows(self) -> dict[int, int]:
        return {ROOT: 0} | {node: 1 + i for i, node in enumerate(self.fed)}

    def write_back(self) -> None:
        """Updates the model's row and the SSM's state."""
        # From node numbers in the draft to indices of the row's pending nodes.
        place = {ROOT: CACHED} | {node: at for at, node in enumerate(self.fed)}
        parents = [place[self.parents[node]] for node in self.fed]
        # Row 0: the logits after the last token of the text.
        pending = PendingTrie(self.logits[0])
        if self.fed:
            pending.add([self.token_ids[node] for node in self.fed], parents, self.logits[1:])
        slot, sequence = self.slot, self.slot.request.sequence
        model = slot.models.members[slot.member]
        # The kernel has written the KV; the row's bookkeeping follows.
        model.note(slot.state.row, len(sequence.tokens) - slot.num_read, parents)
        slot.state.pending = pending


def _timings_by_member(
    drafts: Sequence[_Draft], ends: Sequence[float], start: float
) -> dict[int, tuple[Timed, Timed]]:
    """The catch-up span and the drafting span of each SSM, by member index. A pass of n SSMs counts
    1/n for each SSM. `ends`: the end of each pass."""
    passes: dict[int, int] = {}
    for one in drafts:
        member = one.slot.member
        passes[member] = max(passes.get(member, 0), one.passes)
    # The number of SSMs that took part in pass i.
    sharing = [sum(count > i for count in passes.values()) for i in range(len(ends))]
    timings = {}
    for one in drafts:
        member, count = one.slot.member, passes[one.slot.member]
        drafted = sum((ends[i] - ends[i - 1]) / sharing[i] for i in range(1, count))
        # One share for all passes: the time-weighted mean of the passes' shares.
        span = ends[count - 1] - ends[0]
        share = min(1.0, drafted / span) if span > 0 else 1.0
        name = one.slot.ssm.name
        timings[member] = (
            Timed(name, "catch_up", start, ends[0], 1 / len(passes)),
            Timed(name, "draft", ends[0], ends[count - 1], share),
        )
    return timings
