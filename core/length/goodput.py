"""`goodput`: drafts as long as drafting pays, by costs and acceptance measured while running.

One price, committed tokens a millisecond, compares everything: a further step, a further node, a
further drafter, and drafting at all with plain decoding (ALGORITHMS 4; in the spirit of SmartSpec's
goodput, with a stop inside the draft). `length` is the longest draft that a round in which the
drafter is sure of itself should take; unsure ones are ended earlier by `StepRule`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from core.config import SpeculationConfig
from core.costs import Acceptance, Costs
from core.events import Estimate
from core.length import reasons
from core.length.base import Choice, DraftOutcome, RoundOutcome
from core.length.bound import Bound, Step
from core.length.crew import PROBE_LENGTH, Crew
from core.length.look import LOOK_LENGTH, Look
from core.length.outlook import Outlook
from core.length.price import Price
from core.length.rule import StepRule, Terms
from core.length.team import Team
from core.mechanisms import combine_rule

__all__ = ["Goodput"]

FIRST = 4
# A plan holds for so many rounds, in the first of a run for fewer, since making it costs as much as
# some of them gain.
PLANNED, UNSETTLED = 8, 2
# Where nobody drafts, until a probe may be due, but no longer than this.
RESTING = 16
SETTLED = 8


class Goodput:
    """See LengthPolicy. `speculation_length` is not read: the length is found."""

    def __init__(self, config: SpeculationConfig, costs: Costs) -> None:
        self._costs = costs
        carried = costs.carried if config.carry_over else {}
        self._acceptance = {n: _of(carried, costs, n) for n in config.drafters}
        together = combine_rule(config.combine).one_draft
        sets = (
            [config.drafters] if together and config.drafters else [(n,) for n in config.drafters]
        )
        teams = [Team(names, costs, self._rates(carried, names)) for names in sets]
        self._outlook = Outlook(config, costs)
        self._crew = Crew(teams, self._outlook)
        self._price = Price()
        self._look = Look()
        self._bound = Bound(min(FIRST, config.max_speculation_length))
        self._length = 0
        self._changed = False
        self._rounds = 0
        self._observed = 0
        self._choice: Choice | None = None
        # The last choice's length, where that was longer only for the sake of a try.
        self._tried: int | None = None

    def _rates(self, carried: dict[str, Acceptance], names: tuple[str, ...]) -> Acceptance:
        """Where a team's rates are kept: with its drafter, or apart where there are several."""
        own = self._acceptance.get(names[0]) if len(names) == 1 else None
        return own or _of(carried, self._costs, " + ".join(names))

    @property
    def chooses(self) -> bool:
        """See Auditions, here and below."""
        return len(self._crew.teams) > 1

    def hear(self, fits: Mapping[str, float]) -> None:
        self._crew.hear(fits)

    @property
    def _restless(self) -> bool:
        """Whether a new plan may be needed at once: behind a change, and where nobody drafts, if
        the plan is another's or a probe is due."""
        idle = not self._crew.on and (self._length > 0 or self._crew.awaits)
        return self._changed or idle

    @property
    def _holds(self) -> int:
        """For how many rounds a plan holds."""
        if not self._crew.on:
            return RESTING
        young = any(team.rounds < SETTLED for team in self._crew.on)
        return UNSETTLED if young else PLANNED

    def choose(self) -> Choice:
        if self._choice is None:
            self._rounds = 0
            self._choice = self._chosen()
            self._tried = self._choice.length if self._choice.length > self._length else None
        return self._choice

    # -- learning --

    def observe(self, outcome: RoundOutcome) -> None:
        choice = self.choose()
        self._outlook.refresh(outcome.context)
        plain_ms = self._outlook.plain_ms
        self._price.observe(outcome.num_tokens, outcome.round_ms, choice.predicted_ms, plain_ms)
        probed, looked = self._crew.probed, self._look.due
        self._learn_costs(outcome, probed.names if probed is not None else ())
        for name, draft in outcome.drafts.items():
            self._learn_odds(name, draft, outcome.length)
        drafted = self._crew.observe(outcome)
        if probed is None and drafted:
            ran = [team for team in self._crew.on if team.label in drafted]
            self._outlook.observe(outcome, ran, max(one.depth for one in drafted.values()))
        self._outlook.refresh(outcome.context)
        self._rounds += 1
        self._observed += 1
        if probed is not None or looked or self._restless or self._rounds >= self._holds:
            self._choice = None

    def _learn_costs(self, outcome: RoundOutcome, late: Sequence[str]) -> None:
        self._costs.verified(outcome.num_nodes, outcome.context, outcome.verify_ms)
        drafting = [draft for draft in outcome.drafts.values() if draft.ms > 0 or draft.depths]
        drafted = sum(draft.ms for draft in drafting)
        books = outcome.round_ms + outcome.hidden_ms - outcome.verify_ms - drafted
        self._costs.overhead[bool(drafting)].add(books)
        spared = sum(self._spared(name, draft) for name, draft in outcome.drafts.items())
        crew = self._crew.on
        further = sum(team.step_ms for team in crew)
        self._outlook.cover.observe(drafted, outcome.hidden_ms, spared, further)
        if drafting and crew:
            self._look.observe(_step_ms(outcome.drafts.get(crew[0].names[0])), crew[0].step_ms)
        for name, draft in outcome.drafts.items():
            costs = self._costs.drafting(name)
            if draft.ms > 0 and not draft.ahead:
                rest = draft.ms - draft.start_ms
                costs.add(draft.start_ms, rest, draft.steps, late=name in late)
            if draft.prefill_ms > 0:
                costs.prefill.add(draft.prefill_ms)

    def _spared(self, name: str, draft: DraftOutcome) -> float:
        """What a draft would have taken that was begun during the last verification."""
        if not draft.ahead:
            return 0.0
        costs, passes = self._costs.drafting(name), max(draft.depths, default=1)
        return max(0.0, costs.start.get() + (passes - 1) * costs.step_ms - draft.ms)

    def _learn_odds(self, name: str, draft: DraftOutcome, length: int) -> None:
        acceptance = self._acceptance.get(name)
        if acceptance is None or not draft.depths:
            return
        path = frozenset(draft.path)
        masses = [0.0] * max(draft.depths)
        for node, (depth, chance) in enumerate(zip(draft.depths, draft.chances, strict=True)):
            masses[depth - 1] += acceptance.learn(depth, chance, node in path)
        for team in self._crew.on:
            if team.names[0] == name:
                team.note_sureness([min(1.0, mass) for mass in masses], length)

    # -- deciding --

    def _chosen(self) -> Choice:
        if not self._crew.teams:
            return Choice(0, "plain decoding: there is no drafter")
        price = self._price.get(self._outlook.plain_ms)
        self._crew.decide(price)
        crew, probed = self._crew.on, self._crew.probed
        before = self._length
        reason = self._follow(crew, price)
        if self._tried is not None:
            reason = f"{self._tried} was for a try; {reason}"
        self._changed = self._length != before or bool(self._crew.said)
        self._look.plan(self._length, self._outlook.longest(sum(len(t.names) for t in crew) or 1))
        estimates = self._outlook.estimates(crew)
        length = self._length
        if probed is not None:
            waited = self._crew.backoffs[probed.label].waited
            reason += f"; {reasons.tried_again(probed.label, waited, self._observed)}"
            length = max(length, min(PROBE_LENGTH, self._outlook.longest(1)))
        if self._look.due:
            reason += "; two steps are tried, to see what the second costs now"
            length = max(length, LOOK_LENGTH)
        if self._crew.said:
            reason += f"; {self._crew.said}"
        teams = [*crew, probed] if probed is not None else crew
        return Choice(
            length=length,
            reason=reason,
            drafters=frozenset(name for team in teams for name in team.names),
            stop=self._rule(teams, price) if teams else None,
            estimates=estimates,
            predicted_ms=self._predicted(teams, estimates),
        )

    def _follow(self, crew: Sequence[Team], price: float) -> str:
        """Moves the length; says why."""
        before = self._length
        if not crew:
            self._length = 0
            return reasons.plain(before, price)
        steps = self._steps(crew, price)
        if not crew[0].measured or not self._price.known:
            self._length = min(self._bound.length, len(steps))
            return f"{self._length} to begin with, to see what drafting costs and brings"
        self._bound.follow(steps, price)
        self._length = after = self._bound.length
        further = steps[after] if after < len(steps) else None
        if after > before:
            return reasons.moved(before, after, steps[after - 1], price)
        if after < before and further is not None:
            return reasons.moved(before, after, further, price)
        limit = self._outlook.limit(sum(len(team.names) for team in crew))
        return reasons.rests(after, further, price, limit=limit, lately=crew[0].forgets)

    def _steps(self, crew: Sequence[Team], price: float) -> list[Step]:
        """Each step of the leading team: its time, and the tokens it brings in a round in which
        the drafter is as sure as in one of ten."""
        lead = crew[0]
        steps, sure = [], 1.0
        timed = self._timed(lead, sum(len(team.names) for team in crew))
        for depth, step in enumerate(timed, 1):
            seen = lead.sure(depth - 1)
            sure = seen if seen is not None else sure * timed[depth - 2].tokens
            steps.append(Step(step.ms, sure * step.tokens))
        return steps

    def _timed(self, team: Team, drafters: int) -> tuple[Step, ...]:
        """A team's steps: time, and tokens if the node before was accepted."""
        sizes = self._outlook.sizes(drafters)
        rates = team.rates.upto(len(sizes) - 1)
        on = self._crew.on
        before = sum(other.ms for other in (on[: on.index(team)] if team in on else on))
        times = []
        for ms in [team.start_ms] + [team.step_ms] * (len(rates) - 1):
            times.append(self._outlook.cover.charged(ms, before))
            before += ms
        return tuple(
            Step(ms + (more - less) / drafters, rate)
            for ms, rate, ((_, less), (_, more)) in zip(times, rates, pairwise(sizes), strict=True)
        )

    def _rule(self, teams: Sequence[Team], price: float) -> StepRule:
        drafters = sum(len(team.names) for team in teams)
        terms = {}
        for team in teams:
            probed = team is self._crew.probed
            looks = self._look.due and team is teams[0]
            steps = self._timed(team, drafters)
            longest = PROBE_LENGTH if probed else LOOK_LENGTH if looks else self._length
            share, forced = 1.0 if probed else self._crew.share(team), probed or looks
            for name in team.names:
                terms[name] = Terms(self._acceptance[name], steps, share, longest, forced=forced)
        nodes = self._outlook.nodes(min(self._length, len(steps)), drafters)
        return StepRule(terms, price, self._outlook.node_ms(nodes))

    def _predicted(self, teams: Sequence[Team], estimates: Sequence[Estimate]) -> float:
        """Of the coming round: drafts as long as they have been lately, within the bound."""
        if not teams:
            return self._outlook.plain_ms
        if any(team.rounds == 0 for team in teams):
            return estimates[min(self._length, len(estimates) - 1)].ms
        steps = [min(team.steps.get(), max(0, self._length - 1)) for team in teams]
        drafting = sum(t.start_ms + s * t.step_ms for t, s in zip(teams, steps, strict=True))
        added = self._outlook.added_ms(self._outlook.nodes_lately)
        return self._outlook.cover.charged(drafting) + self._outlook.plain_ms + added


def _step_ms(draft: DraftOutcome | None) -> float | None:
    """A further step's time in a draft, if it had one."""
    if draft is None or draft.ahead or not draft.steps:
        return None
    return (draft.ms - draft.start_ms) / draft.steps


def _of(carried: dict[str, Acceptance], costs: Costs, name: str) -> Acceptance:
    """What runs hand on under this name; else what begins with its record."""
    if name not in carried:
        carried[name] = costs.acceptance(name)
    return carried[name]
