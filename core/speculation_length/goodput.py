"""`goodput`: after its first step, an SSM's draft goes on while the next step is expected to pay.
Lookups draft as deep as `Choice.length` allows.

One SSM drafts, and an audition may choose it; several draft with the combine rules `vote` and
`log_pool`, fused drafts or a router. Nodes not worth verifying may be dropped. A drafter that
falls behind plain decoding is switched off, and probed after growing waits. Probes take a small
share of the decode time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from core.config import SpeculationConfig
from core.config.budget import max_draft_depth
from core.config.mechanisms import combine_rule, draft_kind, is_model_free, routing_rule
from core.speculation_length.base import BatchLoad, Choice, DraftOutcome, RoundOutcome, StopLimits
from core.speculation_length.cost_model import Average, Costs, RunBackoffs
from core.speculation_length.round_costs import DraftOutcomes, RoundCosts
from core.speculation_length.stop_rule import StopRule, step_limits

__all__ = ["DEEPER", "Goodput"]

DEEPER = 8
"""How much deeper a draft may become than the deepest recently verified tree."""
# The most steps of an SSM's probe.
PROBE_LENGTH = 2
# The most rounds that use one plan.
ROUNDS_PER_PLAN = 8
# A drafter is switched off when it is MAX_DEFICIT tokens behind plain decoding. The gain of a round
# counts as at least MIN_GAIN tokens, since first timings are far too long. A drafter counts as at
# most MAX_BALANCE tokens ahead, so that it is switched off soon when its drafts get worse.
MAX_DEFICIT, MAX_BALANCE, MIN_GAIN = 4.0, 4.0, -1.5
# Prior of P(a token is accepted | its parent is), and its weight in tokens.
RATE, RATE_TOKENS = 0.75, 4


@dataclass
class _DrafterGroup:
    """Drafters that are switched on and off together. `names`: the `members` that draft at present.
    `balance`: how many tokens the group is ahead of plain decoding; negative: behind. `rate`: P(a
    token is accepted | its parent is)."""

    names: tuple[str, ...]
    members: tuple[str, ...] = ()
    balance: float = 0.0
    rate: Average = field(default_factory=Average)

    def __post_init__(self) -> None:
        self.members = self.members or self.names
        self.label = " + ".join(self.members)
        for _ in range(RATE_TOKENS):
            self.rate.add(RATE)

    def drafts_of(self, drafts: DraftOutcomes) -> list[DraftOutcome]:
        """The group's part of a round's drafts."""
        return [drafts[name] for name in self.members if name in drafts]


class Goodput:
    """See LengthPolicy, Auditions, RoutedPolicy, SharesPass."""

    def __init__(self, config: SpeculationConfig, costs: Costs) -> None:
        self._config, self._costs = config, costs
        self._backoffs = RunBackoffs(costs.backoffs)
        as_one = combine_rule(config.combine).one_draft or draft_kind(config.draft).fused
        ssms = tuple(name for name in config.drafters if as_one or not is_model_free(name))
        has_router = bool(routing_rule(config.routing).implementation)
        is_one_group = as_one or has_router
        # Only one SSM: each has host overhead (docs/results.md, "Speculation length").
        self._groups = [_DrafterGroup(ssms if is_one_group else ssms[:1])] if ssms else []
        # A lookup is a group of its own: it may stay on without the SSM.
        if not as_one:
            lookups = (name for name in config.drafters if is_model_free(name))
            self._groups += [_DrafterGroup((name,)) for name in lookups]
        self.chooses = not is_one_group and len(ssms) > 1
        self._round_costs = RoundCosts(costs)
        # The plan's length; the depth of recently verified trees; the rounds that used the plan.
        self._length = self._deepest = self._age = 0
        self._choice: Choice | None = None
        self._probe: _DrafterGroup | None = None
        self._notice = ""

    # -- the audition --

    def observe_audition(self, fits: Mapping[str, float]) -> None:
        """Selects the SSM with the highest mean log-probability."""
        if fits:
            self._groups[0] = _DrafterGroup((max(fits, key=lambda name: fits[name]),))
            self._choice = None

    def use_drafters(self, names: Sequence[str]) -> None:
        """See RoutedPolicy. The group keeps its rate and balance."""
        for group in self._groups[:1]:
            own_names = tuple(
                name for name in group.members if name in names or is_model_free(name)
            )
            group.names = own_names or group.names

    # -- the batch --

    def share(self, load: BatchLoad | None) -> None:
        """See SharesPass. The plan is dropped when the load becomes None or ceases to be None."""
        # Any other change of the load keeps the plan: the load may change in every round.
        if (load is None) != (self._round_costs.load is None):
            self._choice = None
        self._round_costs.load = load

    # -- before a round --

    def choose(self) -> Choice:
        """See LengthPolicy."""
        if self._choice is None:
            self._choice, self._age = self._plan(), 0
        return self._choice

    def _plan(self) -> Choice:
        if not self._groups:
            return Choice(0, "plain decoding: there is no drafter")
        on = [group for group in self._groups if group.label not in self._backoffs]
        # One probe at a time: the times of two probes would be mixed.
        self._probe = next((g for g in self._groups if g not in on and self._due(g)), None)
        drafting = on if self._probe is None else [*on, self._probe]
        if not on:
            self._round_costs.restart_price()
        before, most = self._length, self._longest(on)
        self._length = length = min(most, self._deepest + DEEPER)
        # `_deepest` falls by one level per plan; rounds with drafts may raise it.
        self._deepest = max(0, self._deepest - 1)
        if self._probe is not None:
            length = max(length, min(PROBE_LENGTH, self._longest([self._probe])))
        names = [name for group in on for name in group.names]
        # While the SSM is on, its group is the first: the groups of lookups come later.
        rate = on[0].rate.get() if on else 0.0
        estimates = self._round_costs.estimates(names, rate, most)
        # The cost of each step after the first, in committed tokens: drafting it with all drafters
        # that are on, and verifying one more level.
        price = self._round_costs.price
        costs = [price * (further.ms - one.ms) for one, further in pairwise(estimates[1:])]
        return Choice(
            length=length,
            reason=self._reason(before, rate, price, costs),
            drafters=frozenset(name for group in drafting for name in group.members),
            stop=self._stop(on, price, costs) if drafting else None,
            estimates=estimates,
            predicted_ms=self._round_costs.predicted_ms(estimates, most),
        )

    def _stop(self, on: Sequence[_DrafterGroup], price: float, costs: Sequence[float]) -> StopRule:
        limits = {
            name: step_limits(group.rate.get(), costs, self._length)
            for group in on
            for name in group.members
        }
        if self._probe is not None:
            # Scores do not end a probe: otherwise nothing would be measured.
            limits |= dict.fromkeys(self._probe.members, StopLimits(longest=PROBE_LENGTH))
        return StopRule(limits, price * self._round_costs.node_ms)

    def _longest(self, groups: Sequence[_DrafterGroup]) -> int:
        """The most steps that the node budget and `max_speculation_length` allow; 0 without
        groups."""
        names = [name for group in groups for name in group.names]
        return max_draft_depth(self._config, names, self._config.max_speculation_length)

    def _due(self, group: _DrafterGroup) -> bool:
        drafter_costs = [self._costs.draft_costs(name) for name in group.names]
        # A drafter that waited has many tokens to catch up on.
        late_ms = sum(one.late.get(one.start.get()) + one.step_ms for one in drafter_costs)
        costs = self._round_costs
        verify_ms = costs.verify_ms(PROBE_LENGTH) - costs.verify_ms(0)
        return self._backoffs.due(group.label, late_ms + verify_ms + costs.overhead_ms)

    def _reason(self, before: int, rate: float, price: float, costs: Sequence[float]) -> str:
        """A sentence for the user. `rate`: the acceptance rate of the drafter whose stop score is
        shown."""
        after = self._length
        text = f"{before} -> {after}: " if before != after else f"{after} stays: "
        if not after:
            text += f"no draft beats plain decoding at {price * 1000:.0f} tokens a second"
        elif costs:
            score = min(1.0, costs[0] / max(rate, costs[0]))
            text += f"a second step takes {costs[0] / price:.2f} ms, a token {1 / price:.2f} ms, "
            text += f"so a draft goes on while its score is at least {score:.2f}"
        else:
            at_limit = self._config.max_speculation_length == 1
            text += f"{'max_speculation_length' if at_limit else 'the node budget'} allows one step"
        text, self._notice = text + self._notice, ""
        return text if self._probe is None else f"{text}; {self._probe.label} is tried again"

    # -- after a round --

    def observe(self, outcome: RoundOutcome) -> None:
        """See LengthPolicy."""
        choice = self.choose()
        self._age += 1
        if choice.length or outcome.drafts:
            self._observe_drafts(outcome)
            # The first plans of a run serve fewer rounds.
            over = self._age >= min(ROUNDS_PER_PLAN, self._round_costs.num_rounds / 2)
        else:
            labels = tuple(group.label for group in self._groups)
            self._backoffs.record_round(outcome.round_ms, labels)
            over = self._age >= ROUNDS_PER_PLAN
            if over:  # in plain decoding one measurement per plan is enough
                self._round_costs.measure(outcome, {}, self._probe_names)
        # A plan also ends after a group was switched off or probed.
        if over or self._notice or self._probe is not None:
            self._choice = None

    def _observe_drafts(self, outcome: RoundOutcome) -> None:
        # Drafters whose draft was not worth starting neither gain nor cost anything.
        drafts = {n: d for n, d in outcome.drafts.items() if d.ms > 0 or d.depths}
        costs = self._round_costs
        costs.measure(outcome, drafts, self._probe_names)
        # Time of this round, in units of a plain round.
        plain_rounds = 1.0
        first = next((one for one in self._groups if one.drafts_of(drafts)), None)
        for group in self._groups:
            added_ms = costs.added_ms(group.members, outcome, drafts, first=group is first)
            # `rounds` is also a number of tokens: plain decoding commits one token per round.
            rounds = added_ms / costs.plain_ms
            self._update_balance(group, group.drafts_of(drafts), rounds)
            plain_rounds += rounds
        not_drafting = tuple(g.label for g in self._groups if not g.drafts_of(drafts))
        self._backoffs.record_round(outcome.round_ms, not_drafting)
        costs.record(outcome, drafts, plain_rounds)
        if drafts:
            self._deepest = max(self._deepest, len(outcome.widths))

    @property
    def _probe_names(self) -> tuple[str, ...]:
        return self._probe.members if self._probe is not None else ()

    def _update_balance(
        self, group: _DrafterGroup, own: Sequence[DraftOutcome], rounds: float
    ) -> None:
        """Updates the balance of a group, and switches the group off at -MAX_DEFICIT. For a probed
        group, records the probe's result instead. `rounds`: the time that the group added, in plain
        rounds."""
        if group is self._probe:
            depth = max((max(draft.depths, default=0) for draft in own), default=0)
            # A probe succeeds if the accepted path is as deep as the deepest draft.
            success = 0 < depth <= max((draft.accepted_depth for draft in own), default=0)
            probe_ms = rounds * self._round_costs.plain_ms
            self._backoffs.record_probe(group.label, probe_ms, success=success)
            return
        for draft in own:
            # Verification decides only about the accepted levels and the first rejected level.
            for depth in range(min(max(draft.depths, default=0), draft.accepted_depth + 1)):
                group.rate.add(float(depth < draft.accepted_depth))
        # `credit` omits tokens that an earlier drafter proposed too: no token counts twice.
        gain = sum(draft.credit for draft in own) - rounds
        group.balance = min(MAX_BALANCE, group.balance + max(MIN_GAIN, gain))
        if group.balance >= MAX_BALANCE:
            self._backoffs.record_success(group.label)
        elif group.balance <= -MAX_DEFICIT:
            self._backoffs.switch_off(group.label)
            self._notice = f"; {group.label} stops drafting: it is {MAX_DEFICIT:g} tokens behind"
            group.balance = 0.0
