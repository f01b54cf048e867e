"""A follower: one rank of an LLM, which repeats the leader's calls on its own shard.

It ends on EndRank, when the leader's process ends, or on an error, which it reports.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.config.ranks import RankSplit
from core.errors import MODEL_FAULTS, ConfigError, RankError
from core.models.hf_model import HfModel
from core.models.loading.catalog import ModelSource
from core.models.loading.checkpoint import module_without_weights
from core.models.loading.placing import DTYPES
from core.models.loading.reading import info_of, quiet_transformers, read_config
from core.models.machine import use_threads
from core.models.protocol import Feed
from core.models.ranks.group import ExchangeError, RankGroup
from core.models.ranks.messages import (
    FORMAT,
    LONGEST,
    BarrierPassed,
    BarrierReached,
    CloseRow,
    CommitRow,
    EndRank,
    ExchangeFailed,
    FromFollower,
    LoadShard,
    OpenRow,
    PassDone,
    RankFailed,
    RankJoined,
    RunPass,
    ShardReady,
    ToFollower,
    decode_call,
    encode,
)
from core.models.ranks.rendezvous import (
    ENDS_WITH_INPUT,
    STORE_VARIABLE,
    Rendezvous,
    device_of_rank,
    env_rendezvous,
)
from core.models.ranks.sharding import checked_shard, read_shard

__all__ = ["LeaderLink", "follow"]

# Milliseconds between two checks that the leader is running.
POLL_MS = 2000


class LeaderLink:
    """A follower's connection to the leader."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        import zmq

        self._rendezvous = rendezvous
        self._context: Any = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        # The leader's ROUTER sends by identity.
        self._socket.identity = str(rendezvous.rank).encode()
        # Milliseconds in which `close` may still send the report of an error.
        self._socket.linger = 1000
        self._socket.maxmsgsize = LONGEST
        address = rendezvous.address()
        self._socket.ipv6 = address.startswith("tcp://[")
        self._socket.connect(address)

    def receive(self) -> ToFollower:
        """The next message. Raises ValueError for a message that cannot be read, RuntimeError if
        the leader has ended."""
        # A killed leader closes no connection: the rendezvous is checked at intervals.
        while not self._socket.poll(POLL_MS):
            self._rendezvous.check()
        return decode_call(self._socket.recv())

    def send(self, message: FromFollower) -> None:
        self._socket.send(encode(message))

    def close(self) -> None:
        self._context.destroy(1000)


@dataclass
class _Follower:
    """`group` and `model` are None until LoadShard."""

    leader: LeaderLink
    rendezvous: Rendezvous
    group: RankGroup | None = None
    model: HfModel | None = None

    def run(self) -> None:
        while not isinstance(message := self.leader.receive(), EndRank):
            self._do(message)

    def _do(self, message: ToFollower) -> None:
        if isinstance(message, LoadShard):
            self._load(message)
            return
        if (model := self.model) is None:
            raise RankError.of("message", type(message).__name__, "LoadShard comes first")
        match message:
            case OpenRow():
                model.open_row()
            case CloseRow(row):
                model.close_row(row)
            case CommitRow(row, nodes, keep):
                model.commit(row, nodes, keep)
            # Only rank 0 needs the logits.
            case RunPass(number, feeds):
                model.forward([Feed(f.row, f.token_ids, f.parents, f.last_only) for f in feeds])
                assert self.group is not None
                traffic = self.group.take_traffic()
                self.leader.send(
                    PassDone(number, traffic.collectives, traffic.bytes, traffic.seconds)
                )

    def _load(self, message: LoadShard) -> None:
        torch.set_grad_enabled(False)
        # This rank's machine may have fewer cores than the leader's.
        use_threads(min(message.threads, os.cpu_count() or 1))
        source = ModelSource(message.name, message.local, message.file)
        split = RankSplit(message.split, message.count)
        dtype = DTYPES[message.dtype]
        local = int(os.environ.get("LOCAL_RANK", 0))
        device = device_of_rank(torch.device(message.device), local)
        # In the same order as on rank 0 (`leader._RankStart`): all ranks must join the same
        # collectives.
        self.group = RankGroup(self.rendezvous, device, message.timeout_s)
        config = read_config(source)
        module = read_shard(source, config, dtype, split)
        # Of the undivided model, as on rank 0.
        info = info_of(module_without_weights(config), source, "llm", dtype, device, "")
        self.model = checked_shard(module, info, split, self.group, self._barrier)
        self.group.take_traffic()  # discards the check's traffic
        self.leader.send(ShardReady(self.model.weight_bytes))

    def _barrier(self) -> None:
        self.leader.send(BarrierReached())
        if not isinstance(message := self.leader.receive(), BarrierPassed):
            raise RankError.of("message", type(message).__name__, "BarrierPassed comes next")


def follow() -> int:
    """Runs one rank until its leader or an error ends it; returns the process's exit code."""
    if os.environ.get(ENDS_WITH_INPUT):
        threading.Thread(target=_exit_when_stdin_closes, name="leader", daemon=True).start()
    rendezvous = env_rendezvous()
    if rendezvous is None:
        raise ConfigError.of(
            "RANK", None, "a rank needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
    leader = LeaderLink(rendezvous)
    follower = _Follower(leader, rendezvous)
    leader.send(RankJoined(rendezvous.rank, FORMAT, platform.node()))
    try:
        with quiet_transformers():
            follower.run()
    except (*MODEL_FAULTS, KeyboardInterrupt) as error:
        kind = ExchangeFailed if isinstance(error, ExchangeError) else RankFailed
        leader.send(kind(f"{type(error).__name__}: {error}"[:2000]))
        if ENDS_WITH_INPUT not in os.environ:  # else the leader reports the error
            print(f"rank {rendezvous.rank}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        leader.close()
    return 0


def _exit_when_stdin_closes() -> None:
    """Ends this process, even in a collective, when the leader's process closes the pipe."""
    sys.stdin.buffer.read()
    # A killed leader cannot remove its temporary folder.
    shutil.rmtree(Path(os.environ[STORE_VARIABLE]).parent, ignore_errors=True)
    # sys.exit would end only this thread.
    os._exit(0)
