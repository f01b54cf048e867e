"""What runs want of a node, as parts of its message. Pure: runs and a link in, structs out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from core.drafters.base import DraftRequest
from core.nodes.ahead import AheadRun
from core.nodes.messages import (
    MOST_MESSAGE_TOKENS,
    MOST_RUNS,
    MOST_TOKENS,
    AheadAsk,
    DraftAsk,
    RunAsk,
)
from core.nodes.node_link import NodeLink
from core.nodes.served_run import limits_message, open_message
from core.sequence import TokenSequence

__all__ = ["RemoteRun", "ahead_ask", "asks_of", "run_ask"]

Run = TypeVar("Run")
Ask = TypeVar("Ask", RunAsk, AheadAsk)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """What one run wants of the nodes in a round: drafts, with the weights of their drafters by
    index; an audition of the SSMs `to_score` on the last `window` tokens; the `top_k` likeliest
    tokens of each node."""

    sequence: TokenSequence
    requests: tuple[DraftRequest, ...]
    weights: Mapping[int, float] = field(default_factory=dict)
    to_score: tuple[str, ...] = ()
    window: int = 0
    top_k: int = 0


def asks_of(
    link: NodeLink, runs: Sequence[Run], ask_of: Callable[[NodeLink, Run], Ask | None]
) -> tuple[list[Run], list[Ask]]:
    """The runs that want something of a node, and their parts of its message: MOST_RUNS at most,
    and no more than MOST_MESSAGE_TOKENS of new text but for the first run's. Once the node holds
    that text, later rounds have room for the others."""
    asked: list[Run] = []
    asks: list[Ask] = []
    tokens = 0
    for run in runs:
        ask = ask_of(link, run)
        if ask is None:
            continue
        text = ask.text if isinstance(ask, AheadAsk) else ask
        tokens += len(text.tokens)
        if len(asks) == MOST_RUNS or (asks and tokens > MOST_MESSAGE_TOKENS):
            break
        asked.append(run)
        asks.append(ask)
    return asked, asks


def run_ask(link: NodeLink, run: RemoteRun) -> RunAsk | None:
    """A run's part of a round; None where it wants nothing of this node."""
    drafts = _draft_asks(link, run.requests, run.weights)
    to_score = [link.engine_names[name] for name in run.to_score if name in link.engine_names]
    if not (drafts or to_score) or len(run.sequence.tokens) > MOST_TOKENS:
        return None
    ask = _text_ask(link, run.sequence, drafts, run.top_k)
    ask.audition, ask.heard = (run.window if to_score else 0), to_score
    return ask


def ahead_ask(link: NodeLink, run: AheadRun) -> AheadAsk | None:
    """A run's part of drafting ahead; None where it wants nothing of this node."""
    drafts = _draft_asks(link, run.requests, run.weights)
    if not drafts or len(run.sequence.tokens) > MOST_TOKENS:
        return None
    verified = _draft_asks(link, run.verified, run.weights)
    text = _text_ask(link, run.sequence, verified, run.top_k)
    return AheadAsk(text, [*run.tree.token_ids], [*run.tree.parents], drafts, run.room)


def _text_ask(
    link: NodeLink, sequence: TokenSequence, drafts: list[DraftAsk], top_k: int
) -> RunAsk:
    """The part of a run's text that the node may lack, and its draft requests."""
    start = link.held_tokens.get(sequence.run_id, 0)
    opened = None if start else open_message(sequence)
    return RunAsk(sequence.run_id, start, sequence.tokens[start:], opened, drafts, 0, [], top_k)


def _draft_asks(
    link: NodeLink, requests: Sequence[DraftRequest], weights: Mapping[int, float]
) -> list[DraftAsk]:
    asks = []
    for request in requests:
        if request.name in link.engine_names:
            limits = None if request.stop is None else request.stop.limits(request.name)
            asks.append(
                DraftAsk(
                    ssm=link.engine_names[request.name],
                    index=request.index,
                    kind=request.kind,
                    shape=list(request.shape),
                    budget=request.budget,
                    weight=weights.get(request.index, 1.0),
                    stop=None if limits is None else limits_message(limits),
                )
            )
    return asks
