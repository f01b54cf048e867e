"""Threads of a CPU pass: one core is left to everybody else, unless a number is asked for."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch

from core import Request, SamplingParams
from core.errors import ConfigError
from core.models.machine import TorchAlone, take_turns, use_threads
from tests.core.engines import engine_of, tables


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
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
        with pytest.raises(ConfigError, match=rf"^threads is {wrong}: a whole number from 1 to 4$"):
            use_threads(wrong)  # type: ignore[arg-type]


def test_a_turn_at_pythons_lock_is_short() -> None:
    sys.setswitchinterval(0.005)
    take_turns()
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
            alone.give_back()
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
    first.give_back()
    second.give_back()
    assert torch.get_num_threads() == 3
