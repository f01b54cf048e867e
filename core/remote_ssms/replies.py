"""Makes a node's replies and their frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from core.drafters.ahead import AheadDraftsByName
from core.drafters.base import DraftRequest
from core.drafters.ssm import SsmDrafter
from core.errors import one_line
from core.events.parts import Timed
from core.remote_ssms.messages import (
    LARGEST_FRAME,
    MOST_OUTCOMES,
    MOST_TEXT,
    AheadDraftsMessage,
    AheadReply,
    AheadRequest,
    AheadStages,
    DraftReply,
    DraftsMessage,
    OutcomeDrafts,
    RefusedMessage,
    StageTimes,
    TopRow,
    encode,
)
from core.remote_ssms.served_run import ServedRun, draft_request
from core.trees.draft import Draft
from core.trees.sampling import unprocessed_probabilities

__all__ = ["ahead_reply", "draft_reply", "error_reply", "fault_text", "frame_of"]


def draft_reply(request: DraftRequest, draft: Draft, received_at: float, top_k: int) -> DraftReply:
    """The reply with a draft, and with the `top_k` likeliest tokens after the root and each tree
    node that the SSM read. `received_at`: when the message with the request arrived, in seconds of
    time.perf_counter."""
    return DraftReply(
        ssm=request.name,
        index=request.index,
        token_ids=draft.token_ids,
        parents=draft.parents,
        scores=draft.scores,
        ranks=draft.ranks,
        origins=list(draft.origins),
        # A draft that was made ahead counts its passes in `passes_ahead`.
        passes=draft.passes or draft.passes_ahead,
        stages=_stages(draft.timings, received_at),
        # Filled in later, if at all: an SSM reports each likelihood once, and not every reply is
        # sent.
        temperature=1.0,
        likelihoods=[],
        top=_top_rows(draft, top_k),
    )


def fault_text(error: BaseException) -> str:
    """A model's error as one line for a message."""
    return one_line(f"{type(error).__name__}: {error}", MOST_TEXT - len("..."))


def error_reply(ssm: str, index: int, error: BaseException) -> DraftReply:
    """An empty draft with an error."""
    reason = fault_text(error)
    return DraftReply(ssm, index, [], [], [], [], [], 0, [], 1.0, [], [], error=reason)


def ahead_reply(
    request: AheadRequest,
    run: ServedRun,
    ssms: Mapping[str, SsmDrafter],
    ahead_drafts: AheadDraftsByName,
    verified: Sequence[DraftReply],
    received_at: float,
) -> AheadReply:
    """A run's drafts made ahead, by outcome (tokens that the round may commit). The reply has the
    MOST_OUTCOMES likeliest outcomes, the likeliest first."""
    probabilities: dict[tuple[int, ...], float] = {}
    drafts: dict[tuple[int, ...], list[DraftReply]] = {}
    requests = {one.ssm: draft_request(one, run.sequence) for one in request.drafts}
    for name, ahead in ahead_drafts.items():
        for outcome, draft in ssms[name].drafts_ahead(run.sequence).items():
            probabilities[outcome] = min(1.0, ahead.outcomes.get(outcome, 0.0))
            reply = draft_reply(requests[name], draft, received_at, request.text.top_k)
            drafts.setdefault(outcome, []).append(reply)
    # The frame grows with the number of outcomes.
    likeliest = sorted(drafts, key=lambda outcome: -probabilities[outcome])[:MOST_OUTCOMES]
    return AheadReply(
        run=request.text.run,
        length=len(run.sequence.tokens),
        need=-1,
        verified=list(verified),
        outcomes=[OutcomeDrafts([*one], probabilities[one], drafts[one]) for one in likeliest],
        stages=[
            AheadStages(
                name,
                _stages(one.scoring_timings, received_at),
                _stages(one.draft_timings, received_at),
            )
            for name, one in ahead_drafts.items()
        ],
    )


def frame_of(answer: DraftsMessage | AheadDraftsMessage) -> tuple[bytes, bool]:
    """The answer as a frame of at most LARGEST_FRAME bytes, and whether the frame is a refusal.

    A larger answer first loses the likeliest tokens, then the drafts made ahead. The last resort is
    a refusal."""
    frame = encode(answer)
    if len(frame) > LARGEST_FRAME:
        for reply in _draft_replies(answer):
            reply.top = []
        frame = encode(answer)
    if len(frame) > LARGEST_FRAME and isinstance(answer, AheadDraftsMessage):
        for run in answer.runs:
            run.outcomes = []
        frame = encode(answer)
    if len(frame) <= LARGEST_FRAME:
        return frame, False
    reason = (
        f"its answer has {len(frame)} bytes: at most {LARGEST_FRAME} are sent; fewer requests at "
        "once or smaller trees make it shorter"
    )
    return encode(RefusedMessage(answer.number, reason)), True


def _draft_replies(answer: DraftsMessage | AheadDraftsMessage) -> Iterator[DraftReply]:
    for run in answer.runs:
        if isinstance(run, AheadReply):
            yield from run.verified
            for outcome in run.outcomes:
                yield from outcome.drafts
        else:
            yield from run.drafts


def _stages(timings: Sequence[Timed], received_at: float) -> list[StageTimes]:
    return [
        StageTimes(
            one.name, (one.start - received_at) * 1000, (one.end - received_at) * 1000, one.share
        )
        for one in timings
    ]


def _top_rows(draft: Draft, count: int) -> list[TopRow]:
    """The likeliest tokens after the root and each tree node that the SSM read, by the softmax of
    `draft.logits`."""
    if not count or draft.logits is None or not draft.rows:
        return []
    # probs: (n, V), row i after tree_nodes[i].
    tree_nodes = list(draft.rows)
    probs = unprocessed_probabilities(draft.logits[[draft.rows[node] for node in tree_nodes]])
    values, ids = probs.topk(min(count, probs.shape[-1]), dim=-1)
    return [TopRow(*row) for row in zip(tree_nodes, ids.tolist(), values.tolist(), strict=True)]
