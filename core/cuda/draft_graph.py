"""DraftGraphs: makes the drafts of several SSMs in one DraftPass if they can share it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from core.cuda.draft_pass import DraftPass, DraftTensors
from core.cuda.draft_requests import (
    DraftRequests,
    DraftRow,
    expands,
    host_draft,
    write_inputs,
)
from core.cuda.kv_view import KvView, ModelGroup, padded_extent
from core.cuda.staging import (
    DeviceToHost,
    HostToDevice,
    IntArray,
    as_reals,
    pack,
)
from core.drafters.base import DraftRequest, Drafts
from core.drafters.ssm import NO_TOKEN, SsmDrafter
from core.drafters.ssm_state import PendingTrie
from core.errors import MODEL_FAULTS
from core.events.parts import Timed
from core.models.graph_cache import MAX_GRAPHS, CachedGraph, GraphPool
from core.trees.draft import Draft

__all__ = ["DraftGraphs", "draft_pass_of", "draft_spans"]


class DraftGraphs:
    """Passes run as CUDA graphs with `capture`, else eagerly. `vocab_size` is the LLM's."""

    def __init__(self, ssms: Mapping[str, SsmDrafter], vocab_size: int, *, capture: bool) -> None:
        self._ssms = ssms
        self._vocab_size = vocab_size
        self._capture = capture
        self._groups: dict[frozenset[str], _GroupGraphs] = {}

    def draft(self, by_ssm: Mapping[str, Sequence[DraftRequest]]) -> dict[str, Drafts]:
        """Each SSM's drafts, or its error. SSMs whose requests no DraftPass supports are left
        out."""
        drafts = self._in_one_pass(by_ssm) if by_ssm else {}
        if drafts or len(by_ssm) < 2:
            return drafts
        for name, requests in by_ssm.items():
            drafts |= self._in_one_pass({name: requests})
        return drafts

    def _in_one_pass(self, by_ssm: Mapping[str, Sequence[DraftRequest]]) -> dict[str, Drafts]:
        requests = DraftRequests.of(self._ssms, by_ssm, self._vocab_size)
        if requests is None or not requests.is_supported:
            return {}
        graphs = self._groups.get(names := frozenset(by_ssm))
        # Since the graphs were made, models may have been stacked, or their arena replaced.
        if graphs is None or graphs.group != requests.group:
            pool = GraphPool(capture=self._capture)
            graphs = self._groups[names] = _GroupGraphs(requests.group, pool)
        try:
            drafts = graphs.draft(requests)
        except MODEL_FAULTS as error:
            # An error does not tell which SSM of the pass has failed: it counts for all of them.
            return dict.fromkeys(by_ssm, error)
        by_name: dict[str, list[Draft]] = {name: [] for name in by_ssm}
        for row, draft in zip(requests.rows, drafts, strict=True):
            by_name[row.name].append(draft)
        return {**by_name}


class _GroupGraphs:
    def __init__(self, group: ModelGroup, pool: GraphPool) -> None:
        self.group = group
        self._pool = pool
        self._graphs: dict[tuple[object, ...], _DraftGraph] = {}
        self._arena_size = (0, 0)

    @torch.inference_mode()
    def draft(self, requests: DraftRequests) -> list[Draft]:
        """One draft for each row of `requests`. In the SSMs' KV caches, commits the text and leaves
        the drafts pending."""
        extent = padded_extent(requests.num_slots)
        arena_size = self.group.reserve(extent)
        key = (
            requests.arena_rows,
            requests.width,
            extent,
            requests.layout.shape,
            requests.choice,
        )
        full = len(self._graphs) >= MAX_GRAPHS and key not in self._graphs
        if self._arena_size != arena_size or full:  # a grown arena has moved
            self._graphs.clear()
            self._arena_size = arena_size
        if key not in self._graphs:
            self._graphs[key] = _DraftGraph(draft_pass_of(requests, extent), self._pool)
        return self._graphs[key].draft(requests)


def draft_pass_of(
    requests: DraftRequests, extent: int, inputs: HostToDevice | None = None
) -> DraftPass:
    """The pass for `requests`. `inputs`: a buffer to share."""
    group, layout, device = requests.group, requests.layout, requests.group.forward.device
    return DraftPass(
        KvView.of(group.forward, group.arena, requests.arena_rows, extent, group.num_embeddings),
        layout,
        layout.tensors(device),
        requests.choice,
        inputs or HostToDevice(requests.input_shapes, device),
    )


class _DraftGraph:
    def __init__(self, draft_pass: DraftPass, pool: GraphPool) -> None:
        self._pass = draft_pass
        self._graph = CachedGraph(self._run, pool)
        self._results = DeviceToHost(draft_pass.view.forward.device)

    def _run(self) -> tuple[DraftTensors, torch.Tensor]:
        tensors = self._pass()
        return tensors, pack((tensors.tokens, tensors.scores))

    def draft(self, requests: DraftRequests) -> list[Draft]:
        start = time.perf_counter()
        inputs = self._pass.inputs
        inputs.wait()
        write_inputs(inputs, requests.rows, coupled=requests.choice.coupled)
        inputs.send()
        tensors, packed = self._graph()
        if self._graph.is_captured:  # the next replay overwrites the tensors
            tensors = replace(
                tensors, logits=tensors.logits.clone(), utilities=tensors.utilities.clone()
            )
        shape = (len(requests.rows), len(requests.layout))
        outputs = self._results.read(packed, {"tokens": shape, "scores": shape})
        tokens, scores = outputs["tokens"], as_reals(outputs["scores"])
        span = (start, time.perf_counter())
        drafts = []
        for i, row in enumerate(requests.rows):
            draft = host_draft(requests.layout, tokens[i], scores[i], row.request)
            utilities = tensors.utilities[i] if requests.choice.coupled else None
            timings = draft_spans(requests, row, draft, span)
            logits = tensors.logits[i]
            drafts.append(replace(draft, logits=logits, utilities=utilities, timings=timings))
            _leave_pending(requests, row, tokens[i], logits)
        return drafts


def draft_spans(
    requests: DraftRequests, row: DraftRow, draft: Draft, span: tuple[float, float]
) -> tuple[Timed, Timed]:
    """The spans of catching up and drafting in one SSM's share of a DraftPass. `span`: the start
    and end of the DraftPass (s, time.perf_counter)."""
    start, end = span
    # Not measured: all passes of the model count as equally long, and the first catches up.
    middle = start + (end - start) / draft.passes
    share = 1 / len(requests.group.members)
    catching_up = Timed(row.name, "catch_up", start, middle, share)
    return catching_up, Timed(row.name, "draft", middle, end, share)


def _leave_pending(
    requests: DraftRequests, row: DraftRow, tokens: IntArray, logits: torch.Tensor
) -> None:
    """Updates the SSM's row after the pass: the text is read, the fed nodes are pending."""
    layout = requests.layout
    parents = layout.parents[: layout.num_fed]
    # Nodes without drafted children are pending under NO_TOKEN, which no commit looks up.
    pending_ids = [
        int(token) if expands(layout, tokens, node, row.request) else NO_TOKEN
        for node, token in enumerate(tokens[: layout.num_fed])
    ]
    row.model.note(row.state.row, len(row.unread), parents)
    row.state.pending = PendingTrie(logits[0])
    row.state.pending.add(pending_ids, parents, logits[1:])
