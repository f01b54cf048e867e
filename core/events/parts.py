"""The values that events are made of: frozen, slotted, with plain fields.

core/events/events.py defines the numbering of nodes, the order of drafters and the zero of times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "ON_NODE",
    "Ahead",
    "DraftRecord",
    "Estimate",
    "ModelInfo",
    "NodeTrip",
    "OffloadInfo",
    "ProposalRecord",
    "RankTraffic",
    "RanksInfo",
    "RoutedDrafter",
    "RunStats",
    "Scheduled",
    "Span",
    "Timed",
    "TopK",
    "Trial",
]


ON_NODE = " of node "
"""Separates the device from the address of its node, in `ModelInfo.device`."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a stage, in milliseconds since the run left the queue. `lane` is a drafter's
    name, `combine`, `llm`, `verify`, `commit` or `layers`.

    `name` is the stage: `draft`, `catch_up`, `combine`, `forward`, `verify`, `commit`, `prefill`;
    `audition`: an SSM scores the text's last tokens (in the run's first audition such a span is
    named `prefill`); `ahead`: drafting for the next round during this round's `forward`; `load`, on
    the lane `layers`: reading an offloaded LLM's layers; `wire`: the transfer of the request and of
    the drafts of an SSM on a drafter node, or a wait as long as one (`Engine.wire_ms`). `share`:
    the part of the time that counts for this lane and run; less than 1 if several SSMs or requests
    shared the time. The LLM's pass is an exception: it counts in full for each of its requests.
    """

    lane: str
    name: str
    start_ms: float
    end_ms: float
    # Older logs lack this field.
    share: float = 1.0

    @property
    def ms(self) -> float:
        """Milliseconds spent on this lane; spans of drafters that share a pass add up to its
        time."""
        # n SSMs in one batched pass have n spans over the same time, each with a share of 1 / n.
        return (self.end_ms - self.start_ms) * self.share


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One loaded model. `role` is `llm` or `ssm`; `parameters` counts each tied weight once.

    `fingerprint`: a digest of its weights, which distinguishes models of one name; empty in older
    logs.
    """

    name: str
    role: str
    parameters: int
    architecture: str
    vocab_size: int
    context_length: int
    dtype: str
    device: str
    fingerprint: str = ""

    @property
    def node(self) -> str:
        """The address of the drafter node that has this SSM; empty for a model in the engine's
        process."""
        # The device of a remote SSM is `DEVICE of node HOST:PORT`.
        return self.device.partition(ON_NODE)[2]

    def is_same(self, other: ModelInfo) -> bool:
        """Whether both are the same model, and would write the same text: all fields are equal.
        Fingerprints are compared only if both models have one."""
        # Runs of older logs have no fingerprint: then the other fields decide.
        both_known = bool(self.fingerprint and other.fingerprint)
        return replace(self, fingerprint="") == replace(other, fingerprint="") and (
            not both_known or self.fingerprint == other.fingerprint
        )


@dataclass(frozen=True, slots=True)
class OffloadInfo:
    """How the LLM's layers are streamed. `mode`: `host` (from host memory) or `disk`. Of `layers`
    layers, `streamed` layers are read again in every pass, `bytes_a_pass` bytes in all. The other
    layers, `resident_bytes` bytes, stay on the device. `mbps`: the limit of the reading rate in
    10^6 bytes a second; 0: no limit."""

    mode: str
    layers: int
    streamed: int
    resident_bytes: int
    bytes_a_pass: int
    mbps: float = 0.0

    @property
    def least_ms(self) -> float:
        """The least time of a pass at the limited rate; 0 without a limit."""
        # 10^6 bytes a second are 10^3 bytes a millisecond.
        return self.bytes_a_pass / self.mbps / 1000 if self.mbps else 0.0


@dataclass(frozen=True, slots=True)
class NodeTrip:
    """One drafter node's part in a round. `state`: `in_time`; `ahead`, its drafts arrived before
    the round began; `late`, no answer before the deadline; `absent`, the node was not connected,
    lost its connection, refused the round, or was still busy with an earlier round.

    `round_trip_ms`: from request to drafts, 0 without an answer; `busy_ms`: the part of the round
    trip that the node spent drafting; `deadline_ms`: how long the engine waits at most; `drafts`:
    how many drafts arrived. `starts`: how often the node was started, as far as the engine noticed.
    `plain_ms`: predicted time of an LLM pass without a draft; 0: unknown. The request was sent at
    `start_ms`. At `end_ms` the answer arrived or, without an answer, the engine stopped waiting.
    With `ahead` both times are before the round. Both are 0 if no request was sent.
    """

    node: str
    state: str
    round_trip_ms: float
    deadline_ms: float
    busy_ms: float = 0.0
    drafts: int = 0
    starts: int = 1
    plain_ms: float = 0.0
    start_ms: float = 0.0
    end_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RanksInfo:
    """How the LLM is divided among processes: `split` is `tp` (each layer among all ranks) or `pp`
    (each rank has some layers); `weight_bytes`: the bytes of each rank's weights, rank 0 first."""

    split: str
    weight_bytes: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.weight_bytes)


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """The data that one rank exchanged with the other ranks in the LLM's pass of a round.
    `collectives`: the number of collectives; `bytes`: the size of their tensors; `ms`: their time,
    including the wait for other ranks; on a GPU, only the time of launching them."""

    rank: int
    collectives: int
    bytes: int
    ms: float


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """The tokens that one drafter drafted in one round, as a tree of its own; the tuples from
    `token_ids` to `ranks` have one entry per node.

    `scores`: an SSM's probability of each token, by the calibrated softmax of its logits, or in
    coupled drafts of log q plus the LLM's noise; `qs`: the probability with which each token was
    drawn (1 for a deterministic proposal); `ranks`: draw order among siblings. `drafted_ahead`: the
    draft, or a part of it, was made during an earlier LLM pass. A lookup is a drafter without a
    model, which searches texts or counts. Its drafts also have `contexts`: how many tokens before
    each node were found in texts or counts; and `shares`: the node's share among the tokens that
    followed there. The node's score is its share times the acceptance rate measured so far.
    """

    drafter: str
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    scores: tuple[float, ...]
    qs: tuple[float, ...]
    ranks: tuple[int, ...]
    drafted_ahead: bool
    spans: tuple[Span, ...]
    # Empty except for lookups, and in older logs.
    contexts: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposalRecord:
    """One drafter's proposal of one node of the combined tree; fields as in DraftRecord."""

    drafter: str
    score: float
    q: float
    rank: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One accept-or-reject decision at `node`.

    `p` is the LLM's probability of the token in the residual distribution that earlier trials
    leave; under `traversal` it is multiplied by the acceptance probability that is left to the
    parent's branch. `q` is the proposal's probability. For `greedy` and `match` each child of a
    visited node has one trial, with q = 1 and the unchanged p.
    """

    node: int
    drafter: str
    p: float
    q: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class TopK:
    """The most probable tokens after `node` (-1: after the root) under `source` (`llm` or a
    drafter).

    The LLM's probabilities are processed by temperature, top-k, top-p and min-p; at temperature 0,
    where these would be one-hot, they are the plain softmax. A drafter's probabilities are its
    plain softmax, neither coupled nor calibrated.
    """

    node: int
    source: str
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The result that a length policy expects of drafting `length` steps and verifying `nodes`
    nodes: `tokens` committed tokens in a round of `ms` milliseconds."""

    length: int
    nodes: int
    tokens: float
    ms: float


@dataclass(frozen=True, slots=True)
class Ahead:
    """The result of one drafter's early drafting for this round. The drafter drafted during the
    last verification of its own request, or during the LLM's pass for another request. In the
    second case there are no `outcomes`, and the result is a hit.

    The drafter continued `outcomes` guessed results of the verification, of total `probability`.
    `hit`: one of these guesses came true, and this round's draft continues it. `saved_ms`: the time
    of this round's draft that ran during LLM passes; `wasted_ms`: the time of early drafting that
    is no part of this round's draft. `reason` of a miss: `wrong`, no guess came true (or none was
    made in time); `unused`, a guess came true, but the round did not use its draft; `ended`, the
    draft was made for a next round, which did not come since the text ended. Older logs have no
    reason, and count `unused` drafts as hits.
    """

    drafter: str
    outcomes: int
    probability: float
    hit: bool
    saved_ms: float
    wasted_ms: float
    # Empty for a hit, and in older logs.
    reason: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether nothing was guessed: the drafter continued committed text."""
        return self.hit and not self.outcomes


@dataclass(frozen=True, slots=True)
class RoutedDrafter:
    """An SSM in a round of a run that routes. `role`: `routed` (it drafts), `explored` (it drafts
    to be measured), `waiting` (it does not draft) or `lost` (it failed); `score`: after the round,
    on the scale of the routing rule."""

    drafter: str
    role: str
    score: float


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request's part in a round that an engine scheduled together with other requests.

    `schedule`: the rule. `num_live` requests were served, `num_batch` of them in this LLM pass,
    `num_waiting` in the queue. `length_limit`, `drafter_limit`: the limits granted to this request
    before it drafted, None for no limit. `num_drafted` nodes after the combine rule, `num_granted`
    of them verified; `batch_*`: of all requests in the pass. `tokens_per_ms`: the price of time
    with which the budget was computed; 0 if there was none. `decision`: `more`, `fewer`, `plain` or
    `drafts` if the limits have changed since this request's last round, else empty; `reason`: a
    sentence for the reader.
    """

    schedule: str
    num_live: int
    num_batch: int
    num_waiting: int
    length_limit: int | None
    drafter_limit: int | None
    num_drafted: int
    num_granted: int
    batch_drafted: int
    batch_granted: int
    tokens_per_ms: float
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunStats:
    """The figures of one run.

    `num_accepted_tokens`: drafted tokens that were emitted. `num_draft_tokens`: sum over rounds of
    the verified tree's depth, less what EOS, a stop string or the limit cut off.
    `draft_acceptance_rate`: accepted tokens per draft token. `mean_acceptance_length`: 1 + accepted
    tokens a round, the LLM's own token counted in every round. `num_verified_nodes`: sum of tree
    sizes. `acceptance_histogram[j]`: rounds that accepted j drafted tokens.
    `acceptance_rate_per_position[i]`: share of rounds that accepted more than i drafted tokens.
    `overlap_ratio`: the time in which the LLM and a drafter of the run were both busy, divided by
    the LLM's busy time for the run; at most 1. With `across` the LLM's passes for other requests
    count in the dividend, too. `tokens_per_second`: emitted tokens a second from the end of the
    prefill to the end. Times are milliseconds; `ttft_ms` starts when the request leaves the queue.
    """

    num_new_tokens: int = 0
    num_rounds: int = 0
    num_accepted_tokens: int = 0
    num_draft_tokens: int = 0
    num_verified_nodes: int = 0
    draft_acceptance_rate: float = 0.0
    mean_acceptance_length: float = 0.0
    acceptance_histogram: tuple[int, ...] = ()
    acceptance_rate_per_position: tuple[float, ...] = ()
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    prefill_ms: float = 0.0
    overlap_ratio: float = 0.0
    tokens_per_second: float = 0.0
    ttft_ms: float = 0.0
    queue_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of a stage on the process's monotonic clock (time.perf_counter), in seconds;
    `share`: see Span. Events have a Span instead, whose times are relative to the run."""

    lane: str
    name: str
    start: float
    end: float
    share: float = 1.0

    @property
    def seconds(self) -> float:
        """Seconds spent on this lane; see Span."""
        return (self.end - self.start) * self.share
