"""SsmDrafter: a small speculative model (SSM) as a drafter.

Kept in step with the committed text without recomputing it: the KV of the accepted part of what it
was fed is kept, and what is missing (after full acceptance its own last token, and whatever the
others proposed) is caught up in one pass at the next draft. `guess` and `go_on` draft ahead, behind
tokens that are not committed yet; a guess that comes true is the start of the next draft.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import replace
from typing import TypeVar

import torch

from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, absorbed, growth
from core.drafters.lockstep import Steps, alone
from core.drafters.state import Feeding, Pending, SsmState
from core.drafters.weights import needs_likelihoods
from core.events.parts import Timed
from core.models.protocol import LanguageModel
from core.sequence import Sequence
from core.trees.draft import Draft
from core.trees.tree import ROOT, TokenTree

__all__ = ["SsmDrafter"]

T = TypeVar("T")
PREFILL_CHUNK = 512
# Weights forget at 0.95 a token: what lies further back counts for less than 4 %.
JUDGED_PROMPT = 64
JUDGED_CHUNK = 32
AUDITION = 24


class SsmDrafter:
    """See Drafter. `vocab_size` is the LLM's."""

    def __init__(self, name: str, model: LanguageModel, vocab_size: int) -> None:
        self._name = name
        self._feeding = Feeding(model, vocab_size)
        self._states: dict[str, SsmState] = {}
        self._carried = Calibration()

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> LanguageModel:
        """Whose passes its steps want."""
        return self._feeding.model

    @property
    def context_length(self) -> int:
        """The model's, in tokens."""
        return self._feeding.model.context_length

    @property
    def vocab_size(self) -> int:
        """The LLM's."""
        return self._feeding.vocab_size

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        carried = self._carried.copy() if sequence.speculation.carry_over else Calibration()
        row = self._feeding.model.open_row()
        state = SsmState(row, carried, judged=len(sequence.tokens))
        self._states[sequence.run_id] = state
        start = time.perf_counter()
        tokens = sequence.tokens[:-1]
        if len(sequence.tokens) > self.context_length or not tokens:
            return ()
        wanted = JUDGED_PROMPT if needs_likelihoods(sequence.speculation) else 0
        state.judged = max(0, len(tokens) - wanted) + 1
        for end in _ends(len(tokens), wanted):
            first = self._feeding.model.length(row) + 1
            skim = first < state.judged
            feed = self._feeding.text(state, tokens[:end], last_only=skim)
            (logits,) = self._alone(self._feeding.read([state], [feed]))
            if not skim:
                state.judge(logits, sequence.tokens, first)
        state.pending = Pending()  # the last token, the root, is read when it first drafts
        return (Timed(self._name, "prefill", start, time.perf_counter()),)

    def audition(self, token_ids: Many[int]) -> Steps[float]:
        """The mean logarithm of the probabilities it gives to a prompt's last tokens, by the few
        before them; nothing is kept. Of the 60 development prompts 24 tokens tell the domain of 50,
        48 of 53."""
        return self._feeding.audition(token_ids[-AUDITION:])

    def draft(self, asks: Many[DraftRequest]) -> list[Draft]:
        return self._alone(self.drafting(asks))

    def drafting(self, asks: Many[DraftRequest]) -> Steps[list[Draft]]:
        """`draft` as Steps: the caller makes the model's passes."""
        start = time.perf_counter()
        fitting = {i: self.fitted(ask) for i, ask in enumerate(asks)}
        wanted = {i: ask for i, ask in fitting.items() if ask.worth_starting}
        hoped = {i: self._hoped_for(ask) for i, ask in wanted.items()}
        early = {i: grown for i, grown in hoped.items() if grown is not None}
        ahead = {i: min(grown.passes, len(wanted[i].shape)) for i, grown in early.items()}
        fresh = {i: self.begun(ask) for i, ask in wanted.items() if i not in early}
        if fresh:
            logits = yield from self.catching_up([wanted[i] for i in fresh])
            absorbed(list(fresh.values()), logits)
        caught_up = time.perf_counter()
        passes = yield from self._grow(early | fresh, wanted)
        catching_up = Timed(self._name, "catch_up", start, caught_up)
        drafting = Timed(self._name, "draft", caught_up, time.perf_counter())
        drafts = [Draft()] * len(asks)
        for i, grown in (early | fresh).items():
            timed = (catching_up, drafting) if i in fresh else (drafting,) * (passes[i] > 1)
            drafts[i] = replace(grown.draft(), timed=timed, passes=passes[i], ahead=ahead.get(i, 0))
        return drafts

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        if needs_likelihoods(sequence.speculation):
            state.judge_pending(token_ids, sequence.tokens)
        if draft is None:
            self._feeding.forget(state)
            state.pending = Pending()  # the text goes on
            return
        if draft.next_temperature is not None:
            state.calibration.temperature = draft.next_temperature
            return
        _observe(state.calibration, draft, token_ids)
        self._feeding.commit(state, token_ids)

    def close(self, sequence: Sequence) -> None:
        state = self._states.pop(sequence.run_id, None)
        if state is not None:
            self._feeding.model.close_row(state.row)
            if sequence.speculation.carry_over:
                self._carried = state.calibration

    def temperature(self, sequence: Sequence) -> float:
        state = self._states.get(sequence.run_id)
        return state.calibration.temperature if state else 1.0

    def likelihoods(self, sequence: Sequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        told = state.told if state else []
        if state:
            state.told = []
        return told

    # -- drafting ahead: before the round's tokens are known --

    def caught_up(self, sequence: Sequence) -> bool:
        """Whether it has read the text to its end: an SSM that had nothing to draft has not."""
        state = self._states.get(sequence.run_id)
        return state is not None and state.pending.root is not None

    def look(self, asked: Many[tuple[Sequence, TokenTree]]) -> list[torch.Tensor]:
        """What it holds of the tokens after each tree's root and nodes, (1 + nodes, V) logits."""
        states = [(self._states[one.run_id], tree) for one, tree in asked]
        return self._alone(self._feeding.tree(states))

    def guess(
        self, asked: Many[tuple[Sequence, Many[tuple[tuple[int, ...], DraftRequest]]]]
    ) -> None:
        """Begins a draft behind each outcome of a sequence: (tokens that would be committed, what
        is asked for behind them). One pass over whatever of them was not fed yet."""
        wanted, ends = [], []
        for sequence, outcomes in asked:
            state = self._states[sequence.run_id]
            ids, parents, places = state.pending.missing([tokens for tokens, _ in outcomes])
            wanted.append((state, ids, parents))
            ends.append(places)
        if fed := [one for one in wanted if one[1]]:
            self._alone(self._feeding.nodes(fed))
        for (state, _, _), (_, outcomes), places in zip(wanted, asked, ends, strict=True):
            for (tokens, ask), place in zip(outcomes, places, strict=True):
                grown = self.begun(ask)
                grown.places[ROOT] = place
                grown.absorb(state.pending.logits[place][None])
                state.guesses[tokens] = grown

    def growing(self, sequences: Many[Sequence]) -> bool:
        """Whether a draft behind a guess wants another pass."""
        states = [self._states[sequence.run_id] for sequence in sequences]
        return any(grown.frontier for state in states for grown in state.guesses.values())

    def go_on(self, sequences: Many[Sequence]) -> None:
        """One pass for all drafts behind guesses that want one."""
        states = [self._states[sequence.run_id] for sequence in sequences]
        groups = [(s, [g for g in s.guesses.values() if g.frontier]) for s in states]
        wanted = [(state, growing) for state, growing in groups if growing]
        self._alone(self._feeding.advance(wanted))

    # -- one draft --

    def fitted(self, ask: DraftRequest) -> DraftRequest:
        """The ask, cut to this model's own context."""
        room = max(0, self.context_length - ask.root_position)
        return ask if len(ask.shape) <= room else replace(ask, shape=ask.shape[:room])

    def catching_up(self, asks: Many[DraftRequest]) -> Steps[list[torch.Tensor]]:
        """Feeds what was committed since, if anything was; the logits after each root, (1, V)."""
        if behind := [ask for ask in asks if self.state(ask).pending.root is None]:
            states = [self.state(ask) for ask in behind]
            yield from self._read(states, [ask.sequence for ask in behind])
        return [self.state(ask).pending.logits[ROOT][None] for ask in asks]

    def _read(self, states: Many[SsmState], sequences: Many[Sequence]) -> Steps[None]:
        feeds = []
        for state, sequence in zip(states, sequences, strict=True):
            skim = not needs_likelihoods(sequence.speculation)
            feeds.append(self._feeding.text(state, sequence.tokens, last_only=skim))
        firsts = [self._feeding.model.length(state.row) + 1 for state in states]
        logits = yield from self._feeding.read(states, feeds)
        for i, (state, sequence) in enumerate(zip(states, sequences, strict=True)):
            if not feeds[i].last_only:
                state.judge(logits[i], sequence.tokens, firsts[i])

    def feeding(self, ask: DraftRequest, grown: Growth) -> Steps[torch.Tensor]:
        """One pass over a growth's frontier; its logits (n, V)."""
        found = yield from self._feeding.frontiers([(self.state(ask), [grown])])
        return found[0]

    def forget(self, ask: DraftRequest) -> None:
        """Drops what was fed since the last commit; the committed text stays known."""
        self._feeding.forget(self.state(ask))

    def calibration(self, sequence: Sequence) -> Calibration:
        """What makes its scores for this sequence mean what they say."""
        return self._states[sequence.run_id].calibration

    def _hoped_for(self, ask: DraftRequest) -> Growth | None:
        """The draft that a guess began, if it came true; for another shape a new one, from what is
        known of its root."""
        state = self.state(ask)
        grown, state.ready = state.ready, None
        if grown is None or grown.adopt(ask):
            return grown
        fresh = self.begun(ask)
        fresh.absorb(state.pending.logits[ROOT][None])
        return fresh

    def _alone(self, steps: Steps[T]) -> T:
        return alone(self._feeding.model, steps)

    def _grow(
        self, growths: dict[int, Growth], asks: dict[int, DraftRequest]
    ) -> Steps[dict[int, int]]:
        """Drives the growths to their ends in lock-step; passes each took part in, and one for its
        root."""
        passes = dict.fromkeys(growths, 1)
        while active := [i for i, grown in growths.items() if grown.frontier]:
            for i in active:
                passes[i] += 1
            groups = [(self.state(asks[i]), [growths[i]]) for i in active]
            yield from self._feeding.advance(groups)
        return passes

    def begun(self, ask: DraftRequest) -> Growth:
        """A draft of which nothing has grown yet."""
        return growth(ask, self.state(ask).calibration)

    def padded(self, logits: torch.Tensor) -> torch.Tensor:
        """The model's logits (n, V), as many as the LLM has tokens."""
        return self._feeding.padded(logits)

    def knows(self, sequence: Sequence) -> bool:
        """Whether it was told of the sequence."""
        return sequence.run_id in self._states

    def state(self, ask: DraftRequest) -> SsmState:
        """What it keeps of the sequence that asks."""
        return self._states[ask.sequence.run_id]


def _observe(calibration: Calibration, draft: Draft, token_ids: tuple[int, ...]) -> None:
    utilities = draft.utilities if draft.utilities is not None else draft.logits
    nodes = zip((ROOT, *draft.walk(token_ids)), token_ids, strict=False)
    met = [(draft.rows[node], token_id) for node, token_id in nodes if node in draft.rows]
    if utilities is None or not met:
        return
    rows, tokens = (list(part) for part in zip(*met, strict=True))
    known = draft.moments
    moments = [calibration.moments(utilities[r]) if known is None else known[r] for r in rows]
    calibration.observe(utilities[rows, tokens].tolist(), moments)


def _ends(length: int, judged: int) -> list[int]:
    """Where the chunks of a prompt end; the last `judged` tokens come in small ones, since all
    their logits are wanted."""
    first = max(0, length - judged)
    large = [min(end, first) for end in range(PREFILL_CHUNK, first + PREFILL_CHUNK, PREFILL_CHUNK)]
    return large + [
        min(end, length) for end in range(first + JUDGED_CHUNK, length + JUDGED_CHUNK, JUDGED_CHUNK)
    ]
