"""Waits for the end of a process for which no parent waits."""

import os
import signal
import time
from pathlib import Path


def has_ended(pid: int, within_s: float = 10.0) -> bool:
    """Waits up to `within_s` seconds for the process to end by itself, and returns whether it did.
    Kills a process that is then still running. Needs Linux's /proc."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not _lives(pid):
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


def _lives(pid: int) -> bool:
    """Whether the process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
