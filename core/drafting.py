"""Drafting: step 2 of a round, for all live requests. Who is asked for what, and their answers.

Requests that ask one drafter share its passes. Knows no LLM and no verification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from typing import TypeVar

from core.ahead import judged
from core.budget import cut_shape, shape_nodes
from core.drafters import make_drafters
from core.drafters.base import Ask, Drafter, Drafts
from core.drafters.foresight import Done, Plan
from core.drafters.homes import Homes
from core.drafters.pool import PoolAsk
from core.drafters.studio import Studio
from core.errors import DRAFTER_FAULTS, DrafterError
from core.length import Auditions
from core.mechanisms import combine_rule, draft_kind
from core.models.loading import LoadedModels
from core.turn import Live, Turn
from core.weights import needs_likelihoods

__all__ = ["Drafting", "asks_of"]

Answer = TypeVar("Answer")


class Drafting:
    """Owns the drafters, by name. `place`: where SSMs draft beside the LLM, see `Homes`; `looped`:
    see `Studio`."""

    def __init__(self, models: LoadedModels, place: str, looped: bool | None = None) -> None:
        self.homes = Homes(models.ssms, models.llm, place, looped)
        self._drafters = make_drafters(self.homes)
        self._live: Many[Live] = ()

    def named(self, names: Many[str]) -> tuple[Drafter, ...]:
        """The drafters of a run, in its order."""
        return tuple(self._drafters[name] for name in names)

    def audition(self, live: Live) -> None:
        """Tells a length policy that chooses who drafts which of several SSMs foresee the prompt:
        specialised ones differ, and to let all of them draft costs rounds."""
        names = [one.name for one in live.drafters if one.name in self.homes.here.ssms]
        policy = live.policy
        if len(names) < 2 or not isinstance(policy, Auditions) or not policy.chooses:
            return
        fits, timed = self.homes.here.fits(names, live.sequence.prompt_ids)
        live.timed += timed
        policy.hear(fits)

    def settle(self, live: Many[Live], modes: Mapping[str, str]) -> None:
        """Where each run's SSMs work in this round: apart from the LLM, where they overlap it."""
        self._live = live
        pipelined = any(mode != "off" for mode in modes.values())
        self._note(self.homes.keep(wanted=pipelined))
        for one in live:
            self._settle(one, apart=modes[one.sequence.run_id] != "off")

    def _settle(self, live: Live, *, apart: bool) -> None:
        failed = self._asked(lambda: self.homes.settle(live.sequence, apart=apart))
        for index, drafter in enumerate(live.drafters):
            if drafter.name in failed:
                live.lose(index, failed[drafter.name])

    def draft(self, turns: Many[Turn]) -> None:
        """Fills in each turn's drafts, judges what was made of them ahead, and tells its weights
        what the drafters learnt."""
        alone: dict[str, list[tuple[Turn, Ask]]] = {}
        for turn in turns:
            for ask in self._draft_together(turn, self.asks(turn)):
                alone.setdefault(ask.name, []).append((turn, ask))
        self._draft_alone(alone)
        for turn in turns:
            # A neighbour in the batch may have asked in another order: each keeps its own.
            turn.drafts = dict(sorted(turn.drafts.items()))
            for draft in turn.drafts.values():
                turn.timed.extend(draft.timed)
            turn.ahead = judged(turn)
            _hear(turn)

    def asks(self, turn: Turn) -> list[Ask]:
        """Of the turn's drafters that know its request, which they are told when first asked."""
        return [ask for ask in asks_of(turn) if self._opened(turn.live, ask.index)]

    def studio(self, turns: Many[Turn]) -> Studio | None:
        """Where the turns' SSMs work, if all of them do so in this process."""
        here = self.homes.here
        return here if all(self.homes.of(t.live.sequence) is here for t in turns) else None

    def foresee(self, turns: Many[Turn], done: Done) -> None:
        """Drafts ahead for turns whose trees are being verified; all of them are at home in one
        place. Where no SSM drafted, none knows the text as far as it goes: there is nothing to do.
        """
        planned = [(turn, plan) for turn in turns if (plan := self._plan(turn)).weights]
        if not planned:
            return
        turns, plans = [turn for turn, _ in planned], [plan for _, plan in planned]
        try:
            seen, failed = self.homes.of(turns[0].live.sequence).foresee(plans, done)
        except DRAFTER_FAULTS:
            if not self._recovered():
                raise
            return
        for turn, found in zip(turns, seen, strict=True):
            turn.foreseen = found
        for name, error in failed.items():
            for turn in turns:
                for index, drafter in enumerate(turn.live.drafters):
                    if drafter.name == name and index in turn.live.opened:
                        turn.live.lose(index, error)

    def _plan(self, turn: Turn) -> Plan:
        """The SSMs that drafted in this round, and what they will be asked for in the next if it is
        chosen like this one."""
        weights = turn.ballot.weights
        names = {i: turn.live.drafters[i].name for i in turn.drafts}
        ssms = {i: name for i, name in names.items() if name in self.homes.here.ssms}
        behind = range(1, turn.tree.depth + 2)
        return Plan(
            turn.live.sequence,
            turn.tree,
            {name: weights[i] for i, name in ssms.items()},
            tuple(
                {ask.name: ask for ask in asks_of(turn, tokens) if ask.index in ssms}
                for tokens in behind
            ),
        )

    def commit(self, turn: Turn, committed: tuple[int, ...]) -> None:
        """The drafters take over what was committed."""
        live = turn.live
        for index in sorted(live.opened):
            try:
                draft = turn.drafts.get(index)
                live.drafters[index].commit(live.sequence, draft, committed)
            except DRAFTER_FAULTS as error:
                # An SSM that came home from a process has nothing fed to commit.
                if not self._recovered():
                    live.lose(index, error)

    def close(self, live: Live) -> None:
        """The drafters forget a request; safe to call in any state. One that cannot has nobody
        left to tell."""
        for index in live.opened:
            try:
                live.drafters[index].close(live.sequence)
            except DRAFTER_FAULTS:
                self._recovered()
        live.opened.clear()
        self.homes.left(live.sequence.run_id)

    def _asked(self, work: Callable[[], Answer]) -> Answer:
        """What SSMs answer; asked again here if they were in a process that is gone."""
        try:
            return work()
        except DRAFTER_FAULTS:
            if not self._recovered():
                raise
            return work()

    def _recovered(self) -> bool:
        """Whether an error was the process's: then everybody is back from it."""
        said = self.homes.recover()
        self._note(said)
        return bool(said)

    def _note(self, said: str) -> None:
        for one in self._live if said else ():
            if one.sequence.speculation.pipeline != "off":
                one.notes.append(said)

    def _opened(self, live: Live, index: int) -> bool:
        """Whether a drafter knows the request, which it is told when first asked."""
        if index not in live.opened:
            live.opened.add(index)
            try:
                timed = self._asked(lambda: live.drafters[index].open(live.sequence))
                live.timed.extend(timed)
            except DRAFTER_FAULTS as error:
                live.lose(index, error)
        return index in live.opened

    def _draft_alone(self, asked: Mapping[str, Many[tuple[Turn, Ask]]]) -> None:
        """Each drafter's drafts for all who ask it, the SSMs' at once; all lose one that fails."""
        asks = {name: [ask for _, ask in whose] for name, whose in asked.items()}
        for name, drafts in self._answers(asks).items():
            if isinstance(drafts, BaseException):
                for turn, ask in asked[name]:
                    turn.live.lose(ask.index, drafts)
            else:
                for (turn, ask), draft in zip(asked[name], drafts, strict=True):
                    turn.drafts[ask.index] = draft

    def _answers(self, asks: Mapping[str, list[Ask]]) -> dict[str, Drafts]:
        """What each drafter says, or how it failed."""
        housed = {name: asks[name] for name in asks if name in self.homes.here.ssms}
        found: dict[str, Drafts] = {}
        try:
            found |= self._asked(lambda: self.homes.draft(housed))
        except DRAFTER_FAULTS as error:
            found |= dict.fromkeys(housed, error)
        for name in [name for name in asks if name not in housed]:
            try:
                found[name] = self._drafters[name].draft(asks[name])
            except DRAFTER_FAULTS as error:
                found[name] = error
        return found

    def _draft_together(self, turn: Turn, asks: list[Ask]) -> list[Ask]:
        """`log_pool`: the SSMs of a run draft one tree. Returns whoever is left to draft alone."""
        pooled = [ask for ask in asks if ask.name in self.homes.here.ssms]
        if not combine_rule(turn.speculation.combine).pooled or not pooled:
            return asks
        weights = turn.ballot.weights
        pool = PoolAsk(tuple(pooled), tuple(weights[ask.index] for ask in pooled))
        try:
            drafts = self._asked(lambda: self.homes.of(turn.live.sequence).pool(pool))
            for ask, draft in zip(pooled, drafts, strict=True):
                turn.drafts[ask.index] = draft
        except DRAFTER_FAULTS as error:
            # Without a pool's draft in this round; the next goes on with those that are left.
            named = [a for a in pooled if isinstance(error, DrafterError) and a.name == error.name]
            for ask in named or pooled:
                turn.live.lose(ask.index, error)
        return [ask for ask in asks if ask not in pooled]


def asks_of(turn: Turn, beyond: int = 0) -> list[Ask]:
    """What each drafter is asked for: shapes and budgets, fixed before anything is drawn; for a
    draft that begins `beyond` tokens behind the text, if the next round is chosen like this."""
    live, sequence, choice = turn.live, turn.live.sequence, turn.choice
    config = turn.speculation
    shape = config.shape(max(0, min(choice.length, sequence.room - beyond)))
    asked = live.asked(choice)
    asks = []
    for index, budget in zip(asked, live.budgets(shape_nodes(shape), asked), strict=True):
        # Best first spends its budget by score; the others are cut beforehand.
        fitted = shape if draft_kind(config.draft).by_score else cut_shape(shape, budget)
        name = live.drafters[index].name
        if shape and budget and fitted:
            ask = Ask(sequence, index, config.draft, fitted, budget, name, choice.stop, beyond)
            asks.append(ask)
    return asks


def _hear(turn: Turn) -> None:
    """The weights hear how probable the drafters held what was committed since."""
    if not needs_likelihoods(turn.speculation):
        return
    live, sequence = turn.live, turn.live.sequence
    caught_up = {index for index, draft in turn.drafts.items() if draft.passes}
    told = {}
    for index in sorted(live.opened):
        name = live.drafters[index].name
        told[name] = live.drafters[index].likelihoods(sequence)
        whole = index in caught_up
        live.heard.reach(name, len(told[name]), len(sequence.tokens), whole=whole)
    live.weights.foretold(told, live.heard)
