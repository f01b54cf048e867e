"""Acceptance of trees by `greedy` or `match`, over tensors.

All nodes are compared at once with the LLM's token after their parent. A walk from node to node
would wait for a copy from the device at each node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from core.config import SamplingParams
from core.config.mechanisms import verify_rule
from core.cuda.staging import DeviceToHost, HostToDevice, as_reals, pack
from core.engine.round_state import RoundState
from core.trees.noise import SeededNoise, bases_of, gumbel_vectors
from core.trees.sampling import process_logits, unprocessed_probabilities
from core.trees.verify import WALKS, TargetTokens, VerifyInput

__all__ = [
    "AcceptedPaths",
    "TargetOutputs",
    "TreeBatch",
    "accepted_paths",
    "batched_target_tokens",
    "deepest_nodes",
    "fill_target_tokens",
    "is_batchable",
    "target_outputs",
]


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """Trees of n nodes, one tree in each row. In `parents` (rows, n) and in the columns of `depths`
    (rows, 1 + n), 0 is the root and i + 1 is node i. `tokens` (rows, n): the nodes' tokens; to
    `accepted_paths` a negative token marks an absent node."""

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor


@dataclass(frozen=True, slots=True)
class TargetOutputs:
    """The LLM's outputs on a TreeBatch. `tokens` (rows, 1 + n): the LLM's own token after the root
    and each node; `token_probs`: the probabilities of `tokens`; `node_probs` (rows, n): the
    probability of each node's token given its parent."""

    tokens: torch.Tensor
    token_probs: torch.Tensor
    node_probs: torch.Tensor


@dataclass(frozen=True, slots=True)
class AcceptedPaths:
    """`length` (rows,): number of accepted nodes; `last` (rows,): the index of the deepest accepted
    node (see TreeBatch), 0 if there is none."""

    length: torch.Tensor
    last: torch.Tensor


def target_outputs(
    logits: torch.Tensor, trees: TreeBatch, sampling: SamplingParams, bases: torch.Tensor | None
) -> TargetOutputs:
    """The outputs from the LLM's logits (rows, 1 + n, V), float32. `bases` (rows, 1 + deepest):
    hashes of the positions after the root, from which Gumbel noise G is computed. With `bases` and
    a temperature above 0, a token is the arg max of log p + G; else a token is the arg max of the
    logits."""
    # (rows, 1): together with indices (rows, n), selects from each row's own tree.
    tree_index = torch.arange(len(logits), device=logits.device)[:, None]
    # Greedy needs no processing: p's only token is the arg max of the logits, and the reported
    # probability is the logits' softmax.
    scores = logits
    if not sampling.greedy:
        scores = process_logits(logits.flatten(0, 1), sampling).view(logits.shape)
    if bases is None or sampling.greedy:
        tokens = logits.argmax(-1)
    else:
        noise = gumbel_vectors(bases, logits.shape[2])  # (rows, 1 + deepest, V)
        # The token after a node of depth d is at position root + 1 + d, whose noise is noise[:, d].
        # Scores and log p differ by a constant.
        tokens = (scores.double() + noise[tree_index, trees.depths]).argmax(-1)
    probs = unprocessed_probabilities(scores)
    token_probs = probs.gather(2, tokens[..., None])[..., 0]
    node_probs = probs[tree_index, trees.parents, trees.tokens.clamp(min=0)]
    return TargetOutputs(tokens, token_probs, node_probs)


def accepted_paths(
    outputs: TargetOutputs, trees: TreeBatch, ancestors: torch.Tensor, ends: torch.Tensor
) -> AcceptedPaths:
    """The deepest node that is accepted with all its ancestors. `ancestors` (rows or 1, 1 + n, 1 +
    n) includes each node itself. Nodes below an end-of-text token are not accepted; `ends` (rows,
    any): the end-of-text tokens, padded with a value that is no token."""
    tokens = trees.tokens
    matches = outputs.tokens.gather(1, trees.parents) == tokens
    # The token of each node's parent; -1 for the root, which does not end the text.
    parent_tokens = torch.nn.functional.pad(tokens, (1, 0), value=-1).gather(1, trees.parents)
    ended = (parent_tokens[..., None] == ends[:, None]).any(-1) & (parent_tokens >= 0)
    return deepest_nodes(matches & (tokens >= 0) & ~ended, trees.depths, ancestors)


def deepest_nodes(
    matches: torch.Tensor, depths: torch.Tensor, ancestors: torch.Tensor
) -> AcceptedPaths:
    """The deepest node for which `matches` (rows, n) marks the node and all its ancestors; the
    first of equally deep nodes. `depths` (rows or 1, 1 + n): see TreeBatch; `ancestors`: see
    `accepted_paths`."""
    matches = torch.nn.functional.pad(matches, (1, 0), value=True)
    # accepted[u]: each v matches or is not an ancestor of u.
    accepted = (matches[:, None] | ~ancestors).all(-1)
    size = matches.shape[1]
    order = torch.arange(size, device=matches.device)
    # Keys: greater for a deeper node, then for a lower number; 0 for a node not accepted.
    last = (accepted * (depths * size + size - 1 - order)).argmax(-1)
    return AcceptedPaths(depths.expand(len(matches), -1).gather(1, last[:, None])[:, 0], last)


def is_batchable(state: RoundState) -> bool:
    """Whether `fill_target_tokens` serves the request."""
    sequence = state.request.sequence
    rule = sequence.speculation.verify
    if rule not in WALKS:
        return False
    # The device computes the noise from the seed.
    computable = not verify_rule(rule).reads_gumbel or isinstance(sequence.noise, SeededNoise)
    return computable and not sequence.speculation.record_top_k


def fill_target_tokens(
    states: Sequence[RoundState], case_of: Callable[[RoundState], VerifyInput]
) -> None:
    """Fills in `target_tokens` of the batchable states."""
    # One call processes all logits with one set of sampling parameters.
    groups: dict[tuple[str, SamplingParams], list[RoundState]] = {}
    for state in states:
        if is_batchable(state):
            sequence = state.request.sequence
            key = sequence.speculation.verify, sequence.sampling.distribution
            groups.setdefault(key, []).append(state)
    for (rule, _), several in groups.items():
        targets = batched_target_tokens(rule, [case_of(state) for state in several])
        for state, one in zip(several, targets, strict=True):
            state.target_tokens = one


@torch.inference_mode()
def batched_target_tokens(rule: str, cases: Sequence[VerifyInput]) -> list[TargetTokens]:
    """The LLM's tokens on each tree. `rule`: one of WALKS. All cases must have the same
    sampling."""
    widths = [len(case.target) for case in cases]
    with_noise = verify_rule(rule).reads_gumbel
    inputs = _send_trees(cases, max(widths), with_noise=with_noise).device
    logits = _pad_logits([case.target.logits for case in cases])
    bases = inputs["bases"] if with_noise else None
    trees = TreeBatch(inputs["tokens"], inputs["parents"], inputs["depths"])
    outputs = target_outputs(logits, trees, cases[0].target.sampling, bases)
    return _on_host(outputs, widths)


def _on_host(outputs: TargetOutputs, widths: Sequence[int]) -> list[TargetTokens]:
    """`widths`: the number of nodes of each tree, its root included."""
    rows, width = outputs.tokens.shape
    shapes = {"tokens": (rows, width), "token_probs": (rows, width), "nodes": (rows, width - 1)}
    packed = pack((outputs.tokens, outputs.token_probs, outputs.node_probs))
    tensors = DeviceToHost(packed.device).read(packed, shapes)
    token_probs, node_probs = as_reals(tensors["token_probs"]), as_reals(tensors["nodes"])
    return [
        TargetTokens(
            tuple(tensors["tokens"][row, :size].tolist()),
            tuple(token_probs[row, :size].tolist()),
            tuple(node_probs[row, : size - 1].tolist()),
        )
        for row, size in enumerate(widths)
    ]


def _send_trees(cases: Sequence[VerifyInput], width: int, *, with_noise: bool) -> HostToDevice:
    # One position for the token after the root, and one for each depth.
    positions = 1 + max(case.tree.depth for case in cases)
    nodes = (len(cases), width - 1)
    shapes = {"tokens": nodes, "parents": nodes, "depths": (len(cases), width)}
    if with_noise:
        shapes["bases"] = (len(cases), positions)
    inputs = HostToDevice(shapes, cases[0].target.logits.device)
    for row, case in enumerate(cases):
        size = len(case.tree)
        inputs.host["tokens"][row, :size] = case.tree.token_ids
        # Padding keeps parent 0 and token 0; its outputs are cut off in `_on_host`.
        inputs.host["parents"][row, :size] = [parent + 1 for parent in case.tree.parents]
        inputs.host["depths"][row, 1 : size + 1] = case.tree.depths
        if with_noise:
            inputs.host["bases"][row] = bases_of(case.noise, case.root_position + 1, positions)
    inputs.send()
    return inputs


def _pad_logits(logits: Sequence[torch.Tensor]) -> torch.Tensor:
    """The logits of all trees, padded to the largest tree: (rows, width, V)."""
    if len(logits) == 1:
        return logits[0][None]
    return torch.nn.utils.rnn.pad_sequence(list(logits), batch_first=True)
