"""Threads, and memory that a thread freed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from core import Request, SamplingParams
from core.errors import ConfigError
from core.models.machine import TorchAlone, shorten_switch_interval, use_threads
from tests.core.engines import engine_of, tables


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before, interval = torch.get_num_threads(), sys.getswitchinterval()
    yield
    torch.set_num_threads(before)
    sys.setswitchinterval(interval)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7), (None, 1)])
def test_one_core_is_left_free(
    cores: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert use_threads() == threads == torch.get_num_threads()


def test_a_given_number_of_threads_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert use_threads(4) == torch.get_num_threads() == 4
    for wrong in (0, 5, -1, 1.5):
        with pytest.raises(
            ConfigError, match=rf"^threads is {wrong}: it must be a whole number from 1 to 4$"
        ):
            use_threads(wrong)  # type: ignore[arg-type]


def test_the_switch_interval_is_shortened() -> None:
    sys.setswitchinterval(0.005)
    shorten_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(0.001)


class PassThreads:
    def __init__(self, own_threads: bool) -> None:
        self.own_threads = own_threads


def test_torch_has_one_thread_only_if_all_passes_have_their_own() -> None:
    torch.set_num_threads(2)
    for models, meanwhile in (([True, True], 1), ([True, False], 2), ([False], 2)):
        torch_alone = TorchAlone([PassThreads(own) for own in models])
        for _ in range(2):
            torch_alone.take()
        assert torch.get_num_threads() == meanwhile
        for _ in range(2):
            torch_alone.release()
        assert torch.get_num_threads() == 2


def test_an_engine_restores_torchs_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    engine = engine_of(*tables())
    taken = TorchAlone([PassThreads(True)])
    monkeypatch.setattr(engine, "_torch_alone", taken)
    thread_counts = []
    running = engine.generate(Request("w1", SamplingParams(4)))
    for _ in range(4):
        next(running)
        thread_counts.append(torch.get_num_threads())
    running.close()
    assert 1 in thread_counts
    assert torch.get_num_threads() == 2


def test_two_engines_restore_torchs_threads() -> None:
    torch.set_num_threads(3)
    first, second = (TorchAlone([PassThreads(True)]) for _ in range(2))
    first.take()
    second.take()
    first.release()
    second.release()
    assert torch.get_num_threads() == 3


FREED = """
import re, sys, threading
from pathlib import Path
from core.models.machine import one_arena, release_memory

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def fill():
    blocks = [bytearray(60_000) for _ in range(500)]
    peaks.append(resident())
    blocks.clear()

if sys.argv[1] == "one":
    one_arena()
bytearray(31_000_000)  # from now on glibc trims less eagerly
peaks, before = [], resident()
thread = threading.Thread(target=fill)
thread.start()
thread.join()
release_memory()
print(peaks[0] - before, resident() - before)
"""


def free_memory(arenas: str) -> tuple[int, int]:
    process = subprocess.run(
        [sys.executable, "-c", FREED, arenas], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    peak_kb, left_kb = map(int, process.stdout.split())
    return peak_kb, left_kb


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas")
def test_memory_that_a_thread_freed_is_returned() -> None:
    peak_kb, left_kb = free_memory("one")
    assert peak_kb > 25_000 and left_kb < 5_000
    peak_kb, left_kb = free_memory("many")
    assert peak_kb > 25_000 and left_kb > 20_000, (
        "the control: without one_arena the memory is kept"
    )
