"""RankedModel: an LLM over ranks as the engine sees it. This process is rank 0, and tells the
followers of each call before it makes it on its own part."""

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
from core.models.loading.stages import Say
from core.models.protocol import Feed
from core.models.ranks.group import GROUP_TIMEOUT_S, PassTraffic, RankGroup, torch_distributed
from core.models.ranks.messages import (
    CloseRow,
    CommitRow,
    LoadShard,
    MeetRanks,
    OpenRow,
    PassDone,
    PassFeed,
    RankArrived,
    RankJoined,
    RunPass,
    ShardReady,
)
from core.models.ranks.processes import Followers
from core.models.ranks.sharding import (
    check_split,
    checked_shard,
    info_of,
    read_shard,
)

__all__ = ["RankedModel", "load_ranked"]

# How long a pass's figures of the followers are waited for: they are sent when it ends.
FIGURES_S = 0.1


@dataclass(frozen=True, slots=True)
class _Started:
    """The ranks of a model: this one's part, and how to reach the others."""

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
    """See LanguageModel. After an error of a rank every call raises RankError until all rows are
    closed; the next row starts the ranks again, which takes as long as loading."""

    def __init__(self, start: Callable[[], _Started]) -> None:
        """`start`: starts the ranks and reads the model. Raises what it raises."""
        self._start = start
        self._take(start())

    def _take(self, started: _Started) -> None:
        own = started.own
        super().__init__(started.module, own.info, own.masks, None, own._forward)
        self._started = started
        self._error: RankError | None = None
        self._passes, self._last = 0, PassTraffic()
        self._end = weakref.finalize(
            self, _end_ranks, started.followers, started.group, at_once=False
        )

    @property
    def ranks(self) -> RanksInfo:
        return self._started.info

    @property
    def pids(self) -> Sequence[int]:
        """Process ids of the followers on this machine, rank 1 first."""
        return self._started.followers.pids()

    @property
    def own_threads(self) -> bool:
        return bool(getattr(getattr(self._forward, "inner", None), "workers", 0))

    def close(self) -> None:
        """Ends the ranks. Idempotent; so does the end of this object."""
        self._end()

    def last_traffic(self) -> tuple[RankTraffic, ...]:
        """Of the last pass, of each rank; without those whose figures did not come."""
        found: dict[int, PassTraffic] = {0: self._last}
        if self._error is None and self._passes:
            for rank, done in self._done().items():
                found[rank] = PassTraffic(done.collectives, done.bytes, done.seconds)
        return tuple(
            RankTraffic(rank, one.collectives, one.bytes, 1000 * one.seconds)
            for rank, one in sorted(found.items())
        )

    def _done(self) -> dict[int, PassDone]:
        """The followers' figures of the last pass, as far as they have come."""
        found: dict[int, PassDone] = {}
        until = time.monotonic() + FIGURES_S
        # A rank that has ended is an error of the next call: this pass's tokens are good.
        with suppress(RankError):
            while len(found) + 1 < self.ranks.count and (left := until - time.monotonic()) > 0:
                every = self._started.followers.collect(PassDone, left)
                found |= {rank: done for rank, done in every.items() if done.number == self._passes}
        return found

    # -- LanguageModel --

    def open_row(self) -> int:
        if self._error is not None:
            if any(row is not None for row in self._rows):
                raise self._error
            if not self._started.followers.local:
                raise RankError(f"{self._error}: end all ranks and start them anew")
            self._take(self._start())
        with self._on_all_ranks():
            self._tell(OpenRow())
            return super().open_row()

    def close_row(self, row: int) -> None:
        with self._on_all_ranks():
            super().close_row(row)
            if self._error is None:
                self._tell(CloseRow(row))

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        # What is refused is refused before the others know of it.
        self.check(feeds)
        plain = [PassFeed(f.row, list(f.token_ids), list(f.parents), f.last_only) for f in feeds]
        with self._on_all_ranks():
            self._passes += 1
            self._tell(RunPass(self._passes, plain))
            logits = super().forward(feeds)
        self._last = self._started.group.take_traffic()
        # Else a follower's figures would fill its connection, and it would wait.
        self._started.followers.receive()
        return logits

    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        with self._on_all_ranks():
            super().commit(row, nodes, keep)
            # To forget what a failed pass has left is no use of the ranks.
            if self._error is None or nodes or keep:
                self._tell(CommitRow(row, list(nodes), list(keep)))

    @contextmanager
    def _on_all_ranks(self) -> Iterator[None]:
        """A call that rank 0 and the followers make. An error or an interrupt within it ends the
        followers: they may have made another number of calls, and later texts would be wrong."""
        try:
            yield
        except MODEL_FAULTS as error:
            if error is self._error:
                raise
            raise self._broken(error) from error
        except (KeyboardInterrupt, SystemExit):
            self._broken(RankError("a call of all ranks was interrupted: they are started again"))
            raise

    def _tell(self, message: Any) -> None:
        if self._error is not None:
            raise self._error
        try:
            self._started.followers.tell(message)
        except RankError as error:
            raise self._broken(error) from error

    def _broken(self, error: BaseException) -> RankError:
        followers = self._started.followers
        found = error if isinstance(error, RankError) else followers.error_of(error)
        self._error = found
        self._end.detach()
        _end_ranks(followers, self._started.group, at_once=True)
        return found


def load_ranked(
    source: ModelSource,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    split: RankSplit,
    say: Say,
    timeout_s: float = GROUP_TIMEOUT_S,
) -> RankedModel:
    """The LLM over ranks. What can be refused is refused before processes are started.

    Raises ConfigError, RankError, ModelLoadError, UnsupportedModelError, and what `say` raises."""
    check_split(config, source.title, split)
    whole = module_without_weights(config)
    threads = max(1, (os.cpu_count() or 1) // split.count)
    load = LoadShard(
        *(source.name, source.local, source.file, split.split, split.count),
        *(str(dtype).removeprefix("torch."), device.type, threads, timeout_s),
    )

    def start() -> _Started:
        if torch_distributed().is_initialized():
            raise ConfigError.of(
                "llm_ranks",
                str(split),
                "one LLM over ranks in a process, and one is there: to load another start anew",
            )
        say(f"starting ranks 1 to {split.count - 1}")
        followers, group = Followers(split), None

        def meet() -> None:
            say("meeting the other ranks")
            followers.await_all(RankArrived)
            followers.tell(MeetRanks())
            say("tree check over all ranks")

        try:
            followers.await_all(RankJoined)
            followers.tell(load)
            if followers.local:
                torch.set_num_threads(min(torch.get_num_threads(), threads))
            group = RankGroup(followers.place, device, timeout_s)
            say(f"weights of rank 0 of {split.count}")
            module = read_shard(source, copy.deepcopy(config), dtype, split)
            fingerprint = fingerprint_of_files(source, module, whole, dtype)
            info = info_of(whole, source, dtype, device, fingerprint)
            own = checked_shard(module, info, split, group, meet)
            ready = followers.await_all(ShardReady)
        except (*MODEL_FAULTS, KeyboardInterrupt) as error:
            words = None if isinstance(error, SpecScopeError) else followers.error_of(error)
            _end_ranks(followers, group, at_once=True)
            if words is None or isinstance(error, KeyboardInterrupt):
                raise
            raise words from error
        # The passes of the check are none of the engine's.
        group.take_traffic()
        sizes = (own.weight_bytes, *(ready[rank].weight_bytes for rank in sorted(ready)))
        return _Started(own, module, group, followers, RanksInfo(split.split, sizes))

    return RankedModel(start)
