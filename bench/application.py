"""Runs app.py in a subprocess, with its own run database and output file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import SpecScopeError

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 120.0  # from starting the process until the page is served
# Arguments of CHILD_CODE: `folder`, a Python file to run, and that file's arguments. If the parent
# was killed, the child's stdin ends: the child deletes `folder` and exits.
CHILD_CODE = """
import os, runpy, shutil, sys, threading
_, folder, *sys.argv = sys.argv
wait = lambda: (os.read(0, 1), shutil.rmtree(folder, ignore_errors=True), os._exit(1))
threading.Thread(target=wait, daemon=True).start()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
POLL_S = 0.02


class BenchError(SpecScopeError):
    """A measurement could not be made."""


@dataclass(frozen=True, slots=True)
class Application:
    """`startup_s`: seconds from the start of the process until it served the page."""

    url: str
    pid: int
    startup_s: float


@contextmanager
def application() -> Iterator[Application]:
    """The application with the bundled models, until the end of the block. Raises BenchError if no
    page is served."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="specscope-start-") as folder:
        log = Path(folder) / "output.txt"
        arguments = ["app.py", "--port", str(port), "--db", f"{folder}/runs.db"]
        command = [sys.executable, "-c", CHILD_CODE, folder, *arguments]
        # Offline: requests to the hub would lengthen the measured start.
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        start = time.perf_counter()
        with log.open("wb") as output:
            piped: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
            child = subprocess.Popen(command, cwd=ROOT, env=env, **piped)
        try:
            url = f"http://127.0.0.1:{port}/"
            _wait_until_served(url, child, log)
            yield Application(url, child.pid, time.perf_counter() - start)
        finally:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(20)
            child.kill()  # no effect on a process that has ended
            child.communicate()  # closes the pipe and waits for the end of the process


def free_port(host: str = "127.0.0.1") -> int:
    """A free port. Gradio's own search leaks a socket for each port that is taken."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _wait_until_served(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.perf_counter() + TIMEOUT_S
    while child.poll() is None and (remaining_s := deadline - time.perf_counter()) > 0:
        with suppress(OSError), urllib.request.urlopen(url, timeout=remaining_s) as response:
            response.read()
            return
        time.sleep(POLL_S)
    output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last_line = output[-1] if output else "it printed nothing"
    code = child.poll()
    failure = (
        f"served no page within {TIMEOUT_S:g} s" if code is None else f"exited with code {code}"
    )
    raise BenchError(f"the application {failure}: {last_line}")


def resident_mb(pid: int) -> float | None:
    """Resident memory in MB (10^6 bytes); None if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return None
