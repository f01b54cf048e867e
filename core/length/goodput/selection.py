"""Crew: which teams draft, which are switched off, which are probed again (ALGORITHMS 4).

What a team is worth is what it brings beyond those chosen before it. Accepted depths of the last
rounds are replayed for that: the tree of several drafters goes as deep as the best of them, so any
smaller crew's depth is known for every round in which its members drafted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean

from core.length.base import RoundOutcome
from core.length.cost_model import RunBackoffs
from core.length.goodput import reasons
from core.length.goodput.drafter_group import Drafted, Team
from core.length.goodput.forecast import Outlook

__all__ = ["PROBE_LENGTH", "Crew"]

REPLAYED = 48
CLEARLY_LESS = 0.85
# Tokens a round by which another must be better to take the lead.
A_TRIFLE = 0.1
# Drafts before a team can be superfluous, and before it can be hopeless.
PATIENCE, TRIAL = 3, 6
# Drafts after which what it has brought says that it pays.
PROVEN = 16
PROBE_LENGTH = 2
IDLE = 4


class Crew:
    """`on`: the teams that draft, the best first. `said`: what was last decided, in words.
    `backoffs`: the others."""

    def __init__(self, teams: Sequence[Team], outlook: Outlook) -> None:
        self.teams = tuple(teams)
        self.said = ""
        self._outlook = outlook
        self.backoffs = RunBackoffs(outlook.costs.backoffs)
        self._rounds: deque[dict[str, Drafted]] = deque(maxlen=REPLAYED)
        self._opened: frozenset[str] = frozenset()
        # Decode time from which on a probe is affordable, by what it cost when last looked at.
        self._affordable_from = 0.0
        self.on = [team for team in self.teams if team.label not in self.backoffs]
        self.probed = self._probe()

    def hear(self, fits: Mapping[str, float]) -> None:
        """Before the first round: of the SSMs alone the one that foresees the prompt best begins;
        the others wait like those that others made superfluous."""
        judged = [team for team in self.on if team.label in fits]
        best = max(judged, key=lambda team: fits[team.label], default=None)
        for team in judged:
            if team is not best:
                self.backoffs.switch_off(team.label, hopeless=False)
                self.on.remove(team)
        self.probed = self._probe()

    # -- after a round --

    def observe(self, outcome: RoundOutcome) -> dict[str, Drafted]:
        """What each team's drafts came to, by label."""
        if not (outcome.drafts or self.on or self.probed):
            self.backoffs.passed(outcome.round_ms, tuple(team.label for team in self.teams))
            return {}
        found = {team.label: team.drafted(outcome) for team in self.teams}
        drafted = {label: one for label, one in found.items() if one is not None}
        self.backoffs.passed(outcome.round_ms, tuple(found.keys() - drafted.keys()))
        for team in self.teams:
            if team.label in drafted and team is not self.probed:
                team.observe(drafted[team.label])
        if self.probed is not None:
            self._judge_probe(self.probed, drafted, outcome)
        self._leave_out_the_idle(drafted, outcome.length)
        if self.on:
            members = {team.label for team in self.on}
            self._rounds.append({k: v for k, v in drafted.items() if k in members})
        self._opened |= {name for name, draft in outcome.drafts.items() if draft.ms > 0}
        return drafted

    def _judge_probe(
        self, team: Team, drafted: Mapping[str, Drafted], outcome: RoundOutcome
    ) -> None:
        """A success: alone, all that it drafted was accepted; else, it went beyond the others."""
        own = drafted.get(team.label) or Drafted(0.0, 0, 0, 0, 0)
        others = [d.reached for label, d in drafted.items() if label != team.label]
        success = own.reached > max(others, default=max(0, own.depth - 1))
        prefill = sum(outcome.drafts[n].prefill_ms for n in team.names if n in outcome.drafts)
        cost = own.ms + prefill + self._outlook.added_ms(own.nodes)
        self.backoffs.probed(team.label, cost, success=success)
        if success:
            # What it was before is another text's matter: it is judged anew.
            team.reset()
            team.rates.restart(own.reached)
            self.on.append(team)

    def _leave_out_the_idle(self, drafted: Mapping[str, Drafted], length: int) -> None:
        """Who was asked in vain so often has failed, or has no context left."""
        for team in self.on:
            team.idle = 0 if team.label in drafted or not length else team.idle + 1
            if team.idle >= IDLE:
                self.backoffs.switch_off(team.label, hopeless=False)
        self.on = [team for team in self.on if team.idle < IDLE]

    @property
    def awaits(self) -> bool:
        """Whether one that does not draft may do so next: it has waited long enough and its probe
        seems affordable, or a live neighbour's probe of it succeeded."""
        away = [team.label for team in self.teams if team not in self.on]
        affordable = self.backoffs.decode_ms >= self._affordable_from
        return any(
            k not in self.backoffs or (affordable and self.backoffs[k].is_over) for k in away
        )

    # -- before a round --

    def decide(self, price: float) -> None:
        """Who drafts next, at `price` tokens a millisecond; who is to be probed."""
        self.said = ""
        # Where a live neighbour's probe succeeded, it is worth another look here too.
        back = [t for t in self.teams if t not in self.on and t.label not in self.backoffs]
        for team in back:
            team.reset()
        self.on += back
        known = [team for team in self.on if team.rounds >= PATIENCE and team.measured]
        if known:
            chosen = self._chosen(known, price)
            for team in known:
                if team not in chosen:
                    self._switch_off(team)
                elif team.rounds >= PROVEN and self._has_paid(team):
                    self.backoffs.paid(team.label)
            self.on = chosen + [team for team in self.on if team not in known]
        self.probed = self._probe()

    def _chosen(self, known: list[Team], price: float) -> list[Team]:
        # Alone, a draft competes with plain decoding; beside others, with more rounds of theirs.
        plain = 1 / self._outlook.plain_ms
        paying = [t for t in known if t.rounds < TRIAL or self.worth(t, plain) > 0]
        if not paying:
            return []
        worths = [self.worth(team, price) for team in paying]
        near = (t for t, w in zip(paying, worths, strict=True) if w >= max(worths) - A_TRIFLE)
        chosen = [next(near)]
        while rest := [team for team in paying if team not in chosen]:
            best = max(rest, key=lambda team: self._margin(team, chosen, price))
            if self._margin(best, chosen, price) <= 0:
                break
            chosen.append(best)
        return chosen

    def worth(self, team: Team, price: float) -> float:
        """Tokens a round that drafting with this team alone brings beyond what its time is worth:
        the better of what it has brought and what the best fixed length should."""
        estimates = self._outlook.estimates([team])
        plain = estimates[0]
        expected = max(e.tokens - 1 - price * (e.ms - plain.ms) for e in estimates[1:])
        return max(expected, team.hoped - price * self._cost_ms(team))

    def _cost_ms(self, team: Team) -> float:
        """What drafting with this team alone has lately added to a round."""
        drafting = self._outlook.cover.charged(team.ms)
        return drafting + self._outlook.added_ms(round(team.nodes.get()))

    def _has_paid(self, team: Team) -> bool:
        """Whether it has brought more than plain decoding does in the time that it took."""
        return team.tokens.get() > self._cost_ms(team) / self._outlook.plain_ms

    def extra(self, team: Team, others: Sequence[Team]) -> float:
        """Accepted tokens a round beyond the best of `others`, with one round of one token assumed
        to begin with, and a standard error on top: what varies is not dropped by chance."""
        labels = [other.label for other in others]
        joint = [r for r in self._rounds if team.label in r and any(k in r for k in labels)]
        beyond = [1.0] + [
            max(0, r[team.label].reached - max(r[k].reached for k in labels if k in r))
            for r in joint
        ]
        # As pstdev says it, which counts in fractions: plans are made between two rounds.
        mean = fmean(beyond)
        variance = fmean((one - mean) ** 2 for one in beyond)
        return mean + sqrt(variance / len(beyond))

    def _margin(self, team: Team, others: Sequence[Team], price: float) -> float:
        added = self._verifying(team, others)
        drafting = self._outlook.cover.charged(team.ms, sum(other.ms for other in others))
        return self.extra(team, others) - CLEARLY_LESS * price * (drafting + added)

    def _verifying(self, team: Team, others: Sequence[Team]) -> float:
        """What verifying its nodes adds to verifying theirs."""
        nodes = sum(round(other.nodes.get()) for other in others)
        whole = self._outlook.verify_ms(nodes + round(team.nodes.get()))
        return whole - self._outlook.verify_ms(nodes)

    def share(self, team: Team) -> float:
        """The part of this team's accepted tokens that those before it do not bring."""
        before = self.on[: self.on.index(team)] if team in self.on else []
        if not before or team.rounds < PATIENCE:
            return 1.0
        return min(1.0, max(0.05, self.extra(team, before) / max(0.05, team.tokens.get())))

    def _switch_off(self, team: Team) -> None:
        hopeless = self.worth(team, 1 / self._outlook.plain_ms) <= 0
        self.backoffs.switch_off(team.label, hopeless=hopeless)
        others = [] if hopeless else [other for other in self.on if other is not team]
        brought = self.extra(team, others) if others else team.tokens.get()
        verifying = self._verifying(team, others)
        self.said = reasons.stops(team.label, brought, team.ms, verifying, hopeless=hopeless)

    def _probe(self) -> Team | None:
        """The team that has waited longest beyond its time, if its probe is affordable."""
        over = [
            team
            for team in self.teams
            if team.label in self.backoffs
            and team not in self.on
            and self.backoffs[team.label].is_over
        ]
        if not over:
            return None
        two = self._outlook.nodes(min(PROBE_LENGTH, self._outlook.longest(1)))
        added = self._outlook.added_ms(two)
        costs = {team.label: team.probe_ms(self._opened) + added for team in over}
        self._affordable_from = self.backoffs.affordable_from(min(costs.values()))
        due = [team for team in over if self.backoffs.due(team.label, costs[team.label])]
        waits = {team.label: self.backoffs[team.label] for team in due}
        late = {label: one.waited - one.interval for label, one in waits.items()}
        return max(due, key=lambda team: late[team.label], default=None)
