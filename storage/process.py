"""Identifies the process that records a run or measures a study, and finds out whether it still
runs.

Process ids are reused: the start time is compared too. On Linux, start times count from boot, and
the boot id is compared as well.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HEARTBEAT_TIMEOUT_S", "Process", "start_mark"]

UNKNOWN = ""
PROC = Path("/proc")
HEARTBEAT_TIMEOUT_S = 300.0
"""Seconds without a heartbeat after which a process of another host counts as ended. Must be longer
than the difference between two hosts' clocks."""
START_FIELD = 19  # field 22 of /proc/<pid>/stat (proc(5)), counted from the state, field 3
ENDED_STATES = ("Z", "X")  # zombie and dead: the process has ended


@dataclass(frozen=True, slots=True)
class Process:
    """A process: host name, process id, and the `start_mark`."""

    host: str
    pid: int
    start: str

    @classmethod
    def current(cls) -> Process:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), start_mark(os.getpid()) or UNKNOWN)

    def is_gone(self, last_heartbeat: float | None = None) -> bool:
        """Whether the process has ended. A process of another host counts as ended
        HEARTBEAT_TIMEOUT_S after `last_heartbeat`, in seconds since 1970."""
        if self.host != socket.gethostname():
            return last_heartbeat is not None and time.time() - last_heartbeat > HEARTBEAT_TIMEOUT_S
        # If a start time cannot be read, the id alone decides.
        mark = start_mark(self.pid)
        return mark is None or (UNKNOWN not in (mark, self.start) and mark != self.start)


def start_mark(pid: int) -> str | None:
    """A text that differs between processes that had the same id; None if no such process runs.

    UNKNOWN if the process exists but its start time cannot be read.
    """
    if sys.platform == "win32":
        return _windows_mark(pid)
    if (PROC / "self" / "stat").exists():
        return _linux_mark(pid)
    return _posix_mark(pid)


def _linux_mark(pid: int) -> str | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except ProcessLookupError:  # the process ended between opening and reading
        return None
    except OSError:  # absent, or hidden as another user's process (hidepid)
        return UNKNOWN if _exists(pid) else None
    # The program's name is in brackets and may itself have brackets and blanks.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ENDED_STATES else f"{_boot_id()} {fields[START_FIELD]}"


def _boot_id() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # some sandboxes have no boot id
        return ""


def _exists(pid: int) -> bool:
    try:
        # Signal 0 checks that the process exists.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _posix_mark(pid: int) -> str | None:
    """The start time that `ps` prints, on macOS and other POSIX systems without /proc."""
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    # The mark must not depend on the language and time zone of this process.
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    state, _, start_time = answer.stdout.strip().partition(" ")
    return None if not state or state[0] in ENDED_STATES else start_time.strip()


if sys.platform == "win32":

    def _windows_mark(pid: int) -> str | None:
        import ctypes
        from ctypes import wintypes

        query_limited_information = 0x1000
        access_denied = 5
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenProcess.restype = wintypes.HANDLE
        kernel.GetProcessTimes.argtypes = [wintypes.HANDLE, *[ctypes.c_void_p] * 4]
        kernel.CloseHandle.argtypes = [wintypes.HANDLE]
        handle = kernel.OpenProcess(query_limited_information, False, pid)
        if not handle:
            return UNKNOWN if ctypes.get_last_error() == access_denied else None
        try:
            created, ended, in_kernel, in_user = (ctypes.c_uint64() for _ in range(4))
            times = [ctypes.byref(t) for t in (created, ended, in_kernel, in_user)]
            kernel.GetProcessTimes(handle, *times)
            # A handle in another process keeps the kernel object after the process has ended.
            return None if ended.value else str(created.value)
        finally:
            kernel.CloseHandle(handle)
