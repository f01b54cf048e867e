"""SsmDrafter: a small speculative model (SSM) as a drafter.

The KV of accepted nodes that were fed is kept. Committed tokens that the SSM has not read are fed
in one catch-up pass at the next draft. `begin_ahead` and `extend_ahead` draft after tokens that are
not committed yet; if these tokens are committed, the next round's draft may begin with that draft.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.drafter_weights import needs_likelihoods
from core.drafters.growth import Growth, absorb_all, new_growth
from core.drafters.lockstep import Steps, run_steps
from core.drafters.proposers import Frontier, proposer
from core.drafters.ssm_state import Feeder, PendingTrie, SsmState
from core.events.parts import Timed
from core.models.protocol import CACHED, LanguageModel
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.sampling import penalize_repetition
from core.trees.tree import ROOT, TokenTree

__all__ = ["AUDITION", "NO_TOKEN", "PREFILL_CHUNK", "SsmDrafter"]

T = TypeVar("T")
PREFILL_CHUNK = 512
"""The most tokens of a prompt that one pass of an SSM reads."""
# The number of a prompt's last tokens whose likelihoods are recorded. Drafter weights decay by 0.95
# a token: earlier tokens would count for less than 4 %.
SCORED_PROMPT = 64
# The most tokens of a prompt that one pass scores; small: the pass computes logits (tokens, V).
SCORED_CHUNK = 32
AUDITION = 24
"""How many of a text's last tokens an audition reads by default."""
# The draft kind of `first_choice_tokens`: at temperature 0 the likeliest token, above 0 the
# likeliest token under the LLM's noise.
OWN_KIND = "best_first"
NO_TOKEN = -1
"""Stands for a missing token."""


class SsmDrafter:
    """See `core.drafters.base.Drafter`. `vocab_size` is the LLM's."""

    def __init__(self, name: str, model: LanguageModel, vocab_size: int) -> None:
        self._name = name
        self.feeder = Feeder(model, vocab_size)
        self._states: dict[str, SsmState] = {}
        self._carried = Calibration()

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> LanguageModel:
        """The model that makes the passes."""
        return self.feeder.model

    @property
    def context_length(self) -> int:
        """The model's context length, in tokens."""
        return self.feeder.model.context_length

    @property
    def vocab_size(self) -> int:
        """The LLM's vocabulary size."""
        return self.feeder.vocab_size

    def open(self, sequence: TokenSequence) -> tuple[Timed, ...]:
        # A copy: concurrent runs must not change each other's scores.
        calibration = self._carried.copy() if sequence.speculation.carry_over else Calibration()
        row = self.feeder.model.open_row()
        # Registered first: if the prefill fails, `close` finds the row.
        state = SsmState(row, calibration, scored_until=len(sequence.tokens))
        self._states[sequence.run_id] = state
        start = time.perf_counter()
        tokens = sequence.tokens[:-1]
        # The SSM never drafts in a text longer than its context, see `fit_context`.
        if len(sequence.tokens) > self.context_length or not tokens:
            return ()
        num_scored = SCORED_PROMPT if needs_likelihoods(sequence.speculation) else 0
        state.scored_until = max(0, len(tokens) - num_scored) + 1
        for end in _chunk_ends(len(tokens), num_scored):
            first = self.feeder.model.length(row) + 1
            last_only = first < state.scored_until
            feed = self.feeder.text_feed(state, tokens[:end], last_only=last_only)
            (logits,) = self._run_unbatched(self.feeder.feed_text([state], [feed]))
            if not last_only:
                state.record_likelihoods(logits, sequence.tokens, first)
        state.pending = PendingTrie()  # the last token, the root, is fed by the first draft
        return (Timed(self._name, "prefill", start, time.perf_counter()),)

    def audition(self, token_ids: Sequence[int], window: int = AUDITION) -> Steps[list[float]]:
        """Log-probabilities of a text's last `window` tokens, except the first of these tokens,
        computed in a temporary row."""
        return self.feeder.score_tokens(token_ids[-window:])

    def first_choice_tokens(
        self, sequence: TokenSequence, token_ids: Sequence[int], first: int
    ) -> Steps[list[int]]:
        """The token that the SSM would draft first at each position of a text from `first` on, with
        the sampling and the noise of `sequence`; NO_TOKEN for none. Ends where the SSM's context
        ends. Uses a temporary row."""
        tokens: list[int] = []
        sampling, noise = sequence.sampling, sequence.noise
        propose_own = proposer(OWN_KIND, greedy=sampling.greedy)

        def propose(logits: torch.Tensor, start: int) -> None:
            if sampling.penalizes:
                paths = [token_ids[start : start + i] for i in range(len(logits))]
                penalty = sampling.repetition_penalty
                logits = penalize_repetition(logits, penalty, token_ids[:start], paths)
            # A new Calibration: the temperature does not change which token is the first.
            frontiers = [
                Frontier(logits[i : i + 1], start + i, (), sampling, noise, Calibration())
                for i in range(len(logits))
            ]
            for proposals in propose_own(frontiers, [1] * len(frontiers)):
                (children,) = proposals.children
                tokens.append(children[0].token_id if children else NO_TOKEN)

        yield from self.feeder.read_text(token_ids[: self.context_length], first, propose)
        return tokens

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return self._run_unbatched(self.draft_steps(requests))

    def draft_steps(self, requests: Sequence[DraftRequest]) -> Steps[list[Draft]]:
        """`draft` as Steps: the caller makes the model's passes."""
        start = time.perf_counter()
        # By index into `requests`.
        fitting = {i: self.fit_context(request) for i, request in enumerate(requests)}
        to_draft = {i: request for i, request in fitting.items() if request.worth_starting}
        # `early` growths have their root's logits already; `fresh` growths begin with the catch-up
        # pass.
        growths = {i: self._growth_ahead(request) for i, request in to_draft.items()}
        early = {i: growth for i, growth in growths.items() if growth is not None}
        # Passes made ahead, as far as this round's shape uses their nodes.
        passes_ahead = {
            i: min(growth.passes, len(to_draft[i].shape)) for i, growth in early.items()
        }
        fresh = {i: self.new_growth(request) for i, request in to_draft.items() if i not in early}
        if fresh:
            logits = yield from self.catch_up_steps([to_draft[i] for i in fresh])
            absorb_all(list(fresh.values()), logits)
        caught_up = time.perf_counter()
        passes = yield from self._grow(early | fresh, to_draft)
        catching_up = Timed(self._name, "catch_up", start, caught_up)
        drafting = Timed(self._name, "draft", caught_up, time.perf_counter())
        # A request that is not worth starting keeps its empty draft.
        drafts = [Draft()] * len(requests)
        for i, growth in (early | fresh).items():
            # An early draft that was complete took no time in this round.
            timings = (catching_up, drafting) if i in fresh else (drafting,) * (passes[i] > 1)
            drafts[i] = replace(
                growth.draft(),
                timings=timings,
                passes=passes[i],
                passes_ahead=passes_ahead.get(i, 0),
            )
        return drafts

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        if needs_likelihoods(sequence.speculation):
            # Before the commit, which drops the pending nodes' logits.
            state.record_pending_likelihoods(token_ids, sequence.tokens)
        if draft is None:
            self.feeder.drop_pending(state)
            state.pending = PendingTrie()  # the root logits belong to an earlier token
            return
        # With `next_temperature` the round was committed on the device, calibration included.
        if draft.next_temperature is not None:
            state.calibration.temperature = draft.next_temperature
            return
        _update_calibration(state.calibration, draft, token_ids)
        self.feeder.commit(state, token_ids)

    def close(self, sequence: TokenSequence) -> None:
        state = self._states.pop(sequence.run_id, None)
        if state is not None:
            self.feeder.model.close_row(state.row)
            if sequence.speculation.carry_over:
                # The run that ends last decides the calibration with which the next run starts.
                self._carried = state.calibration

    def temperature(self, sequence: TokenSequence) -> float:
        state = self._states.get(sequence.run_id)
        return state.calibration.temperature if state else 1.0

    def likelihoods(self, sequence: TokenSequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        probabilities = state.likelihoods if state else []
        if state:
            state.likelihoods = []
        return probabilities

    # -- drafting ahead, before the round's tokens are committed --

    def is_caught_up(self, sequence: TokenSequence) -> bool:
        """Whether the SSM has read the whole text."""
        state = self._states.get(sequence.run_id)
        return state is not None and state.pending.root is not None

    def tree_logits(self, trees: Sequence[tuple[TokenSequence, TokenTree]]) -> list[torch.Tensor]:
        """Logits (1 + nodes, V) after the root and every node of each tree."""
        states = [(self._states[one.run_id], tree) for one, tree in trees]
        return self._run_unbatched(self.feeder.feed_trees(states))

    def begin_ahead(
        self, plans: Sequence[tuple[TokenSequence, Sequence[tuple[tuple[int, ...], DraftRequest]]]]
    ) -> None:
        """Begins a draft after each outcome. An outcome: the tokens that would be committed, and
        the request for a draft after these tokens."""
        to_begin, ends = [], []
        for sequence, outcomes in plans:
            state = self._states[sequence.run_id]
            ids, parents, places = state.pending.nodes_to_feed([tokens for tokens, _ in outcomes])
            to_begin.append((state, ids, parents))
            ends.append(places)
        # One pass feeds the outcomes' tokens that were not fed yet, if any.
        if fed := [one for one in to_begin if one[1]]:
            self._run_unbatched(self.feeder.feed_nodes(fed))
        for (state, _, _), (_, outcomes), places in zip(to_begin, plans, ends, strict=True):
            for (tokens, request), place in zip(outcomes, places, strict=True):
                growth = self.new_growth(request, prefix=tokens)
                # The growth's root is not committed yet: its place is not CACHED.
                growth.places[ROOT] = place
                growth.absorb(state.pending.logits[place][None])
                state.drafts_by_outcome[tokens] = growth

    def has_growing(self, sequence: TokenSequence) -> bool:
        """Whether a draft made ahead needs another pass."""
        growths = self._states[sequence.run_id].drafts_by_outcome.values()
        return any(growth.frontier for growth in growths)

    def extend_ahead(self, sequences: Sequence[TokenSequence]) -> None:
        """One more pass for the unfinished drafts made ahead. Each sequence must have an unfinished
        draft."""
        states = [self._states[sequence.run_id] for sequence in sequences]
        groups = [(s, [g for g in s.drafts_by_outcome.values() if g.frontier]) for s in states]
        self._run_unbatched(self.feeder.extend_growths(groups))

    def drafts_ahead(self, sequence: TokenSequence) -> dict[tuple[int, ...], Draft]:
        """The drafts made ahead so far, by outcome (the tokens that would be committed)."""
        state = self._states.get(sequence.run_id)
        growths = state.drafts_by_outcome if state else {}
        return {
            outcome: replace(growth.draft(), passes_ahead=growth.passes)
            for outcome, growth in growths.items()
        }

    # -- one draft --

    def fit_context(self, request: DraftRequest) -> DraftRequest:
        """The request, with its shape cut to this model's context."""
        # The deepest level is not fed: a draft of depth m uses positions up to root + m - 1.
        room = max(0, self.context_length - request.root_position)
        return (
            request if len(request.shape) <= room else replace(request, shape=request.shape[:room])
        )

    def catch_up_steps(self, requests: Sequence[DraftRequest]) -> Steps[list[torch.Tensor]]:
        """One pass over the committed tokens that the rows lack, if any. Returns the logits after
        each root, (1, V)."""
        if lagging := [request for request in requests if self.state(request).pending.root is None]:
            states = [self.state(request) for request in lagging]
            yield from self._read_text(states, [request.sequence for request in lagging])
        return [self.state(request).pending.logits[CACHED][None] for request in requests]

    def _read_text(
        self, states: Sequence[SsmState], sequences: Sequence[TokenSequence]
    ) -> Steps[None]:
        feeds = []
        for state, sequence in zip(states, sequences, strict=True):
            last_only = not needs_likelihoods(sequence.speculation)
            feeds.append(self.feeder.text_feed(state, sequence.tokens, last_only=last_only))
        # Row 0 of the logits predicts the token after the first fed token.
        firsts = [self.feeder.model.length(state.row) + 1 for state in states]
        logits = yield from self.feeder.feed_text(states, feeds)
        for i, (state, sequence) in enumerate(zip(states, sequences, strict=True)):
            if not feeds[i].last_only:
                state.record_likelihoods(logits[i], sequence.tokens, firsts[i])

    def drop_pending(self, request: DraftRequest) -> None:
        """See `Feeder.drop_pending`."""
        self.feeder.drop_pending(self.state(request))

    def calibration(self, sequence: TokenSequence) -> Calibration:
        """The calibration of the SSM's scores for this sequence."""
        return self._states[sequence.run_id].calibration

    def _growth_ahead(self, request: DraftRequest) -> Growth | None:
        """The draft made ahead for the outcome that came true, or None. If that draft does not suit
        the request, a new draft from the same root logits."""
        state = self.state(request)
        # Cleared in any case: a draft made ahead is valid in this round only.
        growth, state.ready = state.ready, None
        if growth is None or growth.adopt(request):
            return growth
        fresh = self.new_growth(request)
        fresh.absorb(state.pending.logits[CACHED][None])
        return fresh

    def _run_unbatched(self, steps: Steps[T]) -> T:
        return run_steps(self.feeder.model, steps)

    def _grow(
        self, growths: dict[int, Growth], requests: dict[int, DraftRequest]
    ) -> Steps[dict[int, int]]:
        """Grows all drafts to their ends, with one pass per level. Returns each draft's number of
        passes, the root's pass included."""
        passes = dict.fromkeys(growths, 1)
        while active := [i for i, growth in growths.items() if growth.frontier]:
            for i in active:
                passes[i] += 1
            groups = [(self.state(requests[i]), [growths[i]]) for i in active]
            yield from self.feeder.extend_growths(groups)
        return passes

    def new_growth(self, request: DraftRequest, prefix: tuple[int, ...] = ()) -> Growth:
        """An empty growth with the sequence's calibration."""
        return new_growth(request, self.state(request).calibration, prefix)

    def has_state(self, sequence: TokenSequence) -> bool:
        """Whether the sequence is open here."""
        return sequence.run_id in self._states

    def state(self, request: DraftRequest) -> SsmState:
        """The state of the request's sequence."""
        return self._states[request.sequence.run_id]


def _update_calibration(calibration: Calibration, draft: Draft, token_ids: tuple[int, ...]) -> None:
    utilities = draft.utilities if draft.utilities is not None else draft.logits
    # Nodes on the committed path that have logits, each with the token committed after the node.
    nodes = zip((ROOT, *draft.walk(token_ids)), token_ids, strict=False)
    pairs = [(draft.rows[node], token_id) for node, token_id in nodes if node in draft.rows]
    if utilities is None or not pairs:
        return
    rows, tokens = (list(part) for part in zip(*pairs, strict=True))
    by_kernel = draft.moments
    moments = [
        calibration.moments(utilities[r]) if by_kernel is None else by_kernel[r] for r in rows
    ]
    calibration.observe(utilities[rows, tokens].tolist(), moments)


def _chunk_ends(length: int, num_scored: int) -> list[int]:
    """Ends of the chunks in which a prompt is read, see SCORED_CHUNK."""
    first = max(0, length - num_scored)
    large = [min(end, first) for end in range(PREFILL_CHUNK, first + PREFILL_CHUNK, PREFILL_CHUNK)]
    return large + [
        min(end, length) for end in range(first + SCORED_CHUNK, length + SCORED_CHUNK, SCORED_CHUNK)
    ]
