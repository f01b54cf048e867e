"""Forks ranks from a process that has imported a rank's modules, which saves CPU time."""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import SimpleNamespace
from typing import Any

import pytest

from core.models.ranks import processes

__all__ = ["forked_ranks"]

MODULE = "core.models.ranks"


class ForkedRank:
    """The part of `subprocess.Popen` that `processes` uses. Closing `stdin` ends the rank."""

    def __init__(self, process: ForkServerProcess, stdin: Connection) -> None:
        assert process.pid is not None
        self._process, self.pid, self.stdin = process, process.pid, stdin

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(MODULE, timeout or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def forked_ranks() -> Iterator[None]:
    """Forks the ranks that start within the `with` block."""
    calls = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "subprocess", SimpleNamespace(Popen=_fork, **calls))
        yield


def _fork(command: list[str], *, env: Mapping[str, str], **options: Any) -> ForkedRank:
    assert command == [sys.executable, "-m", MODULE]
    assert options == {
        "stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "start_new_session": True
    }  # fmt: skip
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.core.models.rank_imports"])
    stdin, ours = context.Pipe(duplex=False)
    process = context.Process(target=_run_rank, args=(dict(env), stdin), daemon=True)
    process.start()
    stdin.close()
    return ForkedRank(process, ours)


def _run_rank(env: Mapping[str, str], stdin: Connection) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.dup2(stdin.fileno(), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdin = os.fdopen(0)  # multiprocessing has replaced sys.stdin
    runpy.run_module(MODULE, run_name="__main__")
