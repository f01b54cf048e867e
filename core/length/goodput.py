"""`goodput`: one SSM drafts, each draft for as long as its score pays.

Four parts: the audition at prefill picks the SSM; a stop rule ends each draft (`StopRule`); nodes
not worth verifying are dropped; a drafter that falls behind plain decoding is switched off, then
probed ever more rarely. One price, committed tokens per millisecond, compares tokens with the times
that this engine has measured (`Costs`). Scores are the drafters' own: each fits its calibration
temperature online.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from core.config import SpeculationConfig
from core.config.budget import longest
from core.config.mechanisms import NGRAM, combine_rule, draft_kind, routing_rule
from core.events import Estimate
from core.length.base import BatchLoad, Choice, DraftOutcome, RoundOutcome, StopLimits
from core.length.cost_model import Average, Costs, DraftCosts, RunBackoffs
from core.length.stop_rule import StopRule, step_limits

__all__ = ["Goodput"]

# A draft may become so much deeper than the deepest recently verified tree.
DEEPER = 8
PROBE_LENGTH = 2
# Rounds that one plan serves: making it costs a few hundredths of a round.
ROUNDS_PER_PLAN = 8
# In tokens: a drafter is switched off when it is LOSS behind plain decoding, which commits one per
# round. One draft counts for at least WORST, since first timings are far too long; the balance is
# at most SAVED, so that a change in the text is noticed soon.
LOSS, SAVED, WORST = 4.0, 4.0, -1.5
# Prior of P(a token is accepted | its parent is), and its weight in tokens.
RATE, RATE_TOKENS = 0.75, 4
# Rounds that an average remembers.
HORIZON = 32.0
# Nodes of a tree before the first is verified.
USUAL_NODES = 4
# If other work hides this share of the drafting, all of it counts as hidden.
HIDDEN = 0.95
TINY_MS = 1e-6

DraftOutcomes = Mapping[str, DraftOutcome]


@dataclass
class _DrafterGroup:
    """Drafters that are switched on and off as one: an SSM, the n-gram lookup, or all drafters of a
    vote or a pool. `names` draft; with a router they change, among `members`. `balance`: tokens
    ahead of plain decoding (negative: behind)."""

    names: tuple[str, ...]
    members: tuple[str, ...] = ()
    balance: float = 0.0
    rate: Average = field(default_factory=lambda: Average(HORIZON))

    def __post_init__(self) -> None:
        self.members = self.members or self.names
        self.label = " + ".join(self.members)
        for _ in range(RATE_TOKENS):
            self.rate.add(RATE)

    def drafts_of(self, drafts: DraftOutcomes) -> list[DraftOutcome]:
        """This group's part of a round's drafts."""
        return [drafts[name] for name in self.members if name in drafts]


class Goodput:
    """See LengthPolicy, Auditions, Routed, SharesPass. `speculation_length` is not read: the policy
    finds the length."""

    def __init__(self, config: SpeculationConfig, costs: Costs) -> None:
        self._config, self._costs = config, costs
        self._backoffs = RunBackoffs(costs.backoffs)
        # A vote or a pool is one drafter made of several.
        as_one = combine_rule(config.combine).one_draft or draft_kind(config.draft).fused
        ssms = tuple(name for name in config.drafters if as_one or name != NGRAM)
        routed = bool(routing_rule(config.routing).implementation)
        whole = as_one or routed
        self._groups = [_DrafterGroup(ssms if whole else ssms[:1])] if ssms else []
        # The lookup costs no pass: a group of its own, so that it may stay on where the SSM is
        # switched off.
        if NGRAM in config.drafters and not as_one:
            self._groups.append(_DrafterGroup((NGRAM,)))
        self._chooses = not whole and len(ssms) > 1
        self._labels = tuple(group.label for group in self._groups)
        # Recent rounds: tokens, and time in units of a plain round; of those with drafts: nodes,
        # model passes, and the share of a further step that would lengthen the round.
        self._tokens, self._rounds = Average(HORIZON), Average(HORIZON)
        self._nodes, self._passes = Average(HORIZON), Average(HORIZON)
        self._exposed = Average(HORIZON)
        # Of the last round: cached tokens. Of the plan: its length, and the rounds it has served.
        self._context = self._length = self._deepest = self._age = 0
        self._choice: Choice | None = None
        self._probed: _DrafterGroup | None = None
        self._notice = ""
        self._load: BatchLoad | None = None

    # -- the audition --

    @property
    def chooses(self) -> bool:
        """See Auditions, here and below."""
        return self._chooses

    def observe_audition(self, fits: Mapping[str, float]) -> None:
        """Selects the SSM with the highest score on the prompt; no other SSM drafts in this run."""
        if fits:
            self._groups[0] = _DrafterGroup((max(fits, key=lambda name: fits[name]),))
            self._labels = tuple(group.label for group in self._groups)
            self._choice = None

    def use_drafters(self, names: Sequence[str]) -> None:
        """See Routed. What the group has learned stays: a switch is made to draft better."""
        for group in self._groups[:1]:
            routed = tuple(name for name in group.members if name in names or name == NGRAM)
            group.names = routed or group.names

    # -- the batch --

    def share(self, load: BatchLoad | None) -> None:
        """See SharesPass. A plan that was made for a pass of its own is dropped, and vice versa."""
        if (load is None) != (self._load is None):
            self._choice = None
        self._load = load

    # -- before a round --

    def choose(self) -> Choice:
        """See LengthPolicy, here and below."""
        # Idempotent: several callers plan with the same choice until `observe` drops it.
        if self._choice is None:
            self._choice, self._age = self._plan(), 0
        return self._choice

    def _plan(self) -> Choice:
        if not self._groups:
            return Choice(0, "plain decoding: there is no drafter")
        on = [group for group in self._groups if group.label not in self._backoffs]
        # One probe at a time, so that its time is not mixed with another's.
        self._probed = next((g for g in self._groups if g not in on and self._due(g)), None)
        drafting = on if self._probed is None else [*on, self._probed]
        if not on:  # with no drafter on, the price restarts from plain decoding
            self._tokens, self._rounds = Average(HORIZON), Average(HORIZON)
        before, most = self._length, self._longest(on)
        # Estimates reach further, but no deeper draft is begun than recent trees make plausible.
        self._length = length = min(most, self._deepest + DEEPER)
        # Forgets one level a plan; each round with drafts raises it to its tree's depth.
        self._deepest = max(0, self._deepest - 1)
        if self._probed is not None:
            length = max(length, min(PROBE_LENGTH, self._longest([self._probed])))
        estimates = self._estimates(on, most)
        # The cost of each step after the first, in committed tokens.
        price = self._price
        costs = [price * (further.ms - one.ms) for one, further in pairwise(estimates[1:])]
        return Choice(
            length=length,
            reason=self._reason(before, price, costs),
            drafters=frozenset(name for group in drafting for name in group.members),
            stop=self._stop(on, price, costs) if drafting else None,
            estimates=estimates,
            predicted_ms=0.0 if self._load else self._expected_ms(estimates, most),
        )

    def _expected_ms(self, estimates: Sequence[Estimate], most: int) -> float:
        """Of the coming round, if it takes as many passes as recent ones."""
        return estimates[min(most, round(self._passes.get(1.0)))].ms

    def _stop(self, on: Sequence[_DrafterGroup], price: float, costs: Sequence[float]) -> StopRule:
        limits = {
            # costs[i]: time of step i + 2 in committed tokens. The first step is not judged:
            # whether to draft at all is the back-off's decision.
            name: step_limits(group.rate.get(), costs, self._length)
            for group in on
            for name in group.members
        }
        if self._probed is not None:
            # A probe runs to its full length: to stop it by old scores would measure nothing.
            limits |= dict.fromkeys(self._probed.members, StopLimits(longest=PROBE_LENGTH))
        return StopRule(limits, price * self._node_ms)

    def _longest(self, groups: Sequence[_DrafterGroup]) -> int:
        """The longest draft that the node budget allows; 0 where nothing drafts."""
        names = [name for group in groups for name in group.names]
        return longest(self._config, names, self._config.max_speculation_length)

    def _due(self, group: _DrafterGroup) -> bool:
        """Whether it may be probed: its wait is over, and all probes together cost at most 1 % of
        the decode time."""
        costs = [self._costs.draft_costs(name) for name in group.names]
        # A drafter that waited has many tokens to catch up with: that start has a meter of its own.
        late_ms = sum(one.late.get(one.start.get()) + one.step_ms for one in costs)
        verify_ms = self._verify_ms(PROBE_LENGTH) - self._verify_ms(0)
        return self._backoffs.due(group.label, late_ms + verify_ms + self._overhead_ms)

    def _reason(self, before: int, price: float, costs: Sequence[float]) -> str:
        """A sentence for the reader: the length with its numbers, and what is switched off or
        probed."""
        after = self._length
        text = f"{before} -> {after}: " if before != after else f"{after} stays: "
        if not after:
            text += f"no draft beats plain decoding at {price * 1000:.0f} tokens a second"
        elif costs:
            score = min(1.0, costs[0] / max(self._groups[0].rate.get(), costs[0]))
            text += f"a second step takes {costs[0] / price:.2f} ms, a token {1 / price:.2f} ms, "
            text += f"so a draft goes on while its score is at least {score:.2f}"
        else:
            text += "the node budget allows one step"
        text, self._notice = text + self._notice, ""
        return text if self._probed is None else f"{text}; {self._probed.label} is tried again"

    # -- costs, in milliseconds --

    def _verify_ms(self, nodes: int) -> float:
        """The LLM's pass; of a pass that others share, this request's part."""
        if self._load is not None:
            return self._load.plain_ms + nodes * self._load.node_ms
        return self._costs.verify_ms(nodes, self._context)

    @property
    def _plain_ms(self) -> float:
        """A round without drafts. Before there was one, its overhead counts as that of the others:
        else it would be the drafts that pay for all of it."""
        if self._load is not None:
            return max(TINY_MS, self._load.plain_ms)
        drafted = self._costs.overhead[True].get()
        return max(TINY_MS, self._verify_ms(0) + self._costs.overhead[False].get(drafted))

    @property
    def _overhead_ms(self) -> float:
        """Extra time outside the models of a round with drafts."""
        if self._load is not None:
            return self._load.overhead_ms
        plain, drafted = (self._costs.overhead[drafts].value for drafts in (False, True))
        return max(0.0, drafted - plain) if plain is not None and drafted is not None else 0.0

    @property
    def _node_ms(self) -> float:
        """Verification time of one more node: the cost table's slope between half the recent number
        of nodes and all of it."""
        if self._load is not None:
            return self._load.node_ms
        # A slope over several nodes: t(n) has steps, and one more node is often free.
        nodes = max(2, round(self._nodes.get(USUAL_NODES)))
        half = nodes // 2
        return (self._verify_ms(nodes) - self._verify_ms(half)) / (nodes - half)

    @property
    def _price(self) -> float:
        """Recent goodput, committed tokens per millisecond; at least that of plain decoding."""
        if self._load is not None:
            return max(self._load.price, 1 / self._plain_ms)
        rounds = self._rounds.get()
        # Tokens over (plain rounds that would have taken as long) / ms of a plain round. Plain
        # decoding commits one token a round, hence the 1.
        return max(1.0, self._tokens.get() / rounds if rounds else 0.0) / self._plain_ms

    def _estimates(self, on: Sequence[_DrafterGroup], most: int) -> tuple[Estimate, ...]:
        """Expected tokens and time of each length from 0, for a chain: one verified node per level
        (other nodes are rarely kept). tokens(l) = 1 + r + ... + r^l, r the acceptance rate."""
        found = [Estimate(0, 0, 1.0, self._plain_ms)]
        costs = [self._costs.draft_costs(name) for group in on for name in group.names]
        # Only what is not hidden behind the LLM's pass makes a round longer.
        start_ms = self._exposed.get(1.0) * sum(one.start.get() for one in costs)
        step_ms = self._exposed.get(1.0) * sum(map(_step_ms, costs))
        fixed_ms = self._plain_ms + self._overhead_ms + start_ms - self._verify_ms(0)
        tokens = reach = 1.0
        # `fixed_ms` has the first step: the catch-up pass gives its logits.
        for length in range(1, most + 1):
            reach *= on[0].rate.get()
            tokens += reach
            ms = fixed_ms + (length - 1) * step_ms + self._verify_ms(length)
            found.append(Estimate(length, length, tokens, ms))
        return tuple(found)

    # -- after a round --

    def observe(self, outcome: RoundOutcome) -> None:
        """Updates the costs and balances; drops the plan once it has served its rounds."""
        # The choice that this round was made with: it is dropped at the end of `observe` only.
        choice = self.choose()
        self._age += 1
        if choice.length or outcome.drafts:
            self._observe_drafts(outcome)
            # The first plans of a run serve 1, 1, 2 and 4 rounds, later ones ROUNDS_PER_PLAN.
            over = self._age >= min(ROUNDS_PER_PLAN, self._rounds.weight / 2)
        else:
            self._backoffs.record_round(outcome.round_ms, self._labels)
            over = self._age >= ROUNDS_PER_PLAN
            if over:  # in plain decoding one measurement per plan is enough
                self._measure(outcome, {})
        # Also at once where a group was switched off, and after a probe, which must not be
        # repeated.
        if over or self._notice or self._probed is not None:
            self._choice = None

    def _observe_drafts(self, outcome: RoundOutcome) -> None:
        # An SSM whose draft was not worth starting is neither rewarded nor charged.
        drafts = {n: d for n, d in outcome.drafts.items() if d.ms > 0 or d.depths}
        self._measure(outcome, drafts)
        rounds = 1.0
        for group in self._groups:
            # In plain rounds: what the group must earn back in tokens.
            added = self._added_ms(group, outcome, drafts) / self._plain_ms
            self._judge(group, group.drafts_of(drafts), added)
            rounds += added
        waiting = tuple(group.label for group in self._groups if not group.drafts_of(drafts))
        self._backoffs.record_round(outcome.round_ms, waiting)
        self._tokens.add(outcome.num_tokens)
        self._rounds.add(rounds)
        if drafts:
            self._nodes.add(outcome.num_nodes)
            self._passes.add(1 + max(draft.steps for draft in drafts.values()))
            self._deepest = max(self._deepest, len(outcome.widths))

    def _measure(self, outcome: RoundOutcome, drafts: DraftOutcomes) -> None:
        """Adds the times of the LLM's pass, of each draft, and of the overhead between them."""
        costs, self._context = self._costs, outcome.context
        if self._load is None:
            costs.observe_pass(outcome.num_nodes, outcome.context, outcome.verify_ms)
        drafted_ms = sum(draft.ms for draft in drafts.values())
        # `round_ms` is without the hidden part, drafts' `ms` with it: added once, subtracted once.
        between_ms = outcome.round_ms + outcome.hidden_ms - outcome.verify_ms - drafted_ms
        costs.overhead[bool(drafts)].add(between_ms)
        # During another request's pass a further step is free as long as the pass lasts; a draft
        # begun ahead saves the part that was done early.
        if 0 < HIDDEN * drafted_ms <= outcome.hidden_ms:
            self._exposed.add(0.0)
        elif drafts and math.isfinite(drafted_ms):
            spared_ms = sum(self._spared_ms(name, draft) for name, draft in drafts.items())
            self._exposed.add(drafted_ms / max(TINY_MS, drafted_ms + spared_ms))
        late = self._probed.members if self._probed is not None else ()
        for name, draft in outcome.drafts.items():
            measured = costs.draft_costs(name)
            # A draft begun ahead shows only part of its time; it would make the meters too low.
            if draft.ms > 0 and not draft.ahead:
                rest_ms = draft.ms - draft.start_ms
                measured.add(draft.start_ms, rest_ms, draft.steps, late=name in late)
            if draft.prefill_ms > 0:
                measured.prefill.add(draft.prefill_ms)

    def _usual_ms(self, name: str, steps: int) -> float:
        """Predicted time of a draft with `steps` passes after the first, from smoothed costs."""
        costs = self._costs.draft_costs(name)
        return costs.start.get() + steps * _step_ms(costs)

    def _spared_ms(self, name: str, draft: DraftOutcome) -> float:
        """Time saved by a draft that was begun during the last verification."""
        # A chain: its passes after the first are its depth less one.
        usual_ms = self._usual_ms(name, max(draft.depths, default=1) - 1)
        return max(0.0, usual_ms - draft.ms) if draft.ahead else 0.0

    def _added_ms(
        self, group: _DrafterGroup, outcome: RoundOutcome, drafts: DraftOutcomes
    ) -> float:
        """Time that a group's drafts added to a round: drafting that was not hidden, its share of
        the verification by nodes, and the overhead, which counts for the round's first group."""
        own = group.drafts_of(drafts)
        if not own:
            return 0.0
        drafting_ms = sum(
            # Smoothed costs instead of this round's: one slow pass must not switch a drafter off.
            drafts[name].ms if drafts[name].ahead else self._usual_ms(name, drafts[name].steps)
            for name in group.members
            if name in drafts
        )
        drafted_ms = max(TINY_MS, sum(draft.ms for draft in drafts.values()))
        drafting_ms *= 1 - min(1.0, outcome.hidden_ms / drafted_ms)
        nodes = max(1, sum(draft.num_verified for draft in drafts.values()))
        verify_ms = self._verify_ms(outcome.num_nodes) - self._verify_ms(0)
        # By nodes: a node that both groups proposed counts for both.
        verify_ms *= sum(draft.num_verified for draft in own) / nodes
        first = next(one for one in self._groups if one.drafts_of(drafts))
        return drafting_ms + verify_ms + (self._overhead_ms if group is first else 0.0)

    def _judge(self, group: _DrafterGroup, own: Sequence[DraftOutcome], rounds: float) -> None:
        """Updates the group's balance: its accepted tokens minus the plain rounds (one token each)
        that would have fitted in its added time; switches the group off at -LOSS."""
        if group is self._probed:
            depth = max((max(draft.depths, default=0) for draft in own), default=0)
            # A probe succeeds if all of its draft was accepted.
            success = 0 < depth <= max((draft.accepted_depth for draft in own), default=0)
            self._backoffs.record_probe(group.label, rounds * self._plain_ms, success=success)
            return
        for draft in own:
            # Levels that were decided: all accepted ones and the first rejected; nothing is known
            # of deeper ones.
            for depth in range(min(max(draft.depths, default=0), draft.accepted_depth + 1)):
                group.rate.add(float(depth < draft.accepted_depth))
        # `credit`: tokens that no drafter before it proposed, so the groups' gains add up to the
        # round's.
        gain = sum(draft.credit for draft in own) - rounds
        group.balance = min(SAVED, group.balance + max(WORST, gain))
        if group.balance >= SAVED:
            self._backoffs.record_success(group.label)
        elif group.balance <= -LOSS:
            self._backoffs.switch_off(group.label)
            self._notice = f"; {group.label} stops drafting: it is {LOSS:g} tokens behind"
            group.balance = 0.0


def _step_ms(costs: DraftCosts) -> float:
    """Time of a further step, at most that of the first: both are one model pass. Otherwise a first
    timing that was far too long would end all further steps, and with them their timing."""
    return min(costs.step_ms, costs.start.get(costs.step_ms))
