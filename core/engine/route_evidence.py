"""Routing in a round: the evidence that a router observes, and the record in the events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from core.engine.round_state import RoundState
from core.events.parts import RoutedDrafter
from core.models.protocol import LanguageModel
from core.routing import DraftEvidence, RoundEvidence
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["Similarity", "embedding_similarity", "observe_route", "routing_record"]

Similarity = Callable[[Sequence[int], Sequence[int]], tuple[float, ...]]
"""(drafted, committed tokens) -> their similarity by position, up to the end of the shorter."""


def embedding_similarity(llm: LanguageModel) -> Similarity:
    """A Similarity: the cosine of two tokens' input embeddings in the LLM (CoSine, arXiv
    2503.10325). Without access to embeddings: 1 for equal tokens, else 0."""

    @torch.inference_mode()
    def cosine(drafted: Sequence[int], committed: Sequence[int]) -> tuple[float, ...]:
        pairs = list(zip(drafted, committed, strict=False))
        # By attribute: `embeddings` is no part of the LanguageModel protocol.
        table = getattr(llm, "embeddings", None)
        if not pairs or table is None:
            return tuple(float(a == b) for a, b in pairs)
        # rows: (pairs, 2, hidden)
        rows = table[torch.tensor(pairs, device=table.device)].float()
        return tuple(torch.cosine_similarity(rows[:, 0], rows[:, 1], dim=-1).tolist())

    return cosine


def observe_route(
    state: RoundState, committed: tuple[int, ...], share_ms: float, similarity: Similarity
) -> None:
    """Reports the outcome of a round to its request's router, if there is one."""
    router = state.request.router
    if router is None:
        return
    drafts, route = {}, state.route.drafters if state.route else ()
    if router.reads_drafts:
        drafters = state.request.drafters
        by_name = {drafters[i].name: draft for i, draft in state.drafts.items() if len(draft)}
        names = state.request.routed_ssms & by_name.keys()
        drafts = {name: _evidence(by_name[name], committed, similarity) for name in names}
    router.observe(
        RoundEvidence(
            num_accepted=len(state.verdict.path),
            num_tokens=len(committed),
            share_ms=share_ms,
            # Only a round with a draft request to a routed SSM is evidence about routed SSMs.
            routed=route if any(one.name in route for one in state.draft_requests) else (),
            drafts=drafts,
            log_probs=state.log_probs,
        )
    )


def _evidence(draft: Draft, committed: tuple[int, ...], similarity: Similarity) -> DraftEvidence:
    """The evidence of the path that takes the child of rank 0 at every depth."""
    path: list[int] = []
    for node, parent in enumerate(draft.parents):
        if draft.ranks[node] == 0 and parent == (path[-1] if path else ROOT):
            path.append(node)
    tokens = [draft.token_ids[node] for node in path]
    return DraftEvidence(tuple(draft.scores[node] for node in path), similarity(tokens, committed))


def routing_record(state: RoundState) -> tuple[RoutedDrafter, ...]:
    """Each SSM's role in the round and its score after the round, in the order of drafters."""
    request, route = state.request, state.route
    if request.router is None or route is None:
        return ()
    scores, records = request.router.drafter_scores(), []
    for index, name in enumerate(drafter.name for drafter in request.drafters):
        if name not in request.routed_ssms:
            continue
        if index in request.lost_drafters:
            role = "lost"
        elif name not in route.drafters:
            role = "waiting"
        else:
            role = "explored" if name in route.explored else "routed"
        records.append(RoutedDrafter(name, role, scores.get(name, 0.0)))
    return tuple(records)
