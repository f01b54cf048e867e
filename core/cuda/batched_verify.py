"""The LLM's tokens at all nodes of several trees in one step on the device, with one copy back.

A walk would ask the device for one token at each node and wait for every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from core.config import SamplingParams
from core.cuda.acceptance import TargetOutputs, TreeBatch, target_outputs
from core.cuda.staging import DeviceToHost, HostToDevice, as_reals, pack
from core.engine.round_state import RoundState
from core.trees.noise import SeededNoise, bases_of
from core.trees.verify import WALKS, TargetTokens, VerifyInput

__all__ = ["batched_target_tokens", "fill_target_tokens", "is_batchable"]


def is_batchable(turn: RoundState) -> bool:
    """Whether a turn's rule needs nothing but the LLM's token at each node, its noise is a hash,
    and the LLM's distributions are not recorded."""
    sequence = turn.live.sequence
    rule = sequence.speculation.verify
    hashed = rule == "greedy" or isinstance(sequence.noise, SeededNoise)
    return rule in WALKS and hashed and not sequence.speculation.record_top_k


def fill_target_tokens(
    turns: Sequence[RoundState], case_of: Callable[[RoundState], VerifyInput]
) -> None:
    """Fills in `target_tokens` of the turns that are batchable, one step for each sampling."""
    groups: dict[tuple[str, SamplingParams], list[RoundState]] = {}
    for turn in turns:
        if is_batchable(turn):
            sequence = turn.live.sequence
            key = sequence.speculation.verify, sequence.sampling.shape
            groups.setdefault(key, []).append(turn)
    for (rule, _), several in groups.items():
        found = batched_target_tokens(rule, [case_of(turn) for turn in several])
        for turn, one in zip(several, found, strict=True):
            turn.target_tokens = one


@torch.inference_mode()
def batched_target_tokens(rule: str, cases: Sequence[VerifyInput]) -> list[TargetTokens]:
    """The LLM's tokens on each tree by `greedy` or `match`; all have the same sampling."""
    widths = [len(case.target) for case in cases]
    inputs = _sent_trees(cases, max(widths), with_noise=rule == "match").device
    padded = _padded([case.target.logits for case in cases])
    bases = inputs["bases"] if rule == "match" else None
    trees = TreeBatch(inputs["tokens"], inputs["parents"], inputs["depths"])
    outputs = target_outputs(padded, trees, cases[0].target.sampling, bases)
    return _on_host(outputs, widths)


def _on_host(outputs: TargetOutputs, widths: Sequence[int]) -> list[TargetTokens]:
    """`widths`: nodes of each tree, its root included."""
    rows, width = outputs.tokens.shape
    shapes = {"tokens": (rows, width), "token_probs": (rows, width), "nodes": (rows, width - 1)}
    packed = pack((outputs.tokens, outputs.token_probs, outputs.node_probs))
    found = DeviceToHost(packed.device).read(packed, shapes)
    token_probs, node_probs = as_reals(found["token_probs"]), as_reals(found["nodes"])
    return [
        TargetTokens(
            tuple(found["tokens"][row, :size].tolist()),
            tuple(token_probs[row, :size].tolist()),
            tuple(node_probs[row, : size - 1].tolist()),
        )
        for row, size in enumerate(widths)
    ]


def _sent_trees(cases: Sequence[VerifyInput], width: int, *, with_noise: bool) -> HostToDevice:
    deepest = 1 + max(case.tree.depth for case in cases)
    nodes = (len(cases), width - 1)
    shapes = {"tokens": nodes, "parents": nodes, "depths": (len(cases), width)}
    if with_noise:
        shapes["bases"] = (len(cases), deepest)
    inputs = HostToDevice(shapes, cases[0].target.logits.device)
    for row, case in enumerate(cases):
        size = len(case.tree)
        inputs.host["tokens"][row, :size] = case.tree.token_ids
        inputs.host["parents"][row, :size] = [parent + 1 for parent in case.tree.parents]
        inputs.host["depths"][row, 1 : size + 1] = case.tree.depths
        if with_noise:
            inputs.host["bases"][row] = bases_of(case.noise, case.root_position + 1, deepest)
    inputs.send()
    return inputs


def _padded(logits: Sequence[torch.Tensor]) -> torch.Tensor:
    """(rows, widest, V); a single tree's logits are not copied."""
    if len(logits) == 1:
        return logits[0][None]
    return torch.nn.utils.rnn.pad_sequence(list(logits), batch_first=True)
