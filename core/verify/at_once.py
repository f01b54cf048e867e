"""What the LLM says of several trees, computed where its logits lie and told in one copy.

Token by token a verdict asks the device a question for every node and waits for each answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.device.acceptance import Judged, Trees, judge
from core.device.slips import Landing, Slip, flat, real
from core.noise import bases_of
from core.verify.case import Case, Said

__all__ = ["said_of"]


@torch.inference_mode()
def said_of(rule: str, cases: Sequence[Case]) -> list[Said]:
    """What the LLM says of each tree by `greedy` or `match`, all of one sampling."""
    widths = [len(case.target) for case in cases]
    slip = _told(cases, max(widths), noisy=rule == "match")
    logits = [case.target.logits for case in cases]
    padded = logits[0][None] if len(cases) == 1 else _padded(logits)
    here = slip.here
    bases = here["bases"] if rule == "match" else None
    trees = Trees(here["tokens"], here["parents"], here["depths"])
    judged = judge(padded, trees, cases[0].target.sampling, bases)
    return landed(Landing(padded.device), judged, widths)


def landed(landing: Landing, judged: Judged, widths: Sequence[int]) -> list[Said]:
    """The same as plain numbers; `widths`: of each tree, its root counted in."""
    rows, width = judged.own.shape
    parts = (judged.own, judged.own_shown, judged.shown)
    shapes = {"own": (rows, width), "own_shown": (rows, width), "shown": (rows, width - 1)}
    found = landing.read(flat(parts), shapes)
    own_shown, shown = real(found["own_shown"]), real(found["shown"])
    return [
        Said(
            tuple(found["own"][row, :size].tolist()),
            tuple(own_shown[row, :size].tolist()),
            tuple(shown[row, : size - 1].tolist()),
        )
        for row, size in enumerate(widths)
    ]


def _told(cases: Sequence[Case], width: int, *, noisy: bool) -> Slip:
    deep = 1 + max(case.tree.depth for case in cases)
    nodes = (len(cases), width - 1)
    shapes = {"tokens": nodes, "parents": nodes, "depths": (len(cases), width)}
    if noisy:
        shapes["bases"] = (len(cases), deep)
    slip = Slip(shapes, cases[0].target.logits.device)
    for row, case in enumerate(cases):
        size = len(case.tree)
        slip.host["tokens"][row, :size] = case.tree.token_ids
        slip.host["parents"][row, :size] = [parent + 1 for parent in case.tree.parents]
        slip.host["depths"][row, 1 : size + 1] = case.tree.depths
        if noisy:
            slip.host["bases"][row] = bases_of(case.noise, case.root_position + 1, deep)
    slip.send()
    return slip


def _padded(logits: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(logits), batch_first=True)
