"""From a node's drafts and their timings to replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.drafters.ahead import AheadDraftsByName
from core.drafters.base import DraftRequest
from core.drafters.ssm import SsmDrafter
from core.events.parts import Timed
from core.nodes.messages import (
    MOST_OUTCOMES,
    MOST_TEXT,
    AheadReply,
    AheadRequest,
    AheadStages,
    DraftReply,
    OutcomeDrafts,
    StageTimes,
    TopRow,
)
from core.nodes.served_run import ServedRun, draft_request
from core.trees.draft import Draft
from core.trees.sampling import unprocessed_probabilities

__all__ = ["ahead_reply", "draft_reply", "error_reply"]


def draft_reply(request: DraftRequest, draft: Draft, began: float, top_k: int) -> DraftReply:
    """A draft with the `top_k` likeliest tokens of each node. `began`: when the message that
    requested it arrived, in seconds of time.perf_counter."""
    return DraftReply(
        ssm=request.name,
        index=request.index,
        token_ids=draft.token_ids,
        parents=draft.parents,
        scores=draft.scores,
        ranks=draft.ranks,
        origins=list(draft.origins),
        passes=draft.passes or draft.ahead,
        stages=_stages(draft.timings, began),
        temperature=1.0,
        likelihoods=[],
        top=_top_rows(draft, top_k),
    )


def error_reply(ssm: str, index: int, error: BaseException) -> DraftReply:
    """An empty draft with the error of its SSM."""
    reason = f"{type(error).__name__}: {error}"[:MOST_TEXT]
    return DraftReply(ssm, index, [], [], [], [], [], 0, [], 1.0, [], [], error=reason)


def ahead_reply(
    request: AheadRequest,
    run: ServedRun,
    ssms: Mapping[str, SsmDrafter],
    ahead_drafts: AheadDraftsByName,
    verified: Sequence[DraftReply],
    began: float,
) -> AheadReply:
    """The drafts made ahead for a run, by outcome, the likeliest first."""
    probabilities: dict[tuple[int, ...], float] = {}
    drafts: dict[tuple[int, ...], list[DraftReply]] = {}
    requests = {one.ssm: draft_request(one, run.sequence) for one in request.drafts}
    for name, ahead in ahead_drafts.items():
        for outcome, draft in ssms[name].drafts_ahead(run.sequence).items():
            probabilities[outcome] = min(1.0, ahead.outcomes.get(outcome, 0.0))
            reply = draft_reply(requests[name], draft, began, request.text.top_k)
            drafts.setdefault(outcome, []).append(reply)
    likeliest = sorted(drafts, key=lambda outcome: -probabilities[outcome])[:MOST_OUTCOMES]
    return AheadReply(
        run=request.text.run,
        length=len(run.sequence.tokens),
        need=-1,
        verified=list(verified),
        outcomes=[OutcomeDrafts([*one], probabilities[one], drafts[one]) for one in likeliest],
        stages=[
            AheadStages(
                name, _stages(one.scoring_timings, began), _stages(one.draft_timings, began)
            )
            for name, one in ahead_drafts.items()
        ],
    )


def _stages(timings: Sequence[Timed], began: float) -> list[StageTimes]:
    return [
        StageTimes(one.name, (one.start - began) * 1000, (one.end - began) * 1000, one.share)
        for one in timings
    ]


def _top_rows(draft: Draft, count: int) -> list[TopRow]:
    """The likeliest tokens after each node that was fed, before sampling's processors."""
    if not count or draft.logits is None or not draft.rows:
        return []
    nodes = list(draft.rows)
    probs = unprocessed_probabilities(draft.logits[[draft.rows[node] for node in nodes]])
    values, ids = probs.topk(min(count, probs.shape[-1]), dim=-1)
    return [TopRow(*row) for row in zip(nodes, ids.tolist(), values.tolist(), strict=True)]
