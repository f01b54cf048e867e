"""Builds the events of a round from its RoundState."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from core.config.mechanisms import combine_rule
from core.engine.round_state import RoundState
from core.engine.route_evidence import routing_record
from core.events import (
    Combined,
    Drafted,
    DraftRecord,
    ProposalRecord,
    RoundCompleted,
    TopK,
    Trial,
    Verified,
)
from core.models.detokenize import token_texts
from core.sequence import CommitResult
from core.trees.draft import Draft
from core.trees.sampling import unprocessed_probabilities
from core.trees.tree import ROOT

__all__ = ["RoundEventBuilder"]


class RoundEventBuilder:
    """Builds the events of rounds."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def texts(self, token_ids: Iterable[int]) -> tuple[str, ...]:
        """The display text of each token, decoded without the tokens around it."""
        ids = tuple(token_ids)
        new = [token_id for token_id in dict.fromkeys(ids) if token_id not in self._texts]
        if new:
            self._texts.update(zip(new, token_texts(self._tokenizer, new), strict=True))
        return tuple(self._texts[token_id] for token_id in ids)

    def drafted_event(self, state: RoundState) -> Drafted:
        """The event of the drafts that this round verifies."""
        return Drafted(
            *_next_event_head(state),
            tuple(self._draft(state, index, draft) for index, draft in state.drafts.items()),
        )

    def _draft(self, state: RoundState, index: int, draft: Draft) -> DraftRecord:
        name = state.request.drafters[index].name
        return DraftRecord(
            drafter=name,
            token_ids=tuple(draft.token_ids),
            texts=self.texts(draft.token_ids),
            parents=tuple(draft.parents),
            depths=draft.depths,
            scores=tuple(draft.scores),
            qs=tuple(draft.qs),
            ranks=tuple(draft.ranks),
            # Also true for a draft that was made during another request's pass.
            drafted_ahead=any(one.drafter == name and one.hit for one in state.ahead_events),
            spans=state.request.sequence.spans(list(draft.timings)),
            contexts=draft.contexts,
            shares=draft.shares,
        )

    def combined_event(self, state: RoundState) -> Combined:
        """The event of the tree."""
        sequence, tree = state.request.sequence, state.tree
        names = [drafter.name for drafter in state.request.drafters]
        proposals = tuple(
            tuple(ProposalRecord(names[p.drafter], p.score, p.q, p.rank) for p in of_node)
            for of_node in tree.proposals
        )
        root = sequence.tokens[state.root_position]
        return Combined(
            *_next_event_head(state),
            tree.token_ids,
            self.texts(tree.token_ids),
            tree.parents,
            tree.depths,
            proposals,
            tuple((names[drafter], node) for drafter, node in state.combined.dropped),
            root,
            self.texts([root])[0],
            state.speculation.combine,
            state.request.weights.values()
            if combine_rule(state.speculation.combine).weighted
            else {},
            state.combined.node_weights,
            state.combined.dropped_node_weights,
            state.winner,
            _origins(state, names),
        )

    def verified_event(self, state: RoundState) -> Verified:
        """The event of the verdict."""
        sequence, tree, verdict = state.request.sequence, state.tree, state.verdict
        names = [drafter.name for drafter in state.request.drafters]
        own = verdict.own_token_id
        own_probability, node_probabilities = _reported_probabilities(state)
        return Verified(
            *_next_event_head(state),
            rule=sequence.speculation.verify,
            path=verdict.path,
            outcomes=verdict.outcomes(tree),
            own_token_id=own,
            own_text="" if own is None else self.texts([own])[0],
            own_kind=verdict.own_kind,
            own_probability=own_probability,
            llm_probabilities=node_probabilities,
            trials=tuple(
                Trial(t.node, names[t.drafter], t.p, t.q, t.accepted) for t in verdict.trials
            ),
            top_k=self._top_k(state),
        )

    def _top_k(self, state: RoundState) -> tuple[TopK, ...]:
        k = state.request.sequence.speculation.record_top_k
        if not k:
            return ()
        tree = state.tree
        nodes = range(ROOT, len(tree))
        entries = self._top_k_of("llm", list(nodes), state.target.display_probabilities, k)
        for index, draft in state.drafts.items():
            name = state.request.drafters[index].name
            # The tokens from the root identify a node: a combine rule may drop and renumber nodes.
            draft_nodes = [
                (node, d)
                for node in nodes
                if (d := _node_of(draft, tree.tokens_to(node))) is not None
            ]
            if draft.logits is None:  # drafted by look-up, or on a drafter node, which sent `top`
                lists = [(node, *draft.top[d]) for node, d in draft_nodes if d in draft.top]
                entries += [TopK(node, name, ids, self.texts(ids), p) for node, ids, p in lists]
                continue
            # Only nodes that were fed have logits.
            row_of = {node: draft.rows[d] for node, d in draft_nodes if d in draft.rows}
            probabilities = unprocessed_probabilities(draft.logits[[*row_of.values()]])
            entries += self._top_k_of(name, [*row_of], probabilities, k)
        return tuple(entries)

    def _top_k_of(
        self, source: str, nodes: list[int], probabilities: torch.Tensor, k: int
    ) -> list[TopK]:
        if not nodes:
            return []
        values, ids = probabilities.topk(min(k, probabilities.shape[-1]), dim=-1)
        return [
            TopK(node, source, tuple(row), self.texts(row), tuple(numbers))
            for node, row, numbers in zip(nodes, ids.tolist(), values.tolist(), strict=True)
        ]

    def round_completed_event(
        self, state: RoundState, result: CommitResult, kv: tuple[int, int]
    ) -> RoundCompleted:
        """The round's last event. `kv`: slots used and capacity of the request's KV row."""
        request, sequence = state.request, state.request.sequence
        # An audition (see AuditionStep) or the schedule may still change the next round's choice.
        next_choice = request.effective_choice(request.choose())
        # A stop string or the token limit may have cut off accepted tokens.
        num_accepted = min(len(state.verdict.path), len(result.token_ids))
        num_cut = max(0, state.tree.depth - len(result.token_ids)) if result.finish_reason else 0
        return RoundCompleted(
            *_next_event_head(state),
            position=state.root_position + 1,
            token_ids=result.token_ids,
            texts=self.texts(result.token_ids),
            text_deltas=result.text_deltas,
            num_accepted=num_accepted,
            num_cut=num_cut,
            speculation_length=state.length,
            next_speculation_length=next_choice.length,
            weights=request.weights.values(),
            temperatures={d.name: d.temperature(sequence) for d in request.drafters},
            spans=sequence.spans(state.timings),
            kv_used=kv[0],
            kv_capacity=kv[1],
            length_reason=next_choice.reason,
            estimates=next_choice.estimates,
            predicted_ms=state.choice.predicted_ms,
            ahead=state.ahead_events,
            notes=tuple(request.notes),
            between_ms=state.between_ms,
            routing=routing_record(state),
            routing_reason=state.route.reason if state.route else "",
            scheduled=state.scheduled,
            loads=sequence.spans(state.loads),
            nodes=state.drafter_node_trips,
            traffic=state.traffic,
        )


def _next_event_head(state: RoundState) -> tuple[str, int, float, int]:
    """Call it once per event: `next_seq` counts the events."""
    sequence = state.request.sequence
    return sequence.run_id, sequence.next_seq(), sequence.ms(), sequence.round


def _reported_probabilities(state: RoundState) -> tuple[float, tuple[float, ...]]:
    own, tree = state.verdict.own_token_id, state.tree
    # Row of the node that the own token follows; row 0 is the root's.
    after = (state.verdict.path[-1] if state.verdict.path else ROOT) + 1
    target = state.target_tokens
    if target is not None:
        return 0.0 if own is None else target.token_probs[after], target.node_probs
    own_probability = 0.0 if own is None else float(state.target.display_probabilities[after, own])
    return own_probability, tuple(state.target.node_probabilities(tree)) if tree.token_ids else ()


def _origins(state: RoundState, names: Sequence[str]) -> tuple[str, ...]:
    """The drafter that proposed each node of the tree; empty without fused drafts."""
    if not any(draft.origins for draft in state.drafts.values()):
        return ()
    origin: dict[tuple[int, ...], str] = {}
    for index, draft in state.drafts.items():
        paths: list[tuple[int, ...]] = []
        for node, parent in enumerate(draft.parents):
            paths.append((*(paths[parent] if parent >= 0 else ()), draft.token_ids[node]))
            by = draft.origins[node] if draft.origins else index
            origin.setdefault(paths[-1], names[by])
    tree = state.tree
    return tuple(origin[tree.tokens_to(node)] for node in range(len(tree)))


def _node_of(draft: Draft, token_ids: tuple[int, ...]) -> int | None:
    """The draft's node to which these tokens lead; None if the draft has no node there."""
    path = draft.walk(token_ids)
    if len(path) < len(token_ids):
        return None
    return path[-1] if path else ROOT
