"""RoundPass: one round over tensors alone, drafting, the LLM's pass, acceptance, commit and what
the SSMs learn, told in one copy.

The SSMs' trees lie side by side under one root, and nothing is taken out of them: which nodes are
the same is worked out beside the pass, and the host makes the round's real tree of what it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from core.config import SamplingParams
from core.device.acceptance import Accepted, Trees, accepted, deepest, judge
from core.device.drafting import ENDS, NO_TOKEN, Drafted, Drafting
from core.device.ground import Ground
from core.device.layout import Layout, Tables
from core.device.merging import first_alike
from core.device.slips import Slip, flat
from core.drafters.calibration import observed

__all__ = ["RoundPass", "round_shapes"]


def round_shapes(rows: int, depth: int) -> dict[str, tuple[int, ...]]:
    """What the LLM's part is told of each request: the root, behind how many tokens, what ends the
    text, and what the noise behind the root and below hashes."""
    return {
        "root": (rows, 1),
        "length": (rows,),
        "llm_ends": (rows, ENDS),
        "llm_bases": (rows, depth + 1),
    }


@dataclass(frozen=True, slots=True)
class RoundPass:
    """`layout` and `tables`: the trees of all SSMs side by side, of none where nobody drafts.
    `noisy`: `match`, else `greedy`."""

    ground: Ground
    layout: Layout
    tables: Tables
    sampling: SamplingParams
    noisy: bool
    slip: Slip
    drafting: Drafting | None

    def told_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """What `verify` tells the host, in its order."""
        rows, nodes = len(self.ground.rows), len(self.layout)
        seats = rows * self.layout.copies if self.drafting else 0
        each = len(self.drafting.layout) if self.drafting else 0
        return {
            "own": (rows, nodes + 1),
            "own_shown": (rows, nodes + 1),
            "shown": (rows, nodes),
            "length": (rows,),
            "tokens": (seats, each),
            "scores": (seats, each),
            "kept": (seats,),
            "temperature": (seats,),
        }

    def verify(self, drafted: Drafted | None) -> torch.Tensor:
        """Everything behind the drafts; see `told_shapes`, made `flat`."""
        here, tables = self.slip.here, self.tables
        rows = len(self.ground.rows)
        tokens = here["root"][:, :0] if drafted is None else drafted.tokens.view(rows, -1)
        fed = torch.cat((here["root"], tokens.clamp(min=0)), 1)
        places = range(len(self.layout) + 1)
        logits = self.ground.nodes(fed, tables.depths + 1, places, here["length"], tables.sees)
        alike = first_alike(tokens, tables)
        parents = alike[:, tables.parents]
        trees = Trees(tokens, parents, tables.depths.expand(rows, -1))
        bases = here["llm_bases"] if self.noisy else None
        judged = judge(logits, trees, self.sampling, bases)
        found = accepted(judged, trees, tables.sees[None], here["llm_ends"])
        # Of the LLM's row what is of the root and of the path moves together; what is copied behind
        # them is forgotten.
        path = torch.nn.functional.pad(1 + tables.lineage[found.last], (1, 0))
        self.ground.move(here["length"], path)
        parts = (judged.own, judged.own_shown, judged.shown, found.length)
        if drafted is None or self.drafting is None:
            return flat(parts)
        own = judged.own.gather(1, found.last[:, None])
        committed = self._committed(tokens, found, own)
        learnt = self._learnt(self.drafting, drafted, committed)
        return flat((*parts, drafted.tokens, drafted.scores, *learnt))

    def _committed(self, tokens: torch.Tensor, found: Accepted, own: torch.Tensor) -> torch.Tensor:
        """The accepted tokens and, where they do not end the text, the LLM's own behind them:
        (rows, depth + 1), NO_TOKEN where there is none."""
        path = torch.nn.functional.pad(
            tokens.gather(1, self.tables.lineage[found.last]), (0, 1), value=NO_TOKEN
        )
        steps, length = torch.arange(path.shape[1], device=path.device), found.length[:, None]
        last = path.gather(1, (length - 1).clamp(min=0))
        ended = (length > 0) & (last == self.slip.here["llm_ends"]).any(-1, keepdim=True)
        behind = own.expand(-1, len(steps)).masked_fill((steps != length) | ended, NO_TOKEN)
        return torch.where(steps < length, path, behind)

    def _learnt(
        self, drafting: Drafting, drafted: Drafted, committed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The SSMs' commit: how many of its fed nodes each row keeps, and its temperature."""
        tables, depth = drafting.tables, len(drafting.layout.shape)
        copies = self.layout.copies
        committed = committed[:, None].expand(-1, copies, -1).flatten(0, 1)
        depths = tables.depths[1:]
        right = (drafted.tokens == committed[:, depths - 1]) & (drafted.tokens >= 0)
        walked = deepest(right, tables.depths[None], tables.sees[None])
        path = tables.lineage[walked.last]
        limit = self.slip.here["depth"]
        kept = torch.minimum(walked.length, limit - 1)
        steps = torch.arange(depth, device=path.device)
        drafting.ground.move(drafted.start, path[:, : depth - 1])
        # The utilities by which the root's and each walked node's next token was chosen.
        rows = torch.nn.functional.pad(path[:, : depth - 1] + 1, (1, 0))
        met = (steps <= walked.length[:, None]) & (steps < limit[:, None])
        at = torch.arange(len(rows), device=rows.device)[:, None]
        utilities = drafted.utilities[at, rows.clamp(max=drafting.layout.fed)]
        following = committed[:, :depth].masked_fill(~met, NO_TOKEN)
        return kept, observed(utilities, following, self.slip.reals("temperature"))
