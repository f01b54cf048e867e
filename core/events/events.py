"""The events of a run.

`seq`: the number of the event within the run, from 0. `at_ms`: milliseconds since the run left the
queue. Nodes are numbered as in TokenTree: parents first; -1 is the root, the last committed token.
Probabilities are in [0, 1].

Order within a run: RunStarted; for each round Drafted, Combined, Verified, RoundCompleted, even
without drafts; then one of RunCompleted, RunCancelled, RunFailed. A run that ends before it starts
has only its last event. A round that fails lacks its remaining events.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.errors import ConfigError
from core.events.parts import (
    Ahead,
    DraftRecord,
    Estimate,
    ModelInfo,
    NodeTrip,
    OffloadInfo,
    ProposalRecord,
    RanksInfo,
    RankTraffic,
    RoutedDrafter,
    RunStats,
    Scheduled,
    Span,
    TopK,
    Trial,
)
from core.events.plain import from_plain

__all__ = [
    "EVENT_TYPES",
    "Combined",
    "Drafted",
    "EndEvent",
    "Event",
    "RoundCompleted",
    "RunCancelled",
    "RunCompleted",
    "RunFailed",
    "RunStarted",
    "Verified",
    "event_from_plain",
    "event_to_plain",
]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run's first event.

    `config`: the request as it will be run, with `auto` resolved except in `pipeline`. `asked`: the
    request as it was submitted. `created_utc`: ISO 8601. `prompt_texts`: the text of each prompt
    token. `models`: all loaded models, the LLM first. `drafters`: names of the drafters that may
    draft. `dtype` and `device` are the LLM's. `warnings`: sentences for the reader. `offload`: None
    if the LLM's layers are not streamed. `ranks`: None for an LLM in one process.
    """

    run_id: str
    seq: int
    at_ms: float
    created_utc: str
    prompt: str
    prompt_token_ids: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    config: dict[str, Any]
    asked: dict[str, Any]
    models: tuple[ModelInfo, ...]
    drafters: tuple[str, ...]
    dtype: str
    device: str
    versions: dict[str, str]
    seed: int
    queue_ms: float
    # Older logs lack some of these fields.
    warnings: tuple[str, ...] = ()
    offload: OffloadInfo | None = None
    ranks: RanksInfo | None = None


@dataclass(frozen=True, slots=True)
class Drafted:
    """A round's drafts, in drafter order. Rounds are numbered from 0."""

    run_id: str
    seq: int
    at_ms: float
    round: int
    drafts: tuple[DraftRecord, ...]


@dataclass(frozen=True, slots=True)
class Combined:
    """The tree that the LLM verifies. `token_ids`, `texts`, `parents`, `depths` and `proposals`
    have one entry per node.

    `dropped`: drafted tokens that are not in the tree, each as its drafter and its index in the
    DraftRecord. `weights`: the drafters' weights, by name. `masses`: the weight of each node;
    `dropped_masses`: the weight of each dropped token. Weights and masses are empty under combine
    rules without weights. `winner`: the drafter whose sequence won a vote, else empty. `origins`:
    for each node of a tree with fused drafts (see core.config.mechanisms.DraftKind), the drafter
    whose proposal counts; else empty.
    """

    run_id: str
    seq: int
    at_ms: float
    round: int
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    proposals: tuple[tuple[ProposalRecord, ...], ...]
    dropped: tuple[tuple[str, int], ...]
    root_token_id: int
    root_text: str
    # Older logs lack some of these fields.
    rule: str = "union"
    weights: dict[str, float] = field(default_factory=dict)
    masses: tuple[float, ...] = ()
    dropped_masses: tuple[float, ...] = ()
    winner: str = ""
    origins: tuple[str, ...] = ()

    def drafters_of(self, node: int) -> tuple[str, ...]:
        """The drafters that proposed a node."""
        # A fused chain is in the draft of every SSM: `proposals` name all SSMs.
        if self.origins:
            return (self.origins[node],)
        return tuple(dict.fromkeys(proposal.drafter for proposal in self.proposals[node]))


@dataclass(frozen=True, slots=True)
class Verified:
    """The LLM's verdict on the tree.

    `path`: accepted nodes from the root down. `outcomes`: one per node, `accepted`, `rejected` or
    `not_reached`. `own_*`: the LLM's own token after the path. `own_kind`: `recovered` after a
    rejection, `bonus` after an accepted leaf, `plain` after an empty tree, `none` if the path ends
    with EOS. `llm_probabilities`: the LLM's probability of each node's token after its parent, in
    the processed distribution; at temperature 0, in the softmax of the penalized logits.
    `own_probability`: the same for the own token."""

    run_id: str
    seq: int
    at_ms: float
    round: int
    rule: str
    path: tuple[int, ...]
    outcomes: tuple[str, ...]
    # None, "", "none" and 0 if the path ends with EOS.
    own_token_id: int | None
    own_text: str
    own_kind: str
    own_probability: float
    llm_probabilities: tuple[float, ...]
    trials: tuple[Trial, ...]
    # Empty unless `record_top_k` is set.
    top_k: tuple[TopK, ...]


@dataclass(frozen=True, slots=True)
class RoundCompleted:
    """The tokens that the round committed, after EOS, stop strings and the token limit were
    applied.

    `texts`: the tokens, each decoded alone. `text_deltas`: the text that each token adds; empty for
    a special token, and while a character is incomplete. `num_accepted`: how many of the new tokens
    were drafted. `num_cut`: how many levels of the tree are beyond the end of the text. `spans`:
    the stages of the round, and prefills. `weights`, `temperatures`: by drafter, after the round.
    `kv_used`: committed tokens in the request's row of the LLM's KV cache; `kv_capacity`: the slots
    allocated for a row.

    `speculation_length`: the length chosen for this round's drafts. `next_speculation_length`: the
    length for the next round, within the scheduler's present limit. A length that the policy found
    is cut to the depth that the drafts can have; a length that the user gave is not.
    `length_reason`: why the next length was chosen, and what limits its drafts. `estimates`: one
    for each candidate length. `between_ms`: the time between the round's stages, in which a reader
    may hold an event; 0 if other requests are active. `predicted_ms`: the length policy's
    prediction of this round's time, including `between_ms`; 0 without a prediction.

    `notes`: sentences for the reader. `routing`: each SSM's role and score; empty without a router.
    `scheduled`: None under the schedule `each`. `loads`: reads of an offloaded LLM's layers.
    `nodes`: the trips to drafter nodes. `traffic`: empty for an LLM in one process.
    """

    run_id: str
    seq: int
    at_ms: float
    round: int
    # The prompt's first token has position 0.
    position: int
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    text_deltas: tuple[str, ...]
    num_accepted: int
    num_cut: int
    speculation_length: int
    next_speculation_length: int
    weights: dict[str, float]
    temperatures: dict[str, float]
    spans: tuple[Span, ...]
    kv_used: int
    kv_capacity: int
    # Older logs lack some of these fields.
    length_reason: str = ""
    estimates: tuple[Estimate, ...] = ()
    predicted_ms: float = 0.0
    ahead: tuple[Ahead, ...] = ()
    notes: tuple[str, ...] = ()
    between_ms: float = 0.0
    routing: tuple[RoutedDrafter, ...] = ()
    routing_reason: str = ""
    scheduled: Scheduled | None = None
    loads: tuple[Span, ...] = ()
    nodes: tuple[NodeTrip, ...] = ()
    traffic: tuple[RankTraffic, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The run's regular end: `finish_reason` is `length`, `eos`, `stop` or `context`.

    `text_tail`: text withheld until now because a character was incomplete.
    """

    run_id: str
    seq: int
    at_ms: float
    finish_reason: str
    text_tail: str
    stats: RunStats


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The caller stopped the run. `stats`: of the run until then."""

    run_id: str
    seq: int
    at_ms: float
    text_tail: str
    stats: RunStats


@dataclass(frozen=True, slots=True)
class RunFailed:
    """An error ended the run. `error`: the class name of the error."""

    run_id: str
    seq: int
    at_ms: float
    text_tail: str
    error: str
    message: str
    stats: RunStats


EndEvent = RunCompleted | RunCancelled | RunFailed
"""A run's last event."""
Event = RunStarted | Drafted | Combined | Verified | RoundCompleted | EndEvent

EVENT_TYPES: Mapping[str, type[Any]] = types.MappingProxyType(
    # The class names are in logs: renaming a class would break old logs.
    {cls.__name__: cls for cls in typing.get_args(Event)}
)


def event_to_plain(event: Event) -> dict[str, Any]:
    """The event as JSON types and tuples, with its class name under `event`."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}


def event_from_plain(values: Mapping[str, Any]) -> Event:
    """The inverse of `event_to_plain`, also after a trip through JSON. Raises ConfigError for an
    unknown event or field, TypeError for a missing field without a default."""
    fields = dict(values)
    name = fields.pop("event", None)
    if name not in EVENT_TYPES:
        raise ConfigError.must_be("event", name, f"one of {', '.join(EVENT_TYPES)}")
    event: Event = from_plain(EVENT_TYPES[name], fields)
    return event
