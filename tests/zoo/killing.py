"""Commands of the zoo in a process that is killed by SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SELF_KILLING_CODE = """
import os, runpy, signal, sys
from pathlib import Path

pattern, replace = sys.argv.pop(1), Path.replace

def replaced(path, target):
    if Path(target).match(pattern):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)

Path.replace = replaced
runpy.run_module("zoo", run_name="__main__", alter_sys=True)
"""
"""A program that runs a zoo command, and kills itself before it renames a file or folder to a path
that matches its first argument."""


def kill_before(name: str, *arguments: object) -> None:
    """Runs a command and kills it before it renames a written file or folder to a path that matches
    the pattern `name`."""
    process = _start_process("-c", SELF_KILLING_CODE, name, *arguments)
    _, error_output = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, error_output.decode()


def kill_when(ready: Callable[[], bool], *arguments: object) -> None:
    """Runs a command and kills it once `ready()` is true. Fails if the command ends before that."""
    process = _start_process("-m", "zoo", *arguments)
    deadline = time.monotonic() + 120
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    _, error_output = process.communicate()
    assert process.returncode == -signal.SIGKILL, error_output.decode()
    assert ready(), error_output.decode()


def _start_process(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
