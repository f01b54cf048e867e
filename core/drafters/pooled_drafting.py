"""Pooled drafts: several SSMs draft one tree together, in lock-step on one shared frontier.

At each step a token's score is softmax(sum of w_i log score_i), the weighted geometric mean of the
SSMs' probabilities (a logarithmic opinion pool).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, absorb_penalized, new_growth
from core.drafters.lockstep import Steps, run_all
from core.drafters.ssm import SsmDrafter
from core.errors import DrafterError
from core.events.parts import Timed
from core.trees.draft import Draft

__all__ = ["PooledRequest", "draft_pooled", "fitting_requests"]


@dataclass(frozen=True, slots=True)
class PooledRequest:
    """One sequence's draft requests to several SSMs, one for each, and the SSMs' weights."""

    requests: tuple[DraftRequest, ...]
    weights: tuple[float, ...]

    def failed_requests(self, error: BaseException) -> Sequence[DraftRequest]:
        """The requests of the SSM that the error names; all requests if the error names no SSM of
        the pool."""
        name = error.name if isinstance(error, DrafterError) else None
        return [one for one in self.requests if one.name == name] or self.requests


@dataclass
class _PooledSsm:
    """One SSM of a pool. `share`: its weight divided by the sum of all weights of the
    PooledRequest."""

    drafter: SsmDrafter
    request: DraftRequest
    share: float
    rows: list[torch.Tensor] = field(default_factory=list)
    timings: list[Timed] = field(default_factory=list)

    def next_logits(self, growth: Growth) -> Steps[torch.Tensor]:
        """Logits (n, V) after the growth's frontier."""
        # The first frontier is the root: the SSM reads the committed tokens that it lacks.
        if not growth.passes:
            (rows,) = yield from self.drafter.catch_up_steps([self.request])
        else:
            state = self.drafter.state(self.request)
            (rows,) = yield from self.drafter.feeder.feed_frontiers([(state, [growth])])
        return rows

    def own_draft(self, common: Draft) -> Draft:
        """The common tree with this SSM's own scores and logits."""
        logits = torch.cat(self.rows)
        scores = self.drafter.calibration(self.request.sequence).scores(logits)
        rows = [common.rows[parent] for parent in common.parents]
        return replace(
            common,
            scores=scores[rows, common.token_ids].tolist() if rows else [],
            logits=logits,
            utilities=None,  # the common tree's utilities are the pool's
            timings=tuple(self.timings),
            passes=len(self.rows),
        )


def draft_pooled(ssms: Mapping[str, SsmDrafter], pool: PooledRequest) -> list[Draft]:
    """One draft per SSM: the same nodes with the SSM's own scores; empty for an SSM that cannot
    take part. `ssms`: by name.

    Raises DrafterError with the name of an SSM that fails; the SSMs drop their pending nodes.
    """
    # Normalized over all requests of the pool: an SSM that cannot take part does not change the
    # other SSMs' shares.
    total = sum(pool.weights)
    members = [
        _PooledSsm(ssms[request.name], request, weight / total)
        for request, weight in fitting_requests(pool, ssms)
    ]
    if not members:
        return [Draft() for _ in pool.requests]
    # The pooled logits are calibrated already.
    growth = new_growth(members[0].request, Calibration())
    try:
        while growth.frontier:
            absorb_penalized([growth], [_pooled_logits(members, growth)])
    except DrafterError:
        for member in members:
            member.drafter.drop_pending(member.request)
        raise
    common = growth.draft()
    own_drafts = {member.request.index: member.own_draft(common) for member in members}
    return [own_drafts.get(request.index, Draft()) for request in pool.requests]


def fitting_requests(
    pool: PooledRequest, ssms: Mapping[str, SsmDrafter]
) -> list[tuple[DraftRequest, float]]:
    """The requests of SSMs that can take part, with their weights. All get the shortest shape: the
    SSMs are fed the same nodes."""
    pairs = zip(pool.requests, pool.weights, strict=True)
    fitting = [(ssms[request.name].fit_context(request), weight) for request, weight in pairs]
    fitting = [(request, weight) for request, weight in fitting if request.worth_starting]
    shortest = min((len(request.shape) for request, _ in fitting), default=0)
    return [(replace(one, shape=one.shape[:shortest]), weight) for one, weight in fitting]


def _pooled_logits(members: list[_PooledSsm], growth: Growth) -> torch.Tensor:
    """Pooled logits (n, V): sum of w_i log softmax(logits_i / temperature_i), with logits_i after
    the repetition penalty."""
    works = run_all({m.drafter.name: (m.drafter.model, m.next_logits(growth)) for m in members})
    stage = "draft" if growth.passes else "catch_up"
    parts = []
    for member in members:
        name = member.drafter.name
        rows = growth.penalize(works[name].take_result(name))
        member.timings.append(works[name].timing(name, stage))
        member.rows.append(rows)
        temperature = member.drafter.calibration(member.request.sequence).temperature
        # Not normalized: the softmax of the scores normalizes.
        parts.append(member.share * (rows / temperature).log_softmax(dim=-1))
    # A share may round to 0: for a token that the SSM lacks, 0 x -inf is NaN.
    return torch.stack(parts).sum(dim=0).nan_to_num(nan=float("-inf"))
