"""Threads of a CPU pass: one core is left free, unless a number is given. Memory
that a thread freed goes back to the system."""

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
    before, turn = torch.get_num_threads(), sys.getswitchinterval()
    yield
    torch.set_num_threads(before)
    sys.setswitchinterval(turn)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7), (None, 1)])
def test_one_core_is_left(cores: int | None, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert use_threads() == threads == torch.get_num_threads()


def test_a_number_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert use_threads(4) == torch.get_num_threads() == 4
    for wrong in (0, 5, -1, 1.5):
        with pytest.raises(
            ConfigError, match=rf"^threads is {wrong}: it must be a whole number from 1 to 4$"
        ):
            use_threads(wrong)  # type: ignore[arg-type]


def test_a_turn_at_pythons_lock_is_short() -> None:
    sys.setswitchinterval(0.005)
    shorten_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(0.001)


class Passes:
    """A model that says whether its pass has threads of its own."""

    def __init__(self, own_threads: bool) -> None:
        self.own_threads = own_threads


def test_torch_is_kept_to_one_thread_only_beside_passes_with_their_own() -> None:
    torch.set_num_threads(2)
    for models, meanwhile in (([True, True], 1), ([True, False], 2), ([False], 2)):
        alone = TorchAlone([Passes(own) for own in models])
        for _ in range(2):
            alone.take()
        assert torch.get_num_threads() == meanwhile
        for _ in range(2):
            alone.release()
        assert torch.get_num_threads() == 2


def test_an_engine_gives_torch_its_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    engine = engine_of(*tables())
    taken = TorchAlone([Passes(True)])
    monkeypatch.setattr(engine, "_torch_alone", taken)
    seen = []
    running = engine.generate(Request("w1", SamplingParams(4)))
    for _ in range(4):
        next(running)
        seen.append(torch.get_num_threads())
    running.close()
    assert 1 in seen
    assert torch.get_num_threads() == 2


def test_two_that_keep_torch_alone_leave_it_as_it_was() -> None:
    torch.set_num_threads(3)
    first, second = (TorchAlone([Passes(True)]) for _ in range(2))
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
bytearray(31_000_000)  # glibc trims by itself less eagerly from now on
peaks, before = [], resident()
thread = threading.Thread(target=fill)
thread.start()
thread.join()
release_memory()
print(peaks[0] - before, resident() - before)
"""


def free_memory(arenas: str) -> tuple[int, int]:
    """Additional resident memory while a thread held 30 MB, and afterwards; kB."""
    process = subprocess.run(
        [sys.executable, "-c", FREED, arenas], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    held, left = map(int, process.stdout.split())
    return held, left


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas")
def test_what_a_thread_freed_is_given_back() -> None:
    held, left = free_memory("one")
    assert held > 25_000 and left < 5_000
    held, left = free_memory("many")
    assert held > 25_000 and left > 20_000, "the control: without one_arena the memory is kept"
