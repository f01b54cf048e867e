"""Runs the whole application in its own process, as `python app.py` does, with its own log."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import SpecScopeError

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 120.0  # for the page to be served
# Runs the given file. If the parent process ends, even by a kill, the pipe to stdin closes: then
# this process removes the folder and exits.
WRAPPER = """
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
    """`opened_s`: seconds from the start until the page was served."""

    url: str
    pid: int
    opened_s: float


@contextmanager
def application() -> Iterator[Application]:
    """The application with the bundled models, serving its page; it is stopped at the end.

    Raises BenchError if it does not start.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="specscope-start-") as folder:
        log = Path(folder) / "output.txt"
        arguments = ["app.py", "--port", str(port), "--db", f"{folder}/runs.db"]
        command = [sys.executable, "-c", WRAPPER, folder, *arguments]
        # Offline: requests to the hub would be measured as a part of the start.
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
            child.communicate()  # closes the pipe, and waits


def free_port(host: str = "127.0.0.1") -> int:
    """A free port. Gradio's own search leaks a socket for each port that is taken."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _wait_until_served(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    end = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < end and child.poll() is None:
        with suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(url, timeout=TIMEOUT_S).read()
            return
        time.sleep(POLL_S)
    output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    reason = output[-1] if output else "it printed nothing"
    raise BenchError(f"the application did not open its page: {reason}")


def resident_mb(pid: int) -> float | None:
    """Resident memory of a process in MB (10^6 bytes); None if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return None
