"""RankedModel: an LLM over ranks as a LanguageModel. This process is rank 0, which sends each call
to the followers and runs the call on its own shard."""

from __future__ import annotations

import copy
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from core.config.ranks import RankSplit
from core.errors import MODEL_FAULTS, ConfigError, RankError, SpecScopeError
from core.events.parts import RanksInfo, RankTraffic
from core.models.hf_model import HfModel
from core.models.loading.catalog import ModelSource
from core.models.loading.checkpoint import fingerprint_of_files, module_without_weights
from core.models.loading.progress import Say
from core.models.loading.reading import info_of
from core.models.protocol import Feed
from core.models.ranks.group import GROUP_TIMEOUT_S, PassTraffic, RankGroup, torch_distributed
from core.models.ranks.messages import (
    BarrierPassed,
    BarrierReached,
    CloseRow,
    CommitRow,
    LoadShard,
    OpenRow,
    PassDone,
    PassFeed,
    RankJoined,
    RunPass,
    ShardReady,
)
from core.models.ranks.processes import Followers
from core.models.ranks.sharding import check_split, checked_shard, read_shard

__all__ = ["RankedModel", "load_ranked"]

# The most seconds to wait for the followers' reports of a pass.
TRAFFIC_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class _RunningRanks:
    """`own`, `module`: rank 0's shard."""

    own: HfModel
    module: Any
    group: RankGroup
    followers: Followers
    info: RanksInfo


def _end_ranks(followers: Followers, group: RankGroup | None, *, at_once: bool) -> None:
    (followers.kill if at_once else followers.end)()
    if group is not None:
        group.end()


class RankedModel(HfModel):
    """See LanguageModel. After a failure every call that needs the ranks raises RankError until all
    rows are closed. Opening the next row then restarts local ranks."""

    def __init__(self, start: Callable[[], _RunningRanks]) -> None:
        """`start`: starts the ranks and reads the model; its errors are raised here."""
        self._start = start
        self._take(start())

    def _take(self, ranks: _RunningRanks) -> None:
        # Also after a restart, with a new shard and new ranks.
        own = ranks.own
        super().__init__(ranks.module, own.info, own.masks, None, own._forward)
        self._running = ranks
        self._error: RankError | None = None
        self._passes, self._last = 0, PassTraffic()
        # At garbage collection or exit: no rank may outlive this model.
        self._end = weakref.finalize(self, _end_ranks, ranks.followers, ranks.group, at_once=False)

    @property
    def ranks(self) -> RanksInfo:
        return self._running.info

    @property
    def own_threads(self) -> bool:
        return bool(getattr(getattr(self._forward, "inner", None), "workers", 0))

    def close(self) -> None:
        """Ends the ranks. Idempotent."""
        self._end()

    def last_traffic(self) -> tuple[RankTraffic, ...]:
        """Traffic of the last pass by rank; a rank that has not reported is left out."""
        by_rank: dict[int, PassTraffic | PassDone] = {0: self._last}
        if self._error is None and self._passes:
            by_rank |= self._reports()
        return tuple(
            RankTraffic(rank, one.collectives, one.bytes, 1000 * one.seconds)
            for rank, one in sorted(by_rank.items())
        )

    def _reports(self) -> dict[int, PassDone]:
        of_pass: dict[int, PassDone] = {}
        until = time.monotonic() + TRAFFIC_WAIT_S
        # Suppressed: this pass's logits are valid, and the next call raises if a rank has ended.
        with suppress(RankError):
            while len(of_pass) + 1 < self.ranks.count and (wait_s := until - time.monotonic()) > 0:
                reports = self._running.followers.collect(PassDone, wait_s)
                of_pass |= {r: one for r, one in reports.items() if one.number == self._passes}
        return of_pass

    # -- LanguageModel --

    def open_row(self) -> int:
        if self._error is not None:
            if any(row is not None for row in self._rows):
                raise self._error
            if not self._running.followers.local:
                raise RankError(f"{self._error}: end all ranks and start them anew")
            self._take(self._start())
        with self._on_all_ranks():
            self._send(OpenRow())
            return super().open_row()

    def close_row(self, row: int) -> None:
        with self._on_all_ranks():
            # On this rank first, since rows are also closed after the ranks have failed.
            super().close_row(row)
            if self._error is None:
                self._send(CloseRow(row))

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        # `check` raises before anything is sent to the followers.
        self.check(feeds)
        to_send = [PassFeed(f.row, list(f.token_ids), list(f.parents), f.last_only) for f in feeds]
        with self._on_all_ranks():
            self._passes += 1
            self._send(RunPass(self._passes, to_send))
            logits = super().forward(feeds)
        self._last = self._running.group.take_traffic()
        # Unread reports would fill a follower's connection, until the follower blocks while
        # sending.
        self._running.followers.receive()
        return logits

    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        with self._on_all_ranks():
            super().commit(row, nodes, keep)
            # After a failure, dropping the pending nodes needs no ranks.
            if self._error is None or nodes or keep:
                self._send(CommitRow(row, list(nodes), list(keep)))

    @contextmanager
    def _on_all_ranks(self) -> Iterator[None]:
        """Ends the followers after an error or interrupt: their KV caches may differ from rank
        0's, and later tokens would be wrong."""
        try:
            yield
        except MODEL_FAULTS as error:
            if error is self._error:
                raise
            raise self._fail(error) from error
        except (KeyboardInterrupt, SystemExit):
            self._fail(RankError("a call of all ranks was interrupted: they are started again"))
            raise

    def _send(self, message: Any) -> None:
        if self._error is not None:
            raise self._error
        try:
            self._running.followers.send_all(message)
        except RankError as error:
            raise self._fail(error) from error

    def _fail(self, error: BaseException) -> RankError:
        followers = self._running.followers
        rank_error = error if isinstance(error, RankError) else followers.error_of(error)
        self._error = rank_error
        # The ranks end now; the finalizer must not end them again.
        self._end.detach()
        _end_ranks(followers, self._running.group, at_once=True)
        return rank_error


@dataclass(frozen=True, slots=True)
class _RankStart:
    """Starts the ranks and reads the model. `meta`: the undivided module without weights.
    `timeout_s`: see RankGroup."""

    source: ModelSource
    config: Any
    meta: Any
    dtype: torch.dtype
    device: torch.device
    split: RankSplit
    say: Say
    timeout_s: float

    def __call__(self) -> _RunningRanks:
        split = self.split
        if torch_distributed().is_initialized():
            raise ConfigError.of(
                "llm_ranks",
                str(split),
                "one LLM over ranks in a process, and one is there: to load another start anew",
            )
        self.say(f"starting ranks 1 to {split.count - 1}")
        followers, group = Followers(split), None
        # Ranks of one machine divide its cores: threads that share a core spin against each other.
        threads = max(1, (os.cpu_count() or 1) // split.count)
        try:
            followers.wait_for_all(RankJoined)
            followers.send_all(self._load_shard(threads))
            if followers.local:
                torch.set_num_threads(min(torch.get_num_threads(), threads))
            group = RankGroup(followers.rendezvous, self.device, self.timeout_s)
            module, own = self._own_shard(followers, group)
            ready = followers.wait_for_all(ShardReady)
        except (*MODEL_FAULTS, KeyboardInterrupt) as error:
            rank_error = None if isinstance(error, SpecScopeError) else followers.error_of(error)
            _end_ranks(followers, group, at_once=True)
            if rank_error is None or isinstance(error, KeyboardInterrupt):
                raise
            raise rank_error from error
        group.take_traffic()  # discards the check's traffic
        sizes = (own.weight_bytes, *(ready[rank].weight_bytes for rank in sorted(ready)))
        return _RunningRanks(own, module, group, followers, RanksInfo(split.split, sizes))

    def _load_shard(self, threads: int) -> LoadShard:
        source, split = self.source, self.split
        return LoadShard(
            *(source.name, source.local, source.file, split.split, split.count),
            *(str(self.dtype).removeprefix("torch."), self.device.type, threads, self.timeout_s),
        )

    def _own_shard(self, followers: Followers, group: RankGroup) -> tuple[Any, HfModel]:
        def barrier() -> None:
            self.say("meeting the other ranks")
            followers.wait_for_all(BarrierReached)
            followers.send_all(BarrierPassed())
            self.say("tree check over all ranks")

        self.say(f"weights of rank 0 of {self.split.count}")
        # A copy: transformers writes the split into the configuration.
        module = read_shard(self.source, copy.deepcopy(self.config), self.dtype, self.split)
        fingerprint = fingerprint_of_files(self.source, module, self.meta, self.dtype)
        info = info_of(self.meta, self.source, "llm", self.dtype, self.device, fingerprint)
        return module, checked_shard(module, info, self.split, group, barrier)


def load_ranked(
    source: ModelSource,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    split: RankSplit,
    say: Say,
    timeout_s: float = GROUP_TIMEOUT_S,
) -> RankedModel:
    """Starts the ranks and loads the LLM.

    Raises ConfigError, RankError, ModelLoadError, UnsupportedModelError, and errors of `say`."""
    # The configuration is checked before any process is started.
    check_split(config, source.title, split)
    meta = module_without_weights(config)
    return RankedModel(_RankStart(source, config, meta, dtype, device, split, say, timeout_s))
