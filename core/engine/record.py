"""From a round's working objects to events: plain values, token texts, top-k lists.

The only place that turns tensors into numbers for a reader. Knows nothing of Gradio or SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from core.config.mechanisms import combine_rule
from core.engine.round_state import RoundState
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

__all__ = ["Recorder"]


class Recorder:
    """Writes down turns. Keeps the text of each token it has met: a vocabulary's worth at most."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def texts(self, token_ids: Iterable[int]) -> tuple[str, ...]:
        """Each token by itself, as a reader sees it."""
        ids = tuple(token_ids)
        new = [token_id for token_id in dict.fromkeys(ids) if token_id not in self._texts]
        if new:
            self._texts.update(zip(new, token_texts(self._tokenizer, new), strict=True))
        return tuple(self._texts[token_id] for token_id in ids)

    def drafted(self, turn: RoundState) -> Drafted:
        sequence = turn.live.sequence
        return Drafted(
            sequence.run_id,
            sequence.next_seq(),
            sequence.ms(),
            sequence.round,
            tuple(self._draft(turn, index, draft) for index, draft in turn.drafts.items()),
        )

    def _draft(self, turn: RoundState, index: int, draft: Draft) -> DraftRecord:
        name = turn.live.drafters[index].name
        return DraftRecord(
            drafter=name,
            token_ids=tuple(draft.token_ids),
            texts=self.texts(draft.token_ids),
            parents=tuple(draft.parents),
            depths=draft.depths,
            scores=tuple(draft.scores),
            qs=tuple(draft.qs),
            ranks=tuple(draft.ranks),
            drafted_ahead=any(one.drafter == name and one.hit for one in turn.ahead),
            spans=turn.live.sequence.spans(list(draft.timed)),
        )

    def combined(self, turn: RoundState) -> Combined:
        sequence, tree = turn.live.sequence, turn.tree
        names = [drafter.name for drafter in turn.live.drafters]
        proposals = tuple(
            tuple(ProposalRecord(names[p.drafter], p.score, p.q, p.rank) for p in offered)
            for offered in tree.proposals
        )
        root = sequence.tokens[turn.root_position]
        return Combined(
            sequence.run_id,
            sequence.next_seq(),
            sequence.ms(),
            sequence.round,
            tree.token_ids,
            self.texts(tree.token_ids),
            tree.parents,
            tree.depths,
            proposals,
            tuple((names[drafter], node) for drafter, node in turn.combined.dropped),
            root,
            self.texts([root])[0],
            turn.speculation.combine,
            turn.live.weights.values() if combine_rule(turn.speculation.combine).weighted else {},
            turn.combined.masses,
            turn.combined.dropped_masses,
            turn.winner,
        )

    def verified(self, turn: RoundState) -> Verified:
        sequence, tree, verdict = turn.live.sequence, turn.tree, turn.verdict
        names = [drafter.name for drafter in turn.live.drafters]
        own = verdict.own_token_id
        own_shown, chances = _shown(turn)
        return Verified(
            run_id=sequence.run_id,
            seq=sequence.next_seq(),
            at_ms=sequence.ms(),
            round=sequence.round,
            rule=sequence.speculation.verify,
            path=verdict.path,
            outcomes=verdict.outcomes(tree),
            own_token_id=own,
            own_text="" if own is None else self.texts([own])[0],
            own_kind=verdict.own_kind,
            own_probability=own_shown,
            llm_probabilities=chances,
            trials=tuple(
                Trial(t.node, names[t.drafter], t.p, t.q, t.accepted) for t in verdict.tried
            ),
            top_k=self._top_k(turn),
        )

    def _top_k(self, turn: RoundState) -> tuple[TopK, ...]:
        k = turn.live.sequence.speculation.record_top_k
        if not k:
            return ()
        tree = turn.tree
        nodes = range(ROOT, len(tree))
        entries = self._top_k_of("llm", list(nodes), turn.target.shown, k)
        for index, draft in turn.drafts.items():
            if draft.logits is None:
                continue
            # A node of the tree and the same node of the draft share their tokens from the root.
            found = {node: _node_of(draft, tree.tokens_to(node)) for node in nodes}
            met = {node: d for node, d in found.items() if d is not None and d in draft.rows}
            rows = [draft.rows[d] for d in met.values()]
            shown = unprocessed_probabilities(draft.logits[rows])
            entries += self._top_k_of(turn.live.drafters[index].name, list(met), shown, k)
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

    def completed(self, turn: RoundState, cut: CommitResult, kv: tuple[int, int]) -> RoundCompleted:
        """`kv`: slots used and capacity."""
        live, sequence = turn.live, turn.live.sequence
        following = live.told(live.policy.choose())
        accepted = min(len(turn.verdict.path), len(cut.token_ids))
        beyond = max(0, turn.tree.depth - len(cut.token_ids)) if cut.finish_reason else 0
        return RoundCompleted(
            run_id=sequence.run_id,
            seq=sequence.next_seq(),
            at_ms=sequence.ms(),
            round=sequence.round,
            position=turn.root_position + 1,
            token_ids=cut.token_ids,
            texts=self.texts(cut.token_ids),
            text_deltas=cut.text_deltas,
            num_accepted=accepted,
            num_cut=beyond,
            speculation_length=turn.length,
            next_speculation_length=following.length,
            weights=live.weights.values(),
            temperatures={d.name: d.temperature(sequence) for d in live.drafters},
            spans=sequence.spans(turn.timed),
            kv_used=kv[0],
            kv_capacity=kv[1],
            length_reason=following.reason,
            estimates=following.estimates,
            predicted_ms=turn.choice.predicted_ms,
            ahead=turn.ahead,
            notes=tuple(live.notes),
            between_ms=turn.between_ms,
        )


def _shown(turn: RoundState) -> tuple[float, tuple[float, ...]]:
    """How probable the LLM holds its own token, 0 without one, and each node's."""
    own, tree = turn.verdict.own_token_id, turn.tree
    after = (turn.verdict.path[-1] if turn.verdict.path else ROOT) + 1
    target = turn.target_tokens
    if target is not None:
        return 0.0 if own is None else target.token_probs[after], target.node_probs
    own_shown = 0.0 if own is None else float(turn.target.shown[after, own])
    return own_shown, tuple(turn.target.chances(tree)) if tree.token_ids else ()


def _node_of(draft: Draft, token_ids: tuple[int, ...]) -> int | None:
    """The draft's node reached by these tokens, ROOT for none; None where it has no such path."""
    path = draft.walk(token_ids)
    if len(path) < len(token_ids):
        return None
    return path[-1] if path else ROOT
