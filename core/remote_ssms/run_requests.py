"""Converts a run's draft requests to a part of a message to a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from core.drafters.base import DraftRequest
from core.remote_ssms.ahead import AheadRun
from core.remote_ssms.messages import (
    MOST_MESSAGE_TOKENS,
    MOST_RUNS,
    MOST_TOKENS,
    AheadRequest,
    DraftRequestMessage,
    RunRequest,
    StopLimitsMessage,
)
from core.remote_ssms.node_link import NodeLink
from core.remote_ssms.served_run import run_settings
from core.sequence import TokenSequence

__all__ = ["RemoteRun", "ahead_request", "is_too_long", "requests_of", "run_request"]

Run = TypeVar("Run")
Part = TypeVar("Part", RunRequest, AheadRequest)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """One run's requests to the nodes in a round. `weights`: by drafter index. `to_score`: SSMs
    that score the text's last `window` tokens (`SsmDrafter.audition`). `top_k`: the number of
    likeliest tokens to report after each tree node."""

    sequence: TokenSequence
    requests: tuple[DraftRequest, ...]
    weights: Mapping[int, float] = field(default_factory=dict)
    to_score: tuple[str, ...] = ()
    window: int = 0
    top_k: int = 0


def requests_of(
    link: NodeLink, runs: Sequence[Run], part_of: Callable[[NodeLink, Run], Part | None]
) -> tuple[list[Run], list[Part]]:
    """The runs with requests to a node, and their parts of a message: at most MOST_RUNS runs.
    Several runs together have at most MOST_MESSAGE_TOKENS tokens of new text."""
    own_runs: list[Run] = []
    parts: list[Part] = []
    tokens = 0
    for run in runs:
        part = part_of(link, run)
        if part is None:
            continue
        text = part.text if isinstance(part, AheadRequest) else part
        tokens += len(text.tokens)
        if len(parts) == MOST_RUNS or (parts and tokens > MOST_MESSAGE_TOKENS):
            # The other runs fit into a later message, once the node has these texts.
            break
        own_runs.append(run)
        parts.append(part)
    return own_runs, parts


def is_too_long(sequence: TokenSequence) -> bool:
    """Whether a run's text is too long for a node."""
    return len(sequence.tokens) > MOST_TOKENS


def run_request(link: NodeLink, run: RemoteRun) -> RunRequest | None:
    """A run's part of a round; None without requests to this node, or if the text is too long."""
    drafts = _draft_requests(link, run.requests, run.weights)
    to_score = [link.engine_names[name] for name in run.to_score if name in link.engine_names]
    if not (drafts or to_score) or is_too_long(run.sequence):
        return None
    request = _text_request(link, run.sequence, drafts, run.top_k)
    request.audition, request.to_score = (run.window if to_score else 0), to_score
    return request


def ahead_request(link: NodeLink, run: AheadRun) -> AheadRequest | None:
    """A run's part of drafting ahead; None without requests to this node, or if the text is too
    long."""
    drafts = _draft_requests(link, run.requests, run.weights)
    if not drafts or is_too_long(run.sequence):
        return None
    # No round message has requested these drafts, which were made ahead.
    verified = _draft_requests(link, run.verified, run.weights)
    text = _text_request(link, run.sequence, verified, run.top_k)
    return AheadRequest(text, [*run.tree.token_ids], [*run.tree.parents], drafts, run.room)


def _text_request(
    link: NodeLink, sequence: TokenSequence, drafts: list[DraftRequestMessage], top_k: int
) -> RunRequest:
    """The part of a run's text that the node may lack, and the draft requests."""
    start = link.held_tokens.get(sequence.run_id, 0)
    # A node that has a part of the text has the settings, which do not change within a run.
    settings = None if start else run_settings(sequence)
    tokens = sequence.tokens[start:]
    return RunRequest(sequence.run_id, start, tokens, settings, drafts, 0, [], top_k)


def _draft_requests(
    link: NodeLink, requests: Sequence[DraftRequest], weights: Mapping[int, float]
) -> list[DraftRequestMessage]:
    return [
        DraftRequestMessage(
            ssm=link.engine_names[request.name],
            index=request.index,
            kind=request.kind,
            shape=list(request.shape),
            budget=request.budget,
            weight=weights.get(request.index, 1.0),
            stop=_stop_limits(request),
        )
        for request in requests
        if request.name in link.engine_names
    ]


def _stop_limits(request: DraftRequest) -> StopLimitsMessage | None:
    # A stop rule that cannot be expressed in numbers is not sent.
    limits = None if request.stop is None else request.stop.limits(request.name)
    if limits is None:
        return None
    scores = None if limits.scores is None else list(limits.scores)
    return StopLimitsMessage(limits.least, limits.longest, scores)
