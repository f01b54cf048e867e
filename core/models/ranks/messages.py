"""Messages between the leader of a model's ranks and its followers: msgspec, tagged unions of
arrays.

No message holds a tensor. They come from processes of one user or one trusted network; still
nothing in them is executed, and a message of unknown form is refused.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "FORMAT",
    "LONGEST",
    "MeetRanks",
    "CloseRow",
    "CommitRow",
    "EndRank",
    "FromFollower",
    "LoadShard",
    "OpenRow",
    "PassDone",
    "PassFeed",
    "RankFailed",
    "RankJoined",
    "RunPass",
    "RankArrived",
    "ShardReady",
    "ToFollower",
    "decode_call",
    "decode_reply",
    "encode",
]

FORMAT = 1
"""Version of these messages; a follower of another one is refused."""
LONGEST = 1 << 26
"""Bytes of a message, at most; a longer one is refused."""


class _RankMessage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The base of all messages."""


class LoadShard(_RankMessage, tag="load"):
    """Read this rank's part of a model. `name`, `local`, `file`: its ModelSource; `split`, `count`:
    its RankSplit; `threads` of this rank; `timeout_s` of its collectives."""

    name: str
    local: bool
    file: str
    split: str
    count: int
    dtype: str
    device: str
    threads: int
    timeout_s: float


class MeetRanks(_RankMessage, tag="meet"):
    """All ranks have arrived at the next step of loading."""


class OpenRow(_RankMessage, tag="open"):
    """See `LanguageModel.open_row`; row numbers agree on all ranks."""


class CloseRow(_RankMessage, tag="close"):
    """See `LanguageModel.close_row`."""

    row: int


class PassFeed(_RankMessage):
    """See Feed."""

    row: int
    token_ids: list[int]
    parents: list[int]
    last_only: bool


class RunPass(_RankMessage, tag="pass"):
    """Run a pass. `number`: of the pass, which its PassDone repeats."""

    number: int
    feeds: list[PassFeed]


class CommitRow(_RankMessage, tag="commit"):
    """See `LanguageModel.commit`."""

    row: int
    nodes: list[int]
    keep: list[int]


class EndRank(_RankMessage, tag="end"):
    """End the process."""


ToFollower = LoadShard | MeetRanks | OpenRow | CloseRow | RunPass | CommitRow | EndRank


class RankJoined(_RankMessage, tag="joined"):
    """The first message of a follower. `format`: its FORMAT."""

    rank: int
    format: int
    host: str


class RankArrived(_RankMessage, tag="arrived"):
    """The rank is at the next step of loading, and waits for MeetRanks."""


class ShardReady(_RankMessage, tag="ready"):
    """The rank's passes are checked. `weight_bytes`: of its part of the weights."""

    weight_bytes: int


class PassDone(_RankMessage, tag="done"):
    """A pass has ended. Its collectives: their number, bytes of their tensors, seconds in them."""

    number: int
    collectives: int
    bytes: int
    seconds: float


class RankFailed(_RankMessage, tag="failed"):
    """The rank ends by an error."""

    error: str


FromFollower = RankJoined | RankArrived | ShardReady | PassDone | RankFailed


def encode(message: ToFollower | FromFollower) -> bytes:
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
