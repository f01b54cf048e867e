"""RoundCosts: times of one request's rounds with and without drafts, from this engine's
measurements.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from core.events import Estimate
from core.speculation_length.base import BatchLoad, DraftOutcome, RoundOutcome
from core.speculation_length.cost_model import TINY_MS, Average, Costs, DraftCosts

__all__ = ["DraftOutcomes", "RoundCosts"]

DraftOutcomes = Mapping[str, DraftOutcome]
"""The outcome of each drafter's draft, by the drafter's name."""

# The number of nodes that a tree is assumed to have before any tree has been verified.
USUAL_NODES = 4
# If an LLM pass over other requests hides this share of the drafting, all drafting counts as
# hidden.
HIDDEN_SHARE = 0.95


class RoundCosts:
    """Times of one request's rounds in milliseconds. `load`: see `SharesPass.share` (base.py)."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self.load: BatchLoad | None = None
        # Means over recent rounds: tokens, and time in units of a plain round. Means over recent
        # rounds with drafts: nodes, draft passes, and the share of a further step's time that would
        # lengthen the round.
        self._tokens, self._rounds = Average(), Average()
        self._nodes, self._passes = Average(), Average()
        self._exposed_share = Average()
        self._context = 0  # cached tokens of the last round

    # -- before a round --

    @property
    def num_rounds(self) -> float:
        """The number of rounds in the averages; older rounds count less."""
        return self._rounds.weight

    def verify_ms(self, nodes: int) -> float:
        """Time of the LLM's pass over a tree of `nodes` nodes. With a `load`: one request's share
        of a plain round, plus the time of the nodes."""
        if self.load is not None:
            return self.load.plain_ms + nodes * self.load.node_ms
        return self._costs.verify_ms(nodes, self._context)

    @property
    def plain_ms(self) -> float:
        """Time of a round without drafts."""
        if self.load is not None:
            return max(TINY_MS, self.load.plain_ms)
        # Until a plain round has been measured, it is assumed to have the overhead of rounds with
        # drafts. Otherwise the whole overhead would be charged to the drafts.
        with_ms = self._costs.overhead[True].get()
        return max(TINY_MS, self.verify_ms(0) + self._costs.overhead[False].get(with_ms))

    @property
    def overhead_ms(self) -> float:
        """The time that drafts add to a round outside the models."""
        if self.load is not None:
            return self.load.overhead_ms
        # 0 until both were measured.
        plain_ms, with_ms = (self._costs.overhead[drafts].value for drafts in (False, True))
        return max(0.0, with_ms - plain_ms) if plain_ms is not None and with_ms is not None else 0.0

    @property
    def node_ms(self) -> float:
        """Verification time of one more node."""
        if self.load is not None:
            return self.load.node_ms
        # The mean over half of the tree's nodes: `verify_ms` has steps, and one more node is often
        # free.
        nodes = max(2, round(self._nodes.get(USUAL_NODES)))
        half = nodes // 2
        return (self.verify_ms(nodes) - self.verify_ms(half)) / (nodes - half)

    @property
    def price(self) -> float:
        """Recent goodput in committed tokens per millisecond; at least the goodput of plain
        decoding."""
        if self.load is not None:
            return self.load.price
        rounds = self._rounds.get()
        # Recent tokens in the time of a plain round; plain decoding commits 1 token in that time.
        return max(1.0, self._tokens.get() / rounds if rounds else 0.0) / self.plain_ms

    def restart_price(self) -> None:
        """Resets the price to the price of plain decoding."""
        self._tokens, self._rounds = Average(), Average()

    def estimates(self, names: Iterable[str], rate: float, most: int) -> tuple[Estimate, ...]:
        """Expected tokens and time of each length from 0 to `most` if the drafters `names` draft.
        Counts one verified node per level. tokens(l) = 1 + r + ... + r^l with the acceptance rate
        r."""
        by_length = [Estimate(0, 0, 1.0, self.plain_ms)]
        costs = [self._costs.draft_costs(name) for name in names]
        # Only drafting that does not run during an LLM pass makes a round longer.
        start_ms = self._exposed_share.get(1.0) * sum(one.start.get() for one in costs)
        step_ms = self._exposed_share.get(1.0) * sum(map(_step_ms, costs))
        fixed_ms = self.plain_ms + self.overhead_ms + start_ms - self.verify_ms(0)
        tokens = reach = 1.0
        # No step for the first level: its logits come from `start`, the pass over new text.
        for length in range(1, most + 1):
            reach *= rate
            tokens += reach
            ms = fixed_ms + (length - 1) * step_ms + self.verify_ms(length)
            by_length.append(Estimate(length, length, tokens, ms))
        return tuple(by_length)

    def predicted_ms(self, estimates: Sequence[Estimate], most: int) -> float:
        """Predicted time of a round with the recent number of draft passes; 0 with a `load`."""
        if self.load is not None:
            return 0.0
        return estimates[min(most, round(self._passes.get(1.0)))].ms

    # -- after a round --

    def measure(
        self, outcome: RoundOutcome, drafts: DraftOutcomes, probe_names: Collection[str]
    ) -> None:
        """Records the times of a round. `probe_names`: drafters that drafted only to be
        measured."""
        costs, self._context = self._costs, outcome.context
        drafted_ms = sum(draft.ms for draft in drafts.values())
        # `round_ms` excludes the hidden part of the drafting, the drafts' `ms` include it.
        overhead_ms = outcome.round_ms + outcome.hidden_ms - outcome.verify_ms - drafted_ms
        costs.overhead[bool(drafts)].add(overhead_ms)
        # Drafting during another request's pass is free, and so is the early part of a draft begun
        # ahead.
        if 0 < HIDDEN_SHARE * drafted_ms <= outcome.hidden_ms:
            self._exposed_share.add(0.0)
        elif drafts and math.isfinite(drafted_ms):
            saved_ms = sum(self._saved_ms(name, draft) for name, draft in drafts.items())
            self._exposed_share.add(drafted_ms / max(TINY_MS, drafted_ms + saved_ms))
        # Last: `_saved_ms` compares with the costs before this round.
        costs.observe_round(outcome, probe_names)

    def record(self, outcome: RoundOutcome, drafts: DraftOutcomes, rounds: float) -> None:
        """Records the tokens of a round that took as long as `rounds` plain rounds, and the size of
        its drafts."""
        self._tokens.add(outcome.num_tokens)
        self._rounds.add(rounds)
        if drafts:
            self._nodes.add(outcome.num_nodes)
            self._passes.add(1 + max(draft.steps for draft in drafts.values()))

    def added_ms(
        self, names: Iterable[str], outcome: RoundOutcome, drafts: DraftOutcomes, *, first: bool
    ) -> float:
        """Time that the drafts of the drafters `names` added to a round. `first`: these drafters
        also pay the overhead."""
        own = {name: drafts[name] for name in names if name in drafts}
        if not own:
            return 0.0
        drafting_ms = sum(
            # Smoothed costs instead of this round's: one slow pass must not switch a drafter off.
            draft.ms if draft.was_ahead else self._usual_ms(name, draft.steps)
            for name, draft in own.items()
        )
        drafted_ms = max(TINY_MS, sum(draft.ms for draft in drafts.values()))
        drafting_ms *= 1 - min(1.0, outcome.hidden_ms / drafted_ms)
        nodes = max(1, sum(draft.num_verified for draft in drafts.values()))
        verify_ms = self.verify_ms(outcome.num_nodes) - self.verify_ms(0)
        # A node that several drafters proposed counts for each of them.
        verify_ms *= sum(draft.num_verified for draft in own.values()) / nodes
        return drafting_ms + verify_ms + (self.overhead_ms if first else 0.0)

    def _usual_ms(self, name: str, steps: int) -> float:
        """Predicted time of a draft with `steps` passes after the first, from smoothed costs."""
        costs = self._costs.draft_costs(name)
        return costs.start.get() + steps * _step_ms(costs)

    def _saved_ms(self, name: str, draft: DraftOutcome) -> float:
        # A draft takes one pass per level, including the first.
        usual_ms = self._usual_ms(name, max(draft.depths, default=1) - 1)
        return max(0.0, usual_ms - draft.ms) if draft.was_ahead else 0.0


def _step_ms(costs: DraftCosts) -> float:
    """Time of a further step, at most the time of the first step: both are one model pass."""
    # Without the bound, a far too long measurement would prevent the steps that could correct it.
    return min(costs.step_ms, costs.start.get(costs.step_ms))
