"""The values that events are made of.

core/events/events.py says how nodes are numbered and when times begin.
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
    """The time of a stage, in milliseconds since the run left the queue. `lane`: a drafter's name,
    `combine`, `llm`, `verify`, `commit` or `layers`.

    `name`: the stage. `audition`: an SSM scores the text's last tokens; the run's first audition is
    named `prefill`. `ahead`: drafting for the next round. `load`: reading an offloaded LLM's
    layers. `wire`: the transfer to and from a drafter node, or the wait `Engine.wire_ms` that
    imitates it.

    `share`: the part of the time that counts for this lane and run; less than 1 if several SSMs or
    requests shared the time. The LLM's pass counts in full for each of its requests.
    """

    lane: str
    name: str
    start_ms: float
    end_ms: float
    # Older logs lack this field.
    share: float = 1.0

    @property
    def ms(self) -> float:
        """Milliseconds that count for this lane and run."""
        return (self.end_ms - self.start_ms) * self.share


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One loaded model. `role`: `llm` or `ssm`. `parameters`: counts each tied weight once.
    `fingerprint`: a digest of the weights; empty in older logs."""

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
        """The address of the SSM's drafter node; empty for a local model."""
        # The device of a remote SSM is `DEVICE of node HOST:PORT`.
        return self.device.partition(ON_NODE)[2]

    def is_same(self, other: ModelInfo) -> bool:
        """Whether all fields are equal. An empty fingerprint counts as equal to any other."""
        both_known = bool(self.fingerprint and other.fingerprint)
        return replace(self, fingerprint="") == replace(other, fingerprint="") and (
            not both_known or self.fingerprint == other.fingerprint
        )


@dataclass(frozen=True, slots=True)
class OffloadInfo:
    """How the LLM's layers are streamed. `mode`: from `host` memory or from `disk`. `streamed`: how
    many of the `layers` are read again in every pass. `bytes_a_pass`: bytes of the streamed layers;
    `resident_bytes`: bytes of the other layers. `mbps`: the limit of the reading rate in 10^6 bytes
    a second; 0: no limit."""

    mode: str
    layers: int
    streamed: int
    resident_bytes: int
    bytes_a_pass: int
    mbps: float = 0.0

    @property
    def least_ms(self) -> float:
        """The least milliseconds of a pass at the limited rate; 0 without a limit."""
        # 10^6 bytes a second are 10^3 bytes a millisecond.
        return self.bytes_a_pass / self.mbps / 1000 if self.mbps else 0.0


@dataclass(frozen=True, slots=True)
class NodeTrip:
    """A trip to a drafter node for a round. `state`: `in_time`; `ahead`, the drafts arrived before
    the round began; `late`, no answer before the deadline; `absent`, no answer for another reason.

    `round_trip_ms`: from request to drafts, 0 without an answer; `busy_ms`: the part that the node
    spent drafting; `deadline_ms`: how long the engine waits at most; `drafts`: how many drafts
    arrived; `starts`: how many starts of the node the engine has noticed; `plain_ms`: predicted
    time of an LLM pass without a draft, 0 if unknown. `start_ms`: when the request was sent;
    `end_ms`: when the answer arrived or the wait ended. Without a request, `start_ms` and `end_ms`
    are 0.
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
    """How the LLM is divided among processes. `split`: `tp` (tensor parallel) or `pp` (pipeline
    parallel). `weight_bytes`: the bytes of each rank's weights, rank 0 first."""

    split: str
    weight_bytes: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.weight_bytes)


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """The data that one rank exchanged with the other ranks in the LLM's pass of a round.
    `collectives`: the number of collectives; `bytes`: the size of their tensors; `ms`: the time of
    the collectives, with the wait for other ranks; on a GPU, only the time of the launches."""

    rank: int
    collectives: int
    bytes: int
    ms: float


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """The tree of tokens that one drafter drafted in one round; the tuples from `token_ids` to
    `ranks` have one entry per node.

    `scores`: the drafter's estimate of each token's acceptance probability; `qs`: the probability
    with which each token was drawn, 1 if the token was not drawn; `ranks`: order among siblings,
    from 0; in a fused draft (see DraftKind in core.config.mechanisms) 1 for a token that the
    drafter did not propose, else 0. `drafted_ahead`: at least a part of the draft was made during
    an earlier LLM pass.

    A lookup's draft has for each node: `contexts`, how many tokens before the node were found in
    texts or counts; `shares`, the node's share among the tokens that followed these tokens.
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
    # Only lookups fill these fields; older logs lack them.
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

    `p`: the LLM's probability of the token. Under the verify rules `mss` and `traversal`, `p` is
    taken from the residual distribution that earlier trials leave. Under `traversal`, `p` is also
    multiplied by the acceptance probability that is left to the parent's branch. `q`: the
    proposal's probability; 1 under `greedy` and `match`.
    """

    node: int
    drafter: str
    p: float
    q: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class TopK:
    """The most probable tokens after `node`. `source`: `llm` or a drafter.

    A drafter's probabilities are the softmax of its penalized logits. The LLM's probabilities are
    processed; at temperature 0, they are the softmax of the LLM's penalized logits.
    """

    node: int
    source: str
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A length policy's estimate: a round with `length` drafting steps and `nodes` verified nodes
    commits `tokens` tokens in `ms` milliseconds."""

    length: int
    nodes: int
    tokens: float
    ms: float


@dataclass(frozen=True, slots=True)
class Ahead:
    """The result of one drafter's drafting ahead.

    The drafter continued `outcomes` guessed results of the last verification; `probability`: the
    sum of the guesses' probabilities. `hit`: this round's draft continues a guess that came true.
    `saved_ms`: how long this round's draft ran during LLM passes. `wasted_ms`: the time of drafting
    ahead that is no part of this round's draft. `reason` of a miss: `wrong`, no guess came true;
    `unused`, a guess came true, but the round did not use the guess's draft; `ended`, the text
    ended before the next round.

    A draft made during the LLM's pass for another request is a hit with 0 outcomes.
    """

    drafter: str
    outcomes: int
    probability: float
    hit: bool
    saved_ms: float
    wasted_ms: float
    # Empty for a hit, and in older logs. Older logs count `unused` drafts as hits.
    reason: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether nothing was guessed: the drafter continued committed text."""
        return self.hit and not self.outcomes


@dataclass(frozen=True, slots=True)
class RoutedDrafter:
    """An SSM in a round of a run with routing. `role`: `routed`, may draft; `explored`, may draft
    to be measured; `waiting`, does not draft; `lost`, has failed. `score`: after the round, on the
    scale of the routing rule."""

    drafter: str
    role: str
    score: float


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request's part in a round that an engine scheduled together with other requests.

    `num_batch`: requests in this LLM pass; `num_waiting`: requests in the queue. `length_limit`,
    `drafter_limit`: the limits for this request's draft; None: no limit. `num_drafted`: nodes after
    the combine rule; `num_granted`: verified nodes; `batch_*`: the sums over all requests in the
    pass. `tokens_per_ms`: tokens that all requests together commit per millisecond, from which the
    node budget follows; 0: not used. `decision`: `more`, `fewer`, `plain` or `drafts` if the limits
    have changed since this request's last round, else empty.
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

    `num_accepted_tokens`: drafted tokens that were emitted. `num_draft_tokens`: sum of the verified
    trees' depths, without levels that EOS, a stop string or the limit cut off.
    `draft_acceptance_rate`: accepted tokens per draft token. `mean_acceptance_length`: 1 + accepted
    tokens per round. `acceptance_histogram[j]`: rounds that accepted j drafted tokens.
    `acceptance_rate_per_position[i]`: share of rounds that accepted more than i drafted tokens.
    `overlap_ratio`: the time in which the LLM and a drafter of the run were both busy, divided by
    the LLM's busy time for the run; at most 1. `tokens_per_second`: emitted tokens a second, from
    the end of the prefill to the end. `ttft_ms` and `total_ms` start when the request leaves the
    queue.
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
    """The time of a stage in seconds of time.perf_counter; `share`: see Span."""

    lane: str
    name: str
    start: float
    end: float
    share: float = 1.0

    @property
    def seconds(self) -> float:
        """Seconds that count for this lane and run."""
        return (self.end - self.start) * self.share
