"""SsmState: what an SsmDrafter keeps of one sequence between `open` and `close`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from core.drafters.calibration import Calibration
from core.drafters.growth import Growth
from core.drafters.pending import Pending
from core.tree import ROOT

__all__ = ["SsmState"]


@dataclass
class SsmState:
    """`row`: the model's. `pending`: what it was fed behind the committed text.

    `guesses`: drafts begun for the next round, by the tokens they hope to see committed; `ready`:
    the one whose hope came true. `told`: the probabilities it gave to the text's tokens, not yet
    asked for; tokens before `judged` are done with.
    """

    row: int
    calibration: Calibration
    judged: int = 0
    told: list[float] = field(default_factory=list)
    pending: Pending = field(default_factory=Pending)
    guesses: dict[tuple[int, ...], Growth] = field(default_factory=dict)
    ready: Growth | None = None

    def judge(self, logits: torch.Tensor, tokens: list[int], first: int) -> None:
        """Notes how probable `tokens[first]`, `tokens[first + 1]`, ... were by `logits` (n, V),
        each once; of tokens that were read and not judged nothing is known (NaN)."""
        unknown = max(0, first - self.judged)
        self.told += [math.nan] * unknown
        self.judged += unknown
        skipped = max(0, self.judged - first)
        wanted = tokens[first + skipped : first + logits.shape[0]]
        if not wanted:
            return
        rows = logits[skipped : skipped + len(wanted)]
        ids = torch.tensor(wanted, device=logits.device)[:, None]
        chosen = rows.gather(-1, ids)[:, 0] - rows.logsumexp(dim=-1)
        self.told += chosen.exp().tolist()
        self.judged += len(wanted)

    def judge_pending(self, committed: tuple[int, ...], tokens: list[int]) -> None:
        """Notes how probable the `committed` tokens, the last of `tokens`, were by what was fed
        before they were known."""
        if self.pending.root is None:
            return
        places = [ROOT, *self.pending.walk(committed)][: len(committed)]
        logits = torch.stack([self.pending.logits[place] for place in places])
        self.judge(logits, tokens, len(tokens) - len(committed))
