"""A drafting process that dies or falls silent at any moment costs no text, no run and no drafter;
nobody waits for ever, and the engine is free again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig, Worker
from core.drafters import homes
from core.events import (
    Combined,
    Drafted,
    Event,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    Verified,
)
from core.models.loading import LoadedModels
from core.worker import Run
from tests.core.engines import ids_of_events
from tests.core.threaded import ThreadedProcess
from tests.fakes import loaded, perturbed, tiny_module

PROMPTS = ("w3 w9 w27 w17", "w5 w25")
TOKENS = 12
SHAPE: dict[str, Any] = {"expansion": (2, 1), "speculation_length": 3, "max_tree_nodes": 24}
SOON = 20.0


@cache
def models() -> LoadedModels:
    llm = tiny_module("llama", seed=1, dtype=torch.float32)
    return loaded(llm, [perturbed(llm, 0.05, seed=3), tiny_module("llama", 2, torch.float32)])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(homes, "DraftingProcess", ThreadedProcess)
    made = Engine(models(), place="process")
    assert made.ready_beside(SOON)
    yield made
    made.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("drafting")]


def requests(pipeline: str, tokens: int = TOKENS, **fields: Any) -> list[Request]:
    config = SpeculationConfig(**{**SHAPE, **fields}, pipeline=pipeline)
    return [Request(prompt, SamplingParams(tokens, ignore_eos=True), config) for prompt in PROMPTS]


@cache
def plain(tokens: int = TOKENS) -> tuple[list[int], ...]:
    engine = Engine(models(), place="thread")
    asked = requests("off", tokens, drafters=())
    return tuple(ids_of_events(engine.generate(request)) for request in asked)


def beside(engine: Engine) -> ThreadedProcess:
    process = engine._drafting.homes._process
    assert isinstance(process, ThreadedProcess)
    return process


def ill(engine: Engine, how: str) -> None:
    process = beside(engine)
    process.die() if how == "dies" else process.hush()


def is_free(engine: Engine) -> bool:
    """No lock, no thread, no row of anybody."""
    rows = [engine.models.llm, *engine.models.ssms.values()]
    threads = [t for t in threading.enumerate() if t.name.startswith("drafting_")]
    held = [row for model in rows for row in model._rows if row is not None]  # type: ignore[attr-defined]
    return not (engine.busy.locked() or threads or held)


@pytest.mark.parametrize("how", ["dies", "falls silent"])
@pytest.mark.parametrize("pipeline", ["ahead", "across"])
@pytest.mark.parametrize("kind", [Drafted, Combined, Verified, RoundCompleted, RunCompleted])
def test_at_any_moment(engine: Engine, kind: type[Event], pipeline: str, how: str) -> None:
    events: dict[str, list[Event]] = {}
    seen = 0
    for event in engine.generate_many(requests(pipeline)):
        events.setdefault(event.run_id, []).append(event)
        seen += isinstance(event, kind)
        if seen == (1 if kind is RunCompleted else 3) and isinstance(event, kind):
            ill(engine, how)
            seen = 99
    assert [ids_of_events(run) for run in events.values()] == list(plain())
    assert [type(run[-1]) for run in events.values()] == [RunCompleted] * len(PROMPTS)
    assert is_free(engine)
    notes = {
        n for run in events.values() for e in run if isinstance(e, RoundCompleted) for n in e.notes
    }
    assert all("drafting goes on in a thread" in note for note in notes)
    assert notes or kind is RunCompleted


@pytest.mark.parametrize("how", ["dies", "falls silent"])
def test_a_run_that_is_left(engine: Engine, how: str) -> None:
    events = engine.generate(requests("ahead", 40)[0])
    for event in events:
        if isinstance(event, RoundCompleted):
            break
    ill(engine, how)
    events.close()  # type: ignore[attr-defined]
    assert is_free(engine)
    assert ids_of_events(engine.generate(requests("ahead")[0])) == plain()[0]


def all_of(run: Run) -> list[Event]:
    found: list[Event] = []
    for _ in range(int(SOON * 5)):
        found += run.poll(0.2)
        if run.done:
            return found
    raise AssertionError("the run never ends")


@pytest.mark.parametrize("how", ["dies", "falls silent"])
@pytest.mark.parametrize("then", [RunCancelled, RunCompleted])
def test_a_worker_ends_its_run_and_serves_the_neighbour(
    engine: Engine, then: type[Event], how: str
) -> None:
    """Ill as it is cancelled, and ill in its last round: who closes it, meets nobody."""
    worker = Worker(engine)
    runs: list[Run] = []

    def tap(event: Event) -> None:
        if isinstance(event, RoundCompleted) and event.round == (1 if then is RunCancelled else 0):
            ill(engine, how)
            if then is RunCancelled:
                runs[-1].cancel()

    try:
        runs.append(worker.submit(requests("off", 60)[1]))
        runs.append(worker.submit(requests("ahead", 4 if then is RunCompleted else 40)[0], tap))
        neighbour, victim = map(all_of, runs)
        assert isinstance(victim[-1], then)
        assert ids_of_events(neighbour) == plain(60)[1]
    finally:
        worker.close()
    assert is_free(engine)


@pytest.mark.parametrize("pipeline", ["ahead", "across", "auto"])
@pytest.mark.parametrize(
    "fields", [{"drafters": ("ngram",)}, {"drafters": ()}, {"speculation_length": 0}]
)
def test_no_process_is_begun_where_no_ssm_drafts(pipeline: str, fields: dict[str, Any]) -> None:
    engine = Engine(models(), place="process")
    events = list(engine.generate_many(requests(pipeline, **fields)))
    assert engine._drafting.homes._process is None
    assert not [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]


def test_a_run_that_moves_to_and_fro_leaves_no_row(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `auto` lets it: every other round is apart from the LLM."""
    modes = iter(["ahead", "off", "off"] * 99)
    monkeypatch.setattr(
        "core.engine.modes_of", lambda live, _: {one.sequence.run_id: next(modes) for one in live}
    )
    assert ids_of_events(engine.generate(requests("ahead", 30)[0])) == plain(30)[0]
    assert is_free(engine)
    there = beside(engine).models
    assert not [row for model in there.values() for row in model._rows if row is not None]
