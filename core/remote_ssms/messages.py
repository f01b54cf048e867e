"""Messages between an engine and a node: msgspec structs in MessagePack, bounded and versioned.

An engine sends hello, round, ahead and free; a node answers with welcome, drafts, ahead_drafts or
refused. Decoding runs no code of the sender.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta, MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from core.config.checks import MAX_SPECULATION_LENGTH, MAX_TREE_NODES
from core.config.config import MAX_TOKEN_ID

__all__ = [
    "LARGEST_FRAME",
    "MOST_OUTCOMES",
    "MOST_MESSAGE_TOKENS",
    "MOST_RUNS",
    "MOST_SSMS",
    "MOST_TEXT",
    "MOST_TOKENS",
    "VERSION",
    "AheadMessage",
    "AheadRequest",
    "AheadDraftsMessage",
    "AheadReply",
    "AheadStages",
    "Audition",
    "DraftRequestMessage",
    "DraftReply",
    "DraftsMessage",
    "FreeMessage",
    "FromNode",
    "HelloMessage",
    "StopLimitsMessage",
    "MessageError",
    "RunSettings",
    "OutcomeDrafts",
    "RefusedMessage",
    "RoundMessage",
    "RunRequest",
    "RunReply",
    "ServedSsm",
    "StageTimes",
    "ToNode",
    "TopRow",
    "WelcomeMessage",
    "encode",
    "from_node",
    "to_node",
]

M = TypeVar("M")
# Goes up with any change of a struct: fields are encoded without names.
VERSION = 2
LARGEST_FRAME = 8 << 20
"""The most bytes of a message."""
MOST_RUNS, MOST_SSMS, MOST_TEXT, MOST_TOKENS = 64, 16, 300, 1 << 17
"""The most runs, SSMs, characters of a reason, and tokens of one run's text in a message."""
MOST_MESSAGE_TOKENS = LARGEST_FRAME // 8
"""The most tokens of all runs in a message; a token takes at most 5 bytes."""
MOST_OUTCOMES = 16
"""The most outcomes in one AheadReply."""

Count = Annotated[int, Meta(ge=0, le=1 << 40)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
Position = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
# Bounded: logits are padded to an LLM's vocabulary.
VocabularySize = Annotated[int, Meta(ge=0, le=1 << 20)]
Index = Annotated[int, Meta(ge=0, le=255)]
NumNodes = Annotated[int, Meta(ge=1, le=MAX_TREE_NODES)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
# A device as torch writes it.
Device = Annotated[str, Meta(max_length=200, pattern=r"^[a-z0-9:]+\Z")]
Hash = Annotated[str, Meta(min_length=1, max_length=64)]
TokenIds = Annotated[list[TokenId], Meta(max_length=MOST_TOKENS)]
Shape = Annotated[list[NumNodes], Meta(max_length=MAX_SPECULATION_LENGTH)]
# A bound also rejects NaN. The limits have a margin for rounding.
Share = Annotated[float, Meta(ge=0, le=1.001)]
Probability = Annotated[float, Meta(ge=0, le=1.001)]
LogProb = Annotated[float, Meta(ge=-1000, le=0.001)]
Milliseconds = Annotated[float, Meta(ge=-1e7, le=1e7)]
Duration = Annotated[float, Meta(ge=0, le=1e7)]
Temperature = Annotated[float, Meta(ge=0.01, le=100)]
Scores = Annotated[list[float], Meta(max_length=MAX_SPECULATION_LENGTH)]
# The values in these lists are checked later, those of a tree together with the tree.
Integers = Annotated[list[int], Meta(max_length=MAX_TREE_NODES)]
Floats = Annotated[list[float], Meta(max_length=MAX_TREE_NODES)]
Likelihoods = Annotated[list[float], Meta(max_length=MOST_TOKENS)]


class MessageError(ValueError):
    """Bytes that are not a valid message of this version."""


class _Message(Struct, array_like=True, forbid_unknown_fields=True):
    """Encoded as an array: the tag, if any, then the fields."""


# -- from an engine --


class HelloMessage(_Message, tag="hello"):
    """First message of an engine. `tokenizer`: the tokenizer's `vocabulary_hash`; `vocab_size`: of
    the LLM."""

    version: Count
    tokenizer: Hash
    vocab_size: VocabularySize


class RunSettings(_Message):
    """The settings on which a run's drafts depend."""

    temperature: float
    top_k: Count
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    draft: Name
    combine: Name
    weights: Name
    routing: Name
    carry_over: bool
    eos_ids: Annotated[list[TokenId], Meta(max_length=256)]


class StopLimitsMessage(_Message):
    """See `core.speculation_length.base.StopLimits`."""

    least: float
    longest: Count | None
    scores: Scores | None


class DraftRequestMessage(_Message):
    """See `core.drafters.base.DraftRequest`. `weight`: of the SSM."""

    ssm: Name
    index: Index
    kind: Name
    shape: Shape
    budget: NumNodes
    weight: float
    stop: StopLimitsMessage | None


class RunRequest(_Message):
    """One run's text and draft requests. `tokens`: the text from position `start` (from 0) on.
    `settings`: None if the node has the run. `audition`: how many of the last tokens the SSMs
    `to_score` read; 0: no audition. `top_k`: the number of likeliest tokens to report after each
    tree node."""

    run: Name
    # `start` shows the node whether text is missing.
    start: Position
    tokens: TokenIds
    settings: RunSettings | None
    drafts: Annotated[list[DraftRequestMessage], Meta(max_length=MOST_SSMS)]
    audition: Annotated[int, Meta(ge=0, le=512)]
    to_score: Annotated[list[Name], Meta(max_length=MOST_SSMS)]
    top_k: Annotated[int, Meta(ge=0, le=50)]


class RoundMessage(_Message, tag="round"):
    """One round. The answer repeats `number`."""

    number: Count
    runs: Annotated[list[RunRequest], Meta(max_length=MOST_RUNS)]


class AheadRequest(_Message):
    """Drafting ahead for one run. `text`: the tokens that the node may lack; `text.drafts`:
    requests for drafts made ahead that the LLM now verifies. `token_ids`, `parents`: the tree that
    the LLM verifies. `drafts`: requests for drafts after the tree; `room`: see
    `TokenSequence.room`."""

    text: RunRequest
    token_ids: Annotated[list[TokenId], Meta(max_length=MAX_TREE_NODES)]
    parents: Integers
    drafts: Annotated[list[DraftRequestMessage], Meta(min_length=1, max_length=MOST_SSMS)]
    room: Count


class AheadMessage(_Message, tag="ahead"):
    """A round whose trees are being verified. The answer repeats `number`; no answer comes if
    another message arrives before the drafts are complete."""

    number: Count
    runs: Annotated[list[AheadRequest], Meta(max_length=MOST_RUNS)]


class FreeMessage(_Message, tag="free"):
    """Runs that have ended. The only possible answer is a refusal."""

    runs: Annotated[list[Name], Meta(max_length=MOST_RUNS)]


# -- from a node --


class ServedSsm(_Message):
    """See `core.events.ModelInfo`."""

    name: Name
    parameters: Count
    architecture: Name
    vocab_size: VocabularySize
    context_length: Count
    dtype: Name
    device: Device
    fingerprint: Annotated[str, Meta(max_length=200)]


class WelcomeMessage(_Message, tag="welcome"):
    """Answer to HelloMessage. `process_id`: differs after each start of the node."""

    version: Count
    tokenizer: Hash
    process_id: Name
    ssms: Annotated[list[ServedSsm], Meta(min_length=1, max_length=MOST_SSMS)]


class StageTimes(_Message):
    """A time span, in milliseconds since the node received the message."""

    name: Name
    start_ms: Milliseconds
    end_ms: Milliseconds
    share: Share


class TopRow(_Message):
    """The likeliest tokens after a tree node of a draft (-1: after the root)."""

    node: int
    token_ids: Annotated[list[TokenId], Meta(max_length=50)]
    probabilities: Annotated[list[Probability], Meta(max_length=50)]


class DraftReply(_Message):
    """See `core.trees.draft.Draft`. `temperature`: calibrates the SSM's scores; `likelihoods`: of
    the text's tokens since the SSM's last report, the newest last; `error`: why there is no
    draft."""

    ssm: Name
    index: Index
    token_ids: Integers
    parents: Integers
    scores: Floats
    ranks: Integers
    origins: Integers
    passes: Count
    stages: Annotated[list[StageTimes], Meta(max_length=1024)]
    temperature: Temperature
    likelihoods: Likelihoods
    top: Annotated[list[TopRow], Meta(max_length=MAX_TREE_NODES + 1)]
    error: Text = ""


class Audition(_Message):
    """Log-probabilities that an SSM gives the text's last tokens."""

    ssm: Name
    log_probs: Annotated[list[LogProb], Meta(max_length=512)]
    ms: Milliseconds


class RunReply(_Message):
    """One run's drafts. `length`: the number of text tokens that the node now has. `need`: -1,
    or the position from which the text must be sent again; nothing was drafted then."""

    run: Name
    length: Position
    need: Annotated[int, Meta(ge=-1, le=MOST_TOKENS)]
    drafts: Annotated[list[DraftReply], Meta(max_length=MOST_SSMS)]
    auditions: Annotated[list[Audition], Meta(max_length=MOST_SSMS)]


class DraftsMessage(_Message, tag="drafts"):
    """Answer to RoundMessage. `busy_ms`: time from the RoundMessage's arrival to this answer."""

    number: Count
    busy_ms: Duration
    runs: Annotated[list[RunReply], Meta(max_length=MOST_RUNS)]


class OutcomeDrafts(_Message):
    """Drafts after one outcome of the LLM's pass. `token_ids`: the tokens that the outcome commits;
    `probability`: of the outcome, predicted by an SSM."""

    token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_SPECULATION_LENGTH + 1)]
    probability: Probability
    drafts: Annotated[list[DraftReply], Meta(max_length=MOST_SSMS)]


class AheadStages(_Message):
    """An SSM's passes: over the tree, and for the drafts."""

    ssm: Name
    scoring: Annotated[list[StageTimes], Meta(max_length=1024)]
    drafting: Annotated[list[StageTimes], Meta(max_length=1024)]


class AheadReply(_Message):
    """One run's drafts made ahead. `length`, `need`: as in RunReply; `verified`: the drafts of
    `AheadRequest.text`, with their temperatures and likelihoods."""

    run: Name
    length: Position
    need: Annotated[int, Meta(ge=-1, le=MOST_TOKENS)]
    verified: Annotated[list[DraftReply], Meta(max_length=MOST_SSMS)]
    outcomes: Annotated[list[OutcomeDrafts], Meta(max_length=MOST_OUTCOMES)]
    stages: Annotated[list[AheadStages], Meta(max_length=MOST_SSMS)]


class AheadDraftsMessage(_Message, tag="ahead_drafts"):
    """Answer to AheadMessage. `busy_ms`: time from the AheadMessage's arrival to this answer."""

    number: Count
    busy_ms: Duration
    runs: Annotated[list[AheadReply], Meta(max_length=MOST_RUNS)]


class RefusedMessage(_Message, tag="refused"):
    """A message was not served. `number`: of the message; 0 for a message that was invalid or had
    no number."""

    number: Count
    reason: Text


ToNode = HelloMessage | RoundMessage | AheadMessage | FreeMessage
FromNode = WelcomeMessage | DraftsMessage | AheadDraftsMessage | RefusedMessage

# Built once: a Decoder compiles the checks of its types.
_ENCODER = Encoder()
_TO_NODE: Decoder[ToNode] = Decoder(ToNode)
_FROM_NODE: Decoder[FromNode] = Decoder(FromNode)


def encode(message: ToNode | FromNode) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def to_node(frame: bytes) -> ToNode:
    """An engine's message. Raises MessageError, also if a round or an ahead message names a run
    twice."""
    message = _decode(_TO_NODE, frame)
    if isinstance(message, RoundMessage | AheadMessage):
        names = [(run.text if isinstance(run, AheadRequest) else run).run for run in message.runs]
        if len({*names}) < len(names):
            repeated = max(names, key=names.count)
            raise MessageError(f"run is {repeated!r} more than once: each run once in a message")
    return message


def from_node(frame: bytes) -> FromNode:
    """A node's message. Raises MessageError."""
    return _decode(_FROM_NODE, frame)


def _decode(decoder: Decoder[M], frame: bytes) -> M:
    if len(frame) > LARGEST_FRAME:
        raise MessageError(f"message of {len(frame)} bytes: at most {LARGEST_FRAME} are read")
    try:
        return decoder.decode(frame)
    # Text that is not UTF-8 is a UnicodeDecodeError, too deep nesting a RecursionError.
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"no message of version {VERSION}: {error}"[:MOST_TEXT]) from error
