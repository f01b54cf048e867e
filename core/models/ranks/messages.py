"""Messages between the leader of an LLM's ranks and its followers: tagged arrays in MessagePack."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "FORMAT",
    "LONGEST",
    "BarrierPassed",
    "BarrierReached",
    "CloseRow",
    "CommitRow",
    "EndRank",
    "ExchangeFailed",
    "FromFollower",
    "LoadShard",
    "OpenRow",
    "PassDone",
    "PassFeed",
    "RankFailed",
    "RankJoined",
    "RunPass",
    "ShardReady",
    "ToFollower",
    "decode_call",
    "decode_reply",
    "encode",
]

# Increment with any change of a struct: fields are sent without names, and a message of another
# version would be misread.
FORMAT = 2
"""Version of these messages; a follower with another version is refused."""
LONGEST = 1 << 26
"""Limit on the bytes of a message."""


class _RankMessage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    pass


class LoadShard(_RankMessage, tag="load"):
    """Read this rank's shard. `name`, `local`, `file`: see ModelSource
    (core.models.loading.catalog). `split`, `count`: see RankSplit (core.config.ranks).
    `threads`: the most threads of this rank. `timeout_s`: how long a collective waits for other
    ranks."""

    name: str
    local: bool
    file: str
    split: str
    count: int
    dtype: str
    device: str
    threads: int
    timeout_s: float


class BarrierPassed(_RankMessage, tag="meet"):
    """All ranks have reached the barrier."""


class OpenRow(_RankMessage, tag="open"):
    """See `LanguageModel.open_row`; row numbers agree on all ranks."""


class CloseRow(_RankMessage, tag="close"):
    """See `LanguageModel.close_row`."""

    row: int


class PassFeed(_RankMessage):
    """See Feed (core.models.protocol)."""

    row: int
    token_ids: list[int]
    parents: list[int]
    last_only: bool


class RunPass(_RankMessage, tag="pass"):
    """Run a pass. `number` is repeated in its PassDone."""

    number: int
    feeds: list[PassFeed]


class CommitRow(_RankMessage, tag="commit"):
    """See `LanguageModel.commit`."""

    row: int
    nodes: list[int]
    keep: list[int]


class EndRank(_RankMessage, tag="end"):
    """End the process."""


ToFollower = LoadShard | BarrierPassed | OpenRow | CloseRow | RunPass | CommitRow | EndRank


class RankJoined(_RankMessage, tag="joined"):
    """The first message of a follower. `format`: its FORMAT."""

    rank: int
    format: int
    host: str


class BarrierReached(_RankMessage, tag="arrived"):
    """The rank has reached the barrier and waits for BarrierPassed."""


class ShardReady(_RankMessage, tag="ready"):
    """The shard is loaded and checked."""

    weight_bytes: int


class PassDone(_RankMessage, tag="done"):
    """A pass has ended. `number`: see RunPass. The other fields: see PassTraffic (group.py)."""

    number: int
    collectives: int
    bytes: int
    seconds: float


class RankFailed(_RankMessage, tag="failed"):
    """The rank ends with an error of its own."""

    error: str


class ExchangeFailed(_RankMessage, tag="exchange"):
    """The rank ends because another rank has failed, ended or not answered."""

    error: str


FromFollower = RankJoined | BarrierReached | ShardReady | PassDone | RankFailed | ExchangeFailed


def encode(message: ToFollower | FromFollower) -> bytes:
    """The message as bytes."""
    return msgspec.msgpack.encode(message)


def decode_call(data: bytes) -> ToFollower:
    """A message to a follower. Raises ValueError for anything else."""
    call: ToFollower = _decode(data, ToFollower)
    return call


def decode_reply(data: bytes) -> FromFollower:
    """A message from a follower. Raises ValueError for anything else."""
    reply: FromFollower = _decode(data, FromFollower)
    return reply


def _decode(data: bytes, kind: Any) -> Any:
    if len(data) > LONGEST:
        raise ValueError(f"message has {len(data)} bytes: at most {LONGEST} are allowed")
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:  # text that is no UTF-8 is a ValueError
        raise ValueError(f"message cannot be read ({error})") from error
