"""PooledDrafting: several SSMs draft one tree together, in lock-step on one shared frontier.

At each step a token's score is softmax(sum of w_i log score_i), the weighted geometric mean of the
SSMs' probabilities (ALGORITHMS 3, `log_pool`). Each SSM is fed every node, and gets a draft of its
own: the common tree with its own scores, logits and calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, growth
from core.drafters.lockstep import Stepped, Steps, together
from core.drafters.ssm import SsmDrafter
from core.errors import DrafterError
from core.events.parts import Timed
from core.trees.draft import Draft

__all__ = ["PooledAsk", "PooledDrafting"]


@dataclass(frozen=True, slots=True)
class PooledAsk:
    """One sequence's turn: an ask for each SSM, alike but for index and name, and their weights."""

    asks: tuple[DraftRequest, ...]
    weights: tuple[float, ...]


@dataclass
class _Member:
    """One SSM's part in one sequence's common growth."""

    drafter: SsmDrafter
    ask: DraftRequest
    share: float
    rows: list[torch.Tensor] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)

    def asked(self, grown: Growth | None) -> Steps[torch.Tensor]:
        """Logits (n, V) after the root, which it catches up to, or for the growth's frontier."""
        if grown is None:
            (rows,) = yield from self.drafter.catching_up([self.ask])
        else:
            rows = yield from self.drafter.feeding(self.ask, grown)
        return rows

    def heard(self, work: Stepped[torch.Tensor], stage: str) -> torch.Tensor:
        """The logits that it was asked for. Raises DrafterError where it failed."""
        if work.error is not None:
            raise DrafterError(self.drafter.name, work.error) from work.error
        assert work.found is not None
        start, end = work.began, work.ended
        self.timed.append(Timed(self.drafter.name, stage, start, end, work.share(start, end)))
        self.rows.append(work.found)
        return work.found

    def held(self, common: Draft) -> Draft:
        """The common tree with this SSM's scores and logits."""
        logits = torch.cat(self.rows)
        scores = self.drafter.calibration(self.ask.sequence).scores(logits)
        rows = [common.rows[parent] for parent in common.parents]
        return replace(
            common,
            scores=scores[rows, common.token_ids].tolist() if rows else [],
            logits=logits,
            utilities=None,
            timed=tuple(self.timed),
            passes=len(self.rows),
        )


class PooledDrafting:
    """Drafts with the loaded SSMs, by name."""

    def __init__(self, ssms: Mapping[str, SsmDrafter]) -> None:
        self._ssms = ssms

    def draft(self, pool: PooledAsk) -> list[Draft]:
        """One draft for each SSM's ask: the same nodes, scored by each.

        Raises DrafterError, naming it, where one of them fails; the others are as before.
        """
        members = self._members(pool)
        if not members:
            return [Draft() for _ in pool.asks]
        # The pool itself is not calibrated: its members are.
        grown = growth(members[0].ask, Calibration())
        try:
            grown.absorb(_pooled(members, None))
            while grown.frontier:
                grown.absorb(_pooled(members, grown))
        except DrafterError:
            for member in members:
                member.drafter.forget(member.ask)
            raise
        common = grown.draft()
        found = {member.ask.index: member.held(common) for member in members}
        return [found.get(ask.index, Draft()) for ask in pool.asks]

    def _members(self, pool: PooledAsk) -> list[_Member]:
        """The SSMs that take part, their weights as shares of 1."""
        total = sum(pool.weights)
        members = []
        for ask, weight in zip(pool.asks, pool.weights, strict=True):
            drafter = self._ssms[ask.name]
            fitted = drafter.fitted(ask)
            if fitted.worth_starting:
                members.append(_Member(drafter, fitted, weight / total))
        shortest = min((len(m.ask.shape) for m in members), default=0)
        for member in members:
            member.ask = replace(member.ask, shape=member.ask.shape[:shortest])
        return members


def _pooled(members: list[_Member], grown: Growth | None) -> torch.Tensor:
    """What the SSMs hold of the next tokens, pooled: (n, V) logits."""
    works = together({m.drafter.name: (m.drafter.model, m.asked(grown)) for m in members})
    stage = "catch_up" if grown is None else "draft"
    parts = []
    for member in members:
        temperature = member.drafter.calibration(member.ask.sequence).temperature
        logits = member.heard(works[member.drafter.name], stage) / temperature
        parts.append(member.share * logits.log_softmax(dim=-1))
    # 0 x -inf: a token that the vocabulary of an SSM without weight lacks.
    return torch.stack(parts).sum(dim=0).nan_to_num(nan=float("-inf"))
