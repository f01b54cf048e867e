"""Drafting in a process: the same text, and a process that dies costs nothing but time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig, Worker
from core.drafters.homes import Homes
from core.errors import ConfigError
from core.events import Event, RoundCompleted, RunCompleted
from core.length.base import Choice
from core.length.fixed import Fixed
from core.models.loading import LoadedModels
from core.pipeline import Job
from tests.core.engines import engine_of, ids_of_events, tables
from tests.fakes import loaded, perturbed, tiny_module
from tests.lanes import Looks, PunctualLane

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the process needs Linux"),
]
PROMPTS = ("w3 w9 w27 w17", "w5 w25", "w8")
SOON = 60.0
TREE: dict[str, Any] = {"expansion": (2, 1), "speculation_length": 3, "max_tree_nodes": 24}


@cache
def models() -> LoadedModels:
    llm = tiny_module("llama", seed=1, dtype=torch.float32)
    return loaded(llm, [perturbed(llm, 0.05, seed=3), tiny_module("llama", 2, torch.float32)])


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = Engine(models(), place="process")
    assert made.ready_beside(SOON)
    yield made
    made.close()


def requests(temperature: float = 0.0, tokens: int = 24, **fields: Any) -> list[Request]:
    sampling = SamplingParams(tokens, temperature, seed=4)
    return [Request(p, sampling, SpeculationConfig(**{**TREE, **fields})) for p in PROMPTS]


def texts(events: Sequence[Event]) -> list[list[int]]:
    runs: dict[str, list[Event]] = {}
    for event in events:
        runs.setdefault(event.run_id, []).append(event)
    return [ids_of_events(run) for run in runs.values()]


@cache
def plain(temperature: float, tokens: int = 24) -> list[list[int]]:
    engine = Engine(models(), place="thread")
    return texts(list(engine.generate_many(requests(temperature, tokens, drafters=()))))


def child_of(engine: Engine) -> subprocess.Popen[bytes]:
    process = engine._drafting.homes._process
    assert process is not None and process.child is not None
    return process.child


def asked_beside(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes what the process is asked for."""
    process = engine._drafting.homes._process
    assert process is not None
    asked: list[str] = []
    send = process.send

    def noting(message: Any) -> None:
        asked.append(message[0])
        send(message)

    monkeypatch.setattr(process, "send", noting)
    return asked


@pytest.mark.parametrize("pipeline", ["across", "ahead", "auto"])
@pytest.mark.parametrize("combine", ["union", "vote", "log_pool"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_the_same(
    engine: Engine, temperature: float, combine: str, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_beside(engine, monkeypatch)
    wanted = requests(temperature, combine=combine, pipeline=pipeline)
    assert texts(list(engine.generate_many(wanted))) == plain(temperature)
    wanted_of = {
        "across": {"open", "commit"},
        "ahead": {"draft", "foresee", "commit"},
        "auto": set(),
    }
    # A pool of SSMs does not draft ahead; then nothing is gained by being apart.
    assert wanted_of[pipeline] <= set(asked) or (pipeline, combine) == ("ahead", "log_pool")
    for request, ids in zip(wanted, plain(temperature), strict=True):
        assert ids_of_events(engine.generate(request)) == ids


def test_runs_that_are_not_pipelined_stay_here(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_beside(engine, monkeypatch)
    assert texts(list(engine.generate_many(requests()))) == plain(0.0)
    (first, *_) = requests(pipeline="across")
    assert ids_of_events(engine.generate(first)) == plain(0.0)[0]  # nobody else to draft for
    assert not asked


def test_mixed_neighbours_share_an_engine(engine: Engine) -> None:
    ahead, plainly, across = (
        requests(pipeline="ahead")[0],
        requests()[1],
        requests(pipeline="across")[2],
    )
    assert texts(list(engine.generate_many([ahead, plainly, across]))) == plain(0.0)


def test_where_no_ssm_drafts_none_drafts_ahead(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where `goodput` found that they do not pay: the process has never heard of the run."""
    child, asked = child_of(engine), asked_beside(engine, monkeypatch)
    monkeypatch.setattr(Fixed, "choose", lambda _: Choice(3, "", frozenset({"ngram"})))
    wanted = requests(pipeline="ahead", drafters=("all", "ngram"))
    events = list(engine.generate_many(wanted))
    assert texts(events) == plain(0.0)
    assert child.poll() is None and "foresee" not in asked
    assert any(e.num_accepted for e in events if isinstance(e, RoundCompleted))


@pytest.mark.parametrize("weights", ["paper", "full_information"])
def test_what_is_learnt_moves_along(engine: Engine, weights: str) -> None:
    """Calibration and weights are those of a run that stayed in one place."""
    here = Engine(models(), place="thread")
    lane = engine._lane
    for one in (engine, here):
        one._lane = PunctualLane(0)
    fields: dict[str, Any] = {"combine": "vote_tree", "weights": weights, "pipeline": "ahead"}
    found = []
    for one in (engine, here):
        events = list(one.generate(requests(**fields)[0]))
        rounds = [e for e in events if isinstance(e, RoundCompleted)]
        found.append([(e.weights, e.temperatures) for e in rounds])
    engine._lane = lane
    assert len(found[0]) == len(found[1])
    for (weights_a, temperatures_a), (weights_b, temperatures_b) in zip(*found, strict=True):
        assert weights_a == pytest.approx(weights_b, rel=1e-4)
        assert temperatures_a == pytest.approx(temperatures_b, rel=1e-4)


class Killing(PunctualLane):
    """Kills the child in one of its turns: before the jobs, within them or after them."""

    def __init__(self, child: subprocess.Popen[bytes], turn: int, when: str) -> None:
        super().__init__()
        self._child, self._turn, self._when = child, turn, when
        self._turns = 0

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(SOON)

    @contextmanager
    def beside(self, jobs: Sequence[Job]) -> Iterator[None]:
        self._turns += 1
        now = self._turns == self._turn
        if now and self._when == "before":
            self.kill()
        done = Deadly(self.kill) if now and self._when == "within" else Looks(99)
        for job in jobs:
            job(done)
        if now and self._when == "after":
            self.kill()
        yield


class Deadly(Looks):
    """Whoever waits for it is bereaved."""

    def __init__(self, kill: Callable[[], None]) -> None:
        super().__init__(99)
        self._kill = kill

    def wait(self) -> bool:
        self._kill()
        return True


@pytest.mark.parametrize(
    ("combine", "pipeline", "when", "deaths"),
    [
        ("vote", "ahead", "within", 1),
        ("log_pool", "across", "after", 2),
    ],
)
def test_a_killed_process_costs_no_text_and_no_drafter(
    engine: Engine, combine: str, pipeline: str, when: str, deaths: int
) -> None:
    """The next pipelined run gets another process; after three deaths the thread does the work."""
    assert engine.ready_beside(SOON)
    engine._drafting.homes._deaths = deaths
    lane, engine._lane = engine._lane, Killing(child_of(engine), 3, when)
    events = list(engine.generate_many(requests(combine=combine, pipeline=pipeline)))
    engine._lane = lane
    assert texts(events) == plain(0.0)
    notes = [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]
    assert notes and set(notes) == {
        "drafting goes on in a thread: the process for it is gone (it ended with status -9)"
    }
    assert sum(isinstance(event, RunCompleted) for event in events) == 3
    accepted = [e.num_accepted for e in events if isinstance(e, RoundCompleted) and e.round > 4]
    assert sum(accepted) > 0
    assert engine.ready_beside(SOON) == (deaths < 2)
    assert texts(list(engine.generate_many(requests(pipeline="ahead")))) == plain(0.0)


def drafting_children() -> set[str]:
    """Process ids of this process's drafting processes, ended ones that nobody waited for too."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = status.read_text().rpartition(")")
            command = (status.parent / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid() and ("core.drafters.child" in command or state == "Z"):
            found.add(status.parent.name)
    return found


def test_closing_a_worker_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    children = drafting_children()
    engine = Engine(models(), place="process")
    assert engine.ready_beside(SOON)
    assert len(drafting_children() - children) == 1
    worker = Worker(engine)
    runs = [worker.submit(request) for request in requests(pipeline="across", tokens=60)]
    runs[1].cancel()
    for run in runs:
        list(run.events())
    worker.close()
    assert drafting_children() <= children
    assert not [t for t in threading.enumerate() if t not in before and "draft" in t.name]


def test_tables_draft_in_a_thread() -> None:
    engine = engine_of(*tables())
    assert not engine.ready_beside(1.0)


def test_a_place_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="place is 'cloud'"):
        Homes({}, models().llm, "cloud")
