"""RoundPass: the part of a round after drafting, as a function over tensors.

The SSMs' trees are verified side by side under one root, duplicates included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from core.config import SamplingParams
from core.cuda.acceptance import (
    AcceptedPaths,
    TreeBatch,
    accepted_paths,
    deepest_nodes,
    target_outputs,
)
from core.cuda.draft_pass import MAX_END_TOKENS, DraftPass, DraftTensors
from core.cuda.kv_view import KvView, LayoutTensors, TreeLayout, first_equal
from core.cuda.staging import HostToDevice, pack
from core.drafters.calibration import updated_temperatures
from core.drafters.ssm import NO_TOKEN

__all__ = ["RoundPass", "round_input_shapes"]


def round_input_shapes(rows: int, depth: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs by name, with a row for each request. `root`: the root's token;
    `length`: the root's position; `llm_ends`: end-of-text tokens; `llm_bases`: noise hashes of the
    `depth` + 1 positions after the root."""
    return {
        "root": (rows, 1),
        "length": (rows,),
        "llm_ends": (rows, MAX_END_TOKENS),
        "llm_bases": (rows, depth + 1),
    }


@dataclass(frozen=True, slots=True)
class RoundPass:
    """`layout` and `tables`: the trees of all SSMs side by side, empty if no SSM drafts.
    `uses_noise`: verification is `match`, else `greedy`."""

    view: KvView
    layout: TreeLayout
    tables: LayoutTensors
    sampling: SamplingParams
    uses_noise: bool
    inputs: HostToDevice
    draft_pass: DraftPass | None

    def result_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the packed results by name, in the order of packing."""
        rows, nodes = len(self.view.rows), len(self.layout)
        draft_rows = rows * self.layout.copies if self.draft_pass else 0
        nodes_per_ssm = len(self.draft_pass.layout) if self.draft_pass else 0
        return {
            "target_tokens": (rows, nodes + 1),
            "token_probs": (rows, nodes + 1),
            "node_probs": (rows, nodes),
            "length": (rows,),
            "tokens": (draft_rows, nodes_per_ssm),
            "scores": (draft_rows, nodes_per_ssm),
            "num_kept": (draft_rows,),
            "temperature": (draft_rows,),
        }

    def verify_and_commit(self, draft: DraftTensors | None) -> torch.Tensor:
        """Verifies the drafts (None: plain decoding) and commits in all KV caches. Returns the
        packed results, see `result_shapes`."""
        inputs, tables = self.inputs.device, self.tables
        rows = len(self.view.rows)
        # (rows, n): the drafts of a request's SSMs are adjacent rows.
        tokens = inputs["root"][:, :0] if draft is None else draft.tokens.view(rows, -1)
        # Absent nodes are fed as token 0. No present node attends to an absent node.
        fed = torch.cat((inputs["root"], tokens.clamp(min=0)), 1)
        slots = range(len(self.layout) + 1)
        # `node_logits` counts depths from the token before the root, and `tables` from the root.
        depths = tables.depths + 1
        logits = self.view.node_logits(fed, depths, slots, inputs["length"], tables.ancestors)
        # Logits of equal nodes differ by rounding: the first node's logits decide.
        parents = first_equal(tokens, tables)[:, tables.parents]
        trees = TreeBatch(tokens, parents, tables.depths.expand(rows, -1))
        bases = inputs["llm_bases"] if self.uses_noise else None
        outputs = target_outputs(logits, trees, self.sampling, bases)
        paths = accepted_paths(outputs, trees, tables.ancestors[None], inputs["llm_ends"])
        # The 0 in front: the root stays in its slot. Past the path's end, `lineage` repeats a node:
        # the copies lie beyond the committed length.
        path = torch.nn.functional.pad(1 + tables.lineage[paths.last], (1, 0))
        self.view.move(inputs["length"], path)
        parts = (outputs.tokens, outputs.token_probs, outputs.node_probs, paths.length)
        if draft is None or self.draft_pass is None:
            return pack(parts)
        own_tokens = outputs.tokens.gather(1, paths.last[:, None])
        committed = self._committed_tokens(tokens, paths, own_tokens)
        ssm_results = self._commit_ssms(self.draft_pass, draft, committed)
        return pack((*parts, draft.tokens, draft.scores, *ssm_results))

    def _committed_tokens(
        self, tokens: torch.Tensor, paths: AcceptedPaths, own_tokens: torch.Tensor
    ) -> torch.Tensor:
        """The accepted tokens and, unless they end the text, the LLM's own token. Returns (rows,
        depth + 1), padded with NO_TOKEN."""
        path = torch.nn.functional.pad(
            tokens.gather(1, self.tables.lineage[paths.last]), (0, 1), value=NO_TOKEN
        )
        steps, length = torch.arange(path.shape[1], device=path.device), paths.length[:, None]
        # If no token is accepted, any value, which `length > 0` masks.
        last = path.gather(1, (length - 1).clamp(min=0))
        ends = self.inputs.device["llm_ends"]
        ended = (length > 0) & (last == ends).any(-1, keepdim=True)
        after = own_tokens.expand(-1, len(steps)).masked_fill((steps != length) | ended, NO_TOKEN)
        return torch.where(steps < length, path, after)

    def _commit_ssms(
        self, draft_pass: DraftPass, draft: DraftTensors, committed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Commits in the SSMs' KV caches. Returns two tensors (draft_rows,): how many fed nodes
        each SSM keeps, and the calibration temperatures after the round."""
        tables, depth = draft_pass.tables, len(draft_pass.layout.shape)
        copies = self.layout.copies
        # From (rows, depth + 1) to (draft_rows, depth + 1).
        committed = committed[:, None].expand(-1, copies, -1).flatten(0, 1)
        depths = tables.depths[1:]
        # Whichever SSM drafted the accepted path: a node of depth d matches if its token is the
        # d-th committed token.
        matches = (draft.tokens == committed[:, depths - 1]) & (draft.tokens >= 0)
        matched = deepest_nodes(matches, tables.depths[None], tables.ancestors[None])
        path = tables.lineage[matched.last]
        limit = self.inputs.device["depth"]
        # A draft's deepest level does not count as fed.
        num_kept = torch.minimum(matched.length, limit - 1)
        steps = torch.arange(depth, device=path.device)
        draft_pass.view.move(draft.start, path[:, : depth - 1])
        # Row 0 of the utilities is the root's, row i + 1 is node i's.
        utility_rows = torch.nn.functional.pad(path[:, : depth - 1] + 1, (1, 0))
        is_reached = (steps <= matched.length[:, None]) & (steps < limit[:, None])
        draft_rows = torch.arange(len(utility_rows), device=path.device)[:, None]
        utilities = draft.utilities[draft_rows, utility_rows]
        following = committed[:, :depth].masked_fill(~is_reached, NO_TOKEN)
        return num_kept, updated_temperatures(
            utilities, following, self.inputs.reals("temperature")
        )
