"""The events of a run: frozen, slotted, with plain values only, so that they survive JSON and
SQLite.

Every event carries `run_id`, `seq` (0, 1, 2, ... within the run) and `at_ms`, monotonic
milliseconds since the run left the queue. Nodes are numbered as in TokenTree: parents first, -1 is
the root (the last committed token). Probabilities are floats in [0, 1]. Drafters are listed in the
fixed order of `RunStarted.drafters`. Types of fields are defined in core/events/parts.py.

Order within a run: RunStarted; then for each round Drafted, Combined, Verified, RoundCompleted;
then one of RunCompleted, RunCancelled, RunFailed. A round of plain decoding has all four events,
with nothing drafted. A run that ends before it starts has its last event only; a round that fails
lacks its remaining events.
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
    """The request as it will be run: `config` is the whole request, with every `auto` resolved
    except `pipeline=auto`.

    `asked` is the request as it was submitted; `created_utc`: ISO 8601; `prompt_texts`: the text of
    each prompt token; `models`: all loaded models, the LLM first; `drafters`: names of the drafters
    that may draft; `dtype`, `device`: the LLM's; `versions`: of Python and libraries, by name;
    `seed`: the seed that was given or drawn; `queue_ms`: the request's time in the queue.
    `warnings` are sentences for the reader (a fallback and its reason, what bfloat16 means).
    `offload`: how the LLM's layers are streamed, None if they are not streamed. `ranks`: how the
    LLM is divided among processes, None for one process.
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
    # With defaults from here on, as in RoundCompleted.
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

    `dropped`: (drafter, index in its DraftRecord) of drafted tokens that are not in the tree.
    `rule`: the combine rule. The next fields are filled in only if the rule is weighted. `weights`:
    the drafters' weights that it used; `masses`: the weight of each node; `dropped_masses`: the
    weight of each dropped token; `winner`: the drafter whose sequence won a vote.

    `origins`: in a tree with fused drafts, the drafter that proposed each node; else empty.
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
    # With defaults from here on, as in RoundCompleted.
    rule: str = "union"
    weights: dict[str, float] = field(default_factory=dict)
    # One entry per node, and one entry per entry of `dropped`.
    masses: tuple[float, ...] = ()
    dropped_masses: tuple[float, ...] = ()
    winner: str = ""
    origins: tuple[str, ...] = ()

    def drafters_of(self, node: int) -> tuple[str, ...]:
        """The drafters that proposed a node; in a fused tree, the drafter that `origins` names."""
        # The common chain of a fused draft is in the draft of every SSM, so `proposals` name all
        # SSMs.
        if self.origins:
            return (self.origins[node],)
        return tuple(dict.fromkeys(proposal.drafter for proposal in self.proposals[node]))


@dataclass(frozen=True, slots=True)
class Verified:
    """The LLM's verdict on the tree.

    `rule`: the verify rule. `path`: accepted nodes from the root down. `outcomes`: `accepted`,
    `rejected` or `not_reached`, one per node. `own_*`: the LLM's own token after the path;
    `own_kind` is `recovered` (after a rejection), `bonus` (after an accepted leaf), `plain`
    (nothing was drafted) or `none` (the path ends with EOS). `llm_probabilities`: for each node,
    the LLM's probability of its token after its parent, in the processed distribution. At
    temperature 0, where that distribution is one-hot, the plain softmax is used instead.
    `own_probability`: the same for the own token.
    """

    run_id: str
    seq: int
    at_ms: float
    round: int
    rule: str
    path: tuple[int, ...]
    outcomes: tuple[str, ...]
    # None, "" and 0 if the path ends with EOS.
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
    """The tokens that the round committed, after EOS, stop string and limit were applied.

    `token_ids`, `texts` and `text_deltas` have one entry per token: `texts` are the tokens, each
    decoded alone, for display; a delta is empty for a special token, and while a UTF-8 character is
    incomplete. `position` is the position of the first new token. `num_accepted`: how many of the
    new tokens were drafted; `num_cut`: how many levels of the tree are beyond the end of the text.
    `spans`: every stage of the round, drafts included, and prefills (the LLM's before round 0, an
    SSM's before its first draft). `weights`: drafter weights after the round. `temperatures`: each
    drafter's calibration temperature. `kv_used`: committed tokens in the request's row of the LLM's
    KV cache; `kv_capacity`: the slots allocated for a row.

    `speculation_length` is the length chosen for this round's drafts, `next_speculation_length` the
    length chosen for the next round's. Under a schedule, the next length is limited by this round's
    grant, and the next grant may differ. If the policy chose a length, it is recorded as cut to the
    depth that the node budget and the end of the text allow. If the user gave the length (`fixed`,
    `confidence`), it is recorded as given; `length_reason` then says whether the budget or the end
    of the text makes drafts less deep.

    `length_reason`: a sentence that says why the next length was chosen; `estimates`: the tokens
    and the time that the policy expects of each candidate length. `between_ms`: the time between
    stages, measured only for a lone request. `predicted_ms`: the policy's prediction of this
    round's time, `between_ms` included; 0 without a prediction. `ahead`: results of drafting ahead,
    sometimes two for one drafter. `notes`: sentences about what happened (a drafter failed,
    pipelining was switched off).

    `routing`: for each SSM of the run, its role in this round and its score after the round.
    `routing` is empty without a router, even if the length policy chooses the drafters.
    `routing_reason`: a sentence that says why these SSMs were chosen. Spans named `audition`: a
    router's scoring of all SSMs during the run.

    `scheduled`: the part of this request in its batch; None if each request has its own budget.

    `loads`: when layers of an offloaded LLM were read during this round, while its stages ran.
    `nodes`: the drafter nodes for which this round had draft requests. `traffic`: the data that
    each rank of an LLM over ranks exchanged in this round's pass.
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
    # By drafter name.
    weights: dict[str, float]
    temperatures: dict[str, float]
    spans: tuple[Span, ...]
    kv_used: int
    kv_capacity: int
    # With defaults from here on: logs that older versions wrote lack these fields.
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
    """The caller stopped the run; `stats`: of the run until then."""

    run_id: str
    seq: int
    at_ms: float
    text_tail: str
    stats: RunStats


@dataclass(frozen=True, slots=True)
class RunFailed:
    """An error ended the run. `error`: its class name; `message`: its message."""

    run_id: str
    seq: int
    at_ms: float
    text_tail: str
    error: str
    message: str
    stats: RunStats


EndEvent = RunCompleted | RunCancelled | RunFailed
"""A run has exactly one of these, its last event."""
Event = RunStarted | Drafted | Combined | Verified | RoundCompleted | EndEvent

EVENT_TYPES: Mapping[str, type[Any]] = types.MappingProxyType(
    # The class name is the event's type in JSON and in the log: renaming a class would break old
    # logs.
    {cls.__name__: cls for cls in typing.get_args(Event)}
)


def event_to_plain(event: Event) -> dict[str, Any]:
    """The event as JSON's own types plus tuples, with its class name under `event`."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}


def event_from_plain(values: Mapping[str, Any]) -> Event:
    """The inverse of `event_to_plain`, also after a trip through JSON (lists become tuples). Raises
    ConfigError for an unknown event or field, TypeError for a missing field without a default."""
    fields = dict(values)
    name = fields.pop("event", None)
    if name not in EVENT_TYPES:
        raise ConfigError.must_be("event", name, f"one of {', '.join(EVENT_TYPES)}")
    event: Event = from_plain(EVENT_TYPES[name], fields)
    return event
