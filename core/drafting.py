"""Drafting: step 2 of a round, for all live requests. Who is asked for what, and their answers.

Requests that ask one drafter share its passes. Knows no LLM and no verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many

from core.drafters.base import Ask, Drafter, cut_shape, shape_nodes
from core.drafters.pool import LogPool, PoolAsk
from core.drafters.ssm import SsmDrafter
from core.errors import FORESEEN, DrafterError
from core.turn import Live, Turn

__all__ = ["Drafting", "asks_of"]


class Drafting:
    """Owns the drafters, by name."""

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self._drafters = drafters
        self._ssms = {name: d for name, d in drafters.items() if isinstance(d, SsmDrafter)}
        self._pool = LogPool(self._ssms)

    def named(self, names: Many[str]) -> tuple[Drafter, ...]:
        """The drafters of a run, in its order."""
        return tuple(self._drafters[name] for name in names)

    def draft(self, turns: Many[Turn]) -> None:
        """Fills in each turn's drafts, and tells its weights what the drafters learnt."""
        alone: dict[str, list[tuple[Turn, Ask]]] = {}
        for turn in turns:
            asks = [ask for ask in asks_of(turn) if _opened(turn.live, ask.index)]
            for ask in self._draft_together(turn, asks):
                alone.setdefault(ask.name, []).append((turn, ask))
        for name, asked in alone.items():
            self._draft_alone(name, asked)
        for turn in turns:
            # A neighbour in the batch may have asked in another order: each keeps its own.
            turn.drafts = dict(sorted(turn.drafts.items()))
            for draft in turn.drafts.values():
                turn.timed.extend(draft.timed)
            _hear(turn)

    @property
    def ssms(self) -> Mapping[str, SsmDrafter]:
        """Those of the drafters that are models, by name."""
        return self._ssms

    def commit(self, turn: Turn, committed: tuple[int, ...]) -> None:
        """The drafters take over what was committed."""
        live = turn.live
        for index in sorted(live.opened):
            try:
                draft = turn.drafts.get(index)
                live.drafters[index].commit(live.sequence, draft, committed)
            except FORESEEN as error:
                live.lose(index, error)

    def close(self, live: Live) -> None:
        """The drafters forget a request; safe to call in any state."""
        for index in live.opened:
            live.drafters[index].close(live.sequence)
        live.opened.clear()

    def _draft_alone(self, name: str, asked: list[tuple[Turn, Ask]]) -> None:
        """One drafter's drafts for all who ask it; all lose it if it fails."""
        try:
            drafts = self._drafters[name].draft([ask for _, ask in asked])
        except FORESEEN as error:
            for turn, ask in asked:
                turn.live.lose(ask.index, error)
            return
        for (turn, ask), draft in zip(asked, drafts, strict=True):
            turn.drafts[ask.index] = draft

    def _draft_together(self, turn: Turn, asks: list[Ask]) -> list[Ask]:
        """`log_pool`: the SSMs of a run draft one tree. Returns whoever is left to draft alone."""
        pooled = [ask for ask in asks if ask.name in self._ssms]
        if turn.speculation.combine != "log_pool" or not pooled:
            return asks
        weights = turn.ballot.weights
        pool = PoolAsk(tuple(pooled), tuple(weights[ask.index] for ask in pooled))
        try:
            for ask, draft in zip(pooled, self._pool.draft(pool), strict=True):
                turn.drafts[ask.index] = draft
        except DrafterError as error:
            # Without a pool's draft in this round; the next goes on with those that are left.
            turn.live.lose(next(ask.index for ask in pooled if ask.name == error.name), error)
        return [ask for ask in asks if ask not in pooled]


def asks_of(turn: Turn, beyond: int = 0) -> list[Ask]:
    """What each drafter is asked for: shapes and budgets, fixed before anything is drawn; for a
    draft that begins `beyond` tokens behind the text, if the next round is chosen like this."""
    live, sequence, choice = turn.live, turn.live.sequence, turn.choice
    config = turn.speculation
    shape = config.shape(max(0, min(choice.length, sequence.room - beyond)))
    chosen = [
        index
        for index, drafter in enumerate(live.drafters)
        if index not in live.lost and (choice.drafters is None or drafter.name in choice.drafters)
    ]
    asks = []
    for index, budget in zip(chosen, live.budgets(shape_nodes(shape), len(chosen)), strict=True):
        # Best first spends its budget by score; the others are cut beforehand.
        fitted = shape if config.draft == "best_first" else cut_shape(shape, budget)
        name = live.drafters[index].name
        if shape and budget and fitted:
            ask = Ask(sequence, index, config.draft, fitted, budget, name, choice.stop, beyond)
            asks.append(ask)
    return asks


def _opened(live: Live, index: int) -> bool:
    """Whether a drafter knows the request, which it is told when first asked."""
    if index not in live.opened:
        live.opened.add(index)
        try:
            live.timed.extend(live.drafters[index].open(live.sequence))
        except FORESEEN as error:
            live.lose(index, error)
    return index in live.opened


def _hear(turn: Turn) -> None:
    """The weights hear how probable the drafters held what was committed since."""
    live = turn.live
    told = {drafter.name: drafter.likelihoods(live.sequence) for drafter in live.drafters}
    live.weights.foretold({name: found for name, found in told.items() if found})
