"""Waits for the end of another process."""

import os
import signal
import time
from pathlib import Path


def has_ended(pid: int, within_s: float = 10.0) -> bool:
    """Waits for the process to end; kills it after `within_s` seconds."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not _lives(pid):
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


def _lives(pid: int) -> bool:
    """A zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
