"""The followers' processes, and the leader's side of the messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import zmq

from core.config.nodes import ip_address
from core.config.ranks import RankSplit
from core.errors import RankError, one_line
from core.models.ranks.messages import (
    FORMAT,
    LONGEST,
    EndRank,
    ExchangeFailed,
    FromFollower,
    RankFailed,
    RankJoined,
    ToFollower,
    decode_reply,
    encode,
)
from core.models.ranks.rendezvous import (
    ENDS_WITH_INPUT,
    STORE_VARIABLE,
    Rendezvous,
    env_rendezvous,
    file_rendezvous,
)

__all__ = ["Followers"]

# Seconds that `end` waits for processes, and that `error_of` waits for the cause of an error.
END_S, CAUSE_WAIT_S = 3.0, 0.5
# Milliseconds between two checks that all processes are running.
POLL_MS = 200
LOADING_S = 600.0
"""Seconds allowed for one step of loading."""
Reply = TypeVar("Reply", bound=FromFollower)


class Followers:
    """Ranks 1 and up. Their processes are started here, unless the environment names ranks that
    were started elsewhere (`env_rendezvous`)."""

    def __init__(self, split: RankSplit) -> None:
        """Raises the errors of starting a process, opening a socket and `env_rendezvous`."""
        self.count, self._failed_send = split.count, zmq.ZMQError
        self._context: Any = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.maxmsgsize = LONGEST
        # A message to an unconnected rank is an error instead of being dropped.
        self._socket.router_mandatory = True
        self._folder: Path | None = None  # private to this user; None with ranks elsewhere
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        # By rank, the latest message of each kind. A PassDone may arrive at any time, and must not
        # replace a message of another kind.
        self._replies: dict[int, dict[type, FromFollower]] = {rank: {} for rank in self.ranks}
        self.local = True
        # If a process cannot be started, the processes started before it are ended.
        with ExitStack() as on_failure:
            on_failure.callback(self.end)
            self._open(split)
            on_failure.pop_all()

    def _open(self, split: RankSplit) -> None:
        rendezvous = env_rendezvous(split)
        self.local = rendezvous is None
        if rendezvous is None:
            self._folder = folder = Path(tempfile.mkdtemp(prefix="specscope-ranks-"))
            file = folder / "store"
            self._socket.bind(f"ipc://{folder / 'leader'}")
            self.rendezvous: Rendezvous = file_rendezvous(file, 0, split.count)
            for rank in self.ranks:
                self._processes[rank] = _start(rank, split.count, file)
        else:
            host = ip_address(os.environ["MASTER_ADDR"])
            self._socket.ipv6 = host.startswith("[")
            self._socket.bind_to_random_port(f"tcp://{host}")
            self.rendezvous = rendezvous
        address: Any = self._socket.last_endpoint
        self.rendezvous.publish(address.decode())

    @property
    def ranks(self) -> range:
        return range(1, self.count)

    def send_all(self, message: ToFollower) -> None:
        """Sends a message to each follower. Raises RankError if a follower has ended or failed."""
        self.check()
        data = encode(message)
        for rank in self.ranks:
            try:
                self._socket.send_multipart([str(rank).encode(), data])
            except self._failed_send as error:
                raise self.error_of(error) from error

    def wait_for_all(self, kind: type[Reply]) -> dict[int, Reply]:
        """The message of this kind from each follower. Raises RankError if a follower has ended,
        has failed, or takes longer than LOADING_S."""
        replies = self.collect(kind, LOADING_S)
        missing = [rank for rank in self.ranks if rank not in replies]
        if missing:
            raise RankError(
                f"rank {missing[0]} of the LLM did not load its part within {LOADING_S:g} s"
            )
        return replies

    def collect(self, kind: type[Reply], wait_s: float) -> dict[int, Reply]:
        """The latest unread message of this kind from each follower; waits up to `wait_s` seconds
        for missing messages. Raises RankError if a follower has ended or failed."""
        replies: dict[int, Reply] = {}
        until = time.monotonic() + wait_s
        while True:
            self.check()
            for rank in self.ranks:
                reply = self._replies[rank].pop(kind, None)
                if isinstance(reply, kind):
                    replies[rank] = reply
            if len(replies) == len(self.ranks):
                return replies
            wait_ms = min(POLL_MS, int(1000 * (until - time.monotonic())))
            if wait_ms <= 0:
                return replies
            self.receive(wait_ms)

    def check(self) -> None:
        """Raises RankError if a rank has failed or ended."""
        if self._is_closed():
            raise RankError("the ranks of the LLM have ended")
        reports = [reply.error for reply in self._exchange_failures().values()]
        if reports or self._failure():
            raise self.error_of(RuntimeError(*reports[:1]))

    def error_of(self, error: BaseException) -> RankError:
        """A RankError that names the rank that has failed or ended, else the ranks that have
        reported nothing."""
        until = time.monotonic() + CAUSE_WAIT_S
        while True:
            if not self._is_closed():
                self.receive(0)
            if failure := self._failure():
                return failure
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        silent = [rank for rank in self.ranks if rank not in self._exchange_failures()]
        some = ", ".join(map(str, silent or self.ranks))
        return RankError(
            f"a rank of the LLM among {some} did not answer in time ({one_line(error, 200)})"
        )

    def end(self) -> None:
        """Ends the processes; kills processes that do not end within END_S. Idempotent."""
        if self._is_closed():
            return
        for rank in self.ranks:
            with suppress(self._failed_send):  # the rank never connected, or has ended
                self._socket.send_multipart([str(rank).encode(), encode(EndRank())])
        until = time.monotonic() + END_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        # Milliseconds in which messages to ranks on other machines are still sent.
        self._context.destroy(0 if self.local else 1000)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """Ends the processes at once, after an error: a rank may hang in a collective."""
        for process in self._processes.values():
            process.kill()
        self.end()

    def _is_closed(self) -> bool:
        return bool(self._context.closed)

    def _failure(self) -> RankError | None:
        """The error of a rank that has failed or ended by itself."""
        for rank in self.ranks:
            # A rank's own report is more precise than its exit status.
            reply = self._replies[rank].get(RankFailed)
            if isinstance(reply, RankFailed):
                return RankError(f"rank {rank} of the LLM failed ({reply.error})")
        for rank, process in self._processes.items():
            # A rank that ends because of another rank's failure is not the cause.
            if rank not in self._exchange_failures() and (code := process.poll()) is not None:
                how = f"by signal {-code}" if code < 0 else f"with code {code}"
                return RankError(f"rank {rank} of the LLM (process {process.pid}) has ended {how}")
        return None

    def _exchange_failures(self) -> dict[int, ExchangeFailed]:
        failures = {rank: self._replies[rank].get(ExchangeFailed) for rank in self.ranks}
        return {
            rank: reply for rank, reply in failures.items() if isinstance(reply, ExchangeFailed)
        }

    def receive(self, wait_ms: int = 0) -> bool:
        """Reads all messages that have arrived; waits up to `wait_ms` for the first. Returns
        whether any message has arrived."""
        any_message = False
        while self._socket.poll(0 if any_message else wait_ms):
            any_message = True
            parts = self._socket.recv_multipart()
            # Compared as bytes: int() would take another connection, "01", for rank 1.
            ranks = [rank for rank in self.ranks if parts[0] == str(rank).encode()]
            try:
                (rank,), (_, data) = ranks, parts
                reply = decode_reply(data)
            except ValueError:
                continue  # not a follower's message
            if isinstance(reply, RankJoined) and reply.format != FORMAT:
                reply = RankFailed(f"its messages have format {reply.format}, here {FORMAT}")
            self._replies[rank][type(reply)] = reply
        return any_message


def _start(rank: int, count: int, store: Path) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        STORE_VARIABLE: str(store),
        ENDS_WITH_INPUT: "1",
        "PYTHONPATH": path,
    }
    # `stdin`: see ENDS_WITH_INPUT. A rank's prints must not mix with the leader's output.
    return subprocess.Popen(
        [sys.executable, "-m", "core.models.ranks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **variables},
        # A terminal's interrupt reaches the leader alone, which ends its followers.
        start_new_session=True,
    )
