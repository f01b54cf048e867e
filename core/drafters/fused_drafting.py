"""Fused drafts: confidence-based token fusion (CoSine). Several SSMs draft one chain, the trunk, in
lock-step.

At each step an SSM proposes a token after the trunk, and a token after the SSM's own chain if this
chain differs from the trunk and has not ended. The proposal after the trunk with the highest
calibrated score continues the trunk. The most probable proposals are kept: at most the node budget,
and at most K (m + 1) nodes for m SSMs and K steps.

A fused token was not drawn from one SSM's q: only `greedy` and `match` are lossless. With
`fused_credit` (not in the paper) a score is multiplied by the SSM's weight relative to the highest
weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from core.config.mechanisms import draft_kind
from core.drafters.fused_tree import FusedSsm, FusedTree
from core.drafters.lockstep import Steps, run_all
from core.drafters.pooled_drafting import PooledRequest, fitting_requests
from core.drafters.proposers import Proposals, proposer
from core.drafters.ssm import SsmDrafter
from core.errors import DrafterError
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["draft_fused"]


@dataclass
class _FusedRequest:
    """One request. `members`: the SSMs that can take part."""

    members: list[FusedSsm]
    tree: FusedTree
    error: DrafterError | None = None

    def begin_step(self, depth: int) -> bool:
        """Sets the members' tips; False if there is no step to `depth`."""
        if self.error is not None or not self.members or not self._continues(depth):
            return False
        trunk = self.tree.trunk[-1] if self.tree.trunk else ROOT
        # Only the trunk's tip if the SSM's own chain has ended or equals the trunk so far.
        for member in self.members:
            member.tips = [trunk] if member.own in (None, trunk) else [trunk, member.own]
        return True

    def _continues(self, depth: int) -> bool:
        tree, request = self.tree, self.members[0].request
        # `fitting_requests` has left only requests that are worth starting.
        if depth == 1:
            return True
        # No token was proposed in the last step, or no step is left.
        if len(tree.trunk) < depth - 1 or depth > len(request.shape):
            return False
        if tree.token_ids[tree.trunk[-1]] in request.sequence.eos_ids:
            return False
        # The score of the trunk's tip decides whether the tip has children. The path's probability
        # decides whether another pass is worth its time.
        grows = request.grows(tree.trunk_scores[-1])
        return grows and request.continues(depth, [math.prod(tree.trunk_scores)])

    def end_step(self) -> None:
        tree = self.tree
        best, best_score, highest, winner = ROOT, 0.0, 0.0, 0
        for member in self.members:
            fused, score = member.proposed[0]
            # Strictly greater: of equal products the first in drafter order wins.
            if score * member.weight > highest:
                best, best_score, winner = fused, score, member.request.index
                highest = score * member.weight
            # An SSM's own chain is continued by the SSM's own proposal, which is the last one.
            own, own_score = member.proposed[-1]
            ended = own == ROOT or tree.token_ids[own] in member.request.sequence.eos_ids
            ended = ended or not member.request.grows(own_score)
            # A chain that has ended stays ended.
            member.own = None if ended or member.own is None else own
        if best != ROOT:
            tree.trunk.append(best)
            tree.trunk_scores.append(best_score)
            # `FusedTree.add` keeps the first SSM if two path values round to the same number.
            tree.origins[best] = winner

    def fail(self, error: DrafterError) -> None:
        self.error = error
        # An SSM that did not fail may have pending nodes too.
        for member in self.members:
            member.drafter.drop_pending(member.request)

    def drafts(self, pool: PooledRequest) -> list[Draft] | DrafterError:
        """One draft per SSM of `pool`, or the error. Empty for an SSM that does not take part."""
        if self.error is not None:
            return self.error
        by_index: dict[int, Draft] = {}
        if self.members:
            request = self.members[0].request
            most = len(request.shape) * (len(self.members) + 1)
            best = self.tree.best(min(request.budget, most))
            by_index = {member.request.index: member.draft(best) for member in self.members}
        return [by_index.get(request.index, Draft()) for request in pool.requests]


def draft_fused(
    ssms: Mapping[str, SsmDrafter], pools: Sequence[PooledRequest]
) -> list[list[Draft] | DrafterError]:
    """One draft per request and SSM: the kept nodes that are in the trunk or that the SSM
    proposed. `ssms`: by name.

    If an SSM fails, its requests get a DrafterError instead of drafts, and all SSMs of these
    requests drop their pending nodes.
    """
    requests = [_fused_request(ssms, pool) for pool in pools]
    depth = 1
    while stepping := [one for one in requests if one.begin_step(depth)]:
        _step(stepping, "catch_up" if depth == 1 else "draft")
        depth += 1
    return [one.drafts(pool) for one, pool in zip(requests, pools, strict=True)]


def _fused_request(ssms: Mapping[str, SsmDrafter], pool: PooledRequest) -> _FusedRequest:
    fitting = fitting_requests(pool, ssms)
    # Weights are divided by the highest, so that products with scores never rise along a path.
    highest = max((weight for _, weight in fitting), default=0.0) or 1.0
    tree = FusedTree()
    members = [
        FusedSsm(
            ssms[request.name],
            request,
            tree,
            weight / highest if draft_kind(request.kind).by_credit else 1.0,
        )
        for request, weight in fitting
    ]
    return _FusedRequest(members, tree)


def _step(requests: Sequence[_FusedRequest], stage: str) -> None:
    """One pass of each SSM over the SSM's tips in all requests."""
    by_ssm: dict[str, list[FusedSsm]] = {}
    for one in requests:
        for member in one.members:
            by_ssm.setdefault(member.drafter.name, []).append(member)
    works = run_all(
        {name: (own[0].drafter.model, _next_logits(own)) for name, own in by_ssm.items()}
    )
    errors = {name: work.error for name, work in works.items() if work.error is not None}
    for one in requests:
        if names := [m.drafter.name for m in one.members if m.drafter.name in errors]:
            one.fail(DrafterError(names[0], errors[names[0]]))
    for name, own in by_ssm.items():
        timing = works[name].timing(name, stage)
        for member, rows in zip(own, works[name].result or (), strict=name not in errors):
            member.timings.append(timing)
            member.frontier = member.make_frontier(rows)
    remaining = [one for one in requests if one.error is None]
    _propose([member for one in remaining for member in one.members])
    for one in remaining:
        one.end_step()


def _next_logits(members: Sequence[FusedSsm]) -> Steps[list[torch.Tensor]]:
    """Logits (tips, V) after one SSM's tips in each request. If the tips are the roots, the SSM
    reads the committed text."""
    drafter = members[0].drafter
    # All requests are at the same depth.
    if members[0].tips == [ROOT]:
        logits = yield from drafter.catch_up_steps([member.request for member in members])
        return logits
    results = yield from drafter.feeder.feed_nodes([member.node_feed for member in members])
    for member, (places, _) in zip(members, results, strict=True):
        member.places.update(zip(member.tips, places, strict=True))
    return [rows for _, rows in results]


def _propose(members: Sequence[FusedSsm]) -> None:
    by_greedy: dict[bool, list[FusedSsm]] = {}
    for member in members:
        by_greedy.setdefault(member.request.sequence.sampling.greedy, []).append(member)
    proposals: dict[int, Proposals] = {}
    for greedy, own in by_greedy.items():
        frontiers = [member.frontier for member in own if member.frontier is not None]
        proposed = proposer("fused", greedy=greedy)(frontiers, [1] * len(frontiers))
        proposals |= {id(member): one for member, one in zip(own, proposed, strict=True)}
    # In drafter order: of equal proposals the first counts.
    for member in members:
        member.propose(proposals[id(member)])
