"""Memory that a thread freed goes back to the system, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

FREED = """
import re, sys, threading
from pathlib import Path
from core.models.machine import give_back, one_arena

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def fill():
    blocks = [bytearray(60_000) for _ in range(500)]
    peaks.append(resident())
    blocks.clear()

if sys.argv[1] == "one":
    one_arena()
bytearray(31_000_000)  # glibc trims by itself less eagerly from now on
peaks, before = [], resident()
thread = threading.Thread(target=fill)
thread.start()
thread.join()
give_back()
print(peaks[0] - before, resident() - before)
"""


def freed(arenas: str) -> tuple[int, int]:
    """How much more memory there was while a thread held 30 MB, and after; kB."""
    done = subprocess.run(
        [sys.executable, "-c", FREED, arenas], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    held, left = map(int, done.stdout.split())
    return held, left


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas")
def test_what_a_thread_freed_is_given_back() -> None:
    held, left = freed("one")
    assert held > 25_000 and left < 5_000
    held, left = freed("many")
    assert held > 25_000 and left > 20_000, "the control: there is nothing to be mended"
