"""Commands of the zoo in a process that is killed by SIGKILL."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = ["tests.core.models.rank_imports", "zoo.__main__"]


def kill_before(name: str, *arguments: object) -> None:
    """Kills a command before it renames a file to a path that matches the pattern `name`."""
    with _running(name, *arguments) as process:
        process.join(120)


def kill_when(ready: Callable[[], bool], *arguments: object) -> None:
    with _running("", *arguments) as process:
        deadline = time.monotonic() + 120
        while not ready() and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        process.join()
    assert ready()


@contextmanager
def _running(pattern: str, *arguments: object) -> Iterator[ForkServerProcess]:
    """The `with` block must wait until SIGKILL ends the command."""
    # Forks from a process that has imported the zoo, since imports take CPU time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        words = [str(each) for each in arguments]
        process = context.Process(target=_run, args=(pattern, words, output), daemon=True)
        process.start()
        try:
            yield process
            assert process.exitcode == -signal.SIGKILL, output.read_text()
        finally:
            process.kill()
            process.join()


def _run(pattern: str, arguments: list[str], output: Path) -> None:
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    import torch

    from zoo.__main__ import main

    torch.set_num_threads(1)
    replace = Path.replace

    def kill_or_replace(path: Path, target: str | os.PathLike[str]) -> Path:
        if pattern and Path(target).match(pattern):
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)

    Path.replace = kill_or_replace  # type: ignore[method-assign]
    sys.exit(main(arguments))
