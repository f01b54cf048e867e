"""Whether a process that no parent waits for has ended."""

import os
import signal
import time
from pathlib import Path


def has_ended(pid: int, within_s: float = 10.0) -> bool:
    """Waits up to `within_s` seconds until the process has ended (on Linux), else kills it; returns
    whether it ended by itself."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not _lives(pid):
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


def _lives(pid: int) -> bool:
    """A zombie has ended too: its parent did not wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
