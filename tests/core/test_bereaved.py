"""A drafting process that dies or falls silent at any moment costs no text, no run and no drafter;
nobody waits for ever, and the engine is free again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core import Engine, Worker
from core.events import (
    Combined,
    Drafted,
    Event,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    Verified,
)
from core.worker import Run
from tests.core.engines import ids_of_events
from tests.core.pipelined import (
    PROMPTS,
    SOON,
    beside,
    is_free,
    models,
    notes_of,
    pipelined,
    plain,
    requests,
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with pipelined(monkeypatch) as made:
        yield made


def ill(engine: Engine, how: str) -> None:
    process = beside(engine)
    process.die() if how == "dies" else process.hush()


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
    notes = {note for run in events.values() for note in notes_of(run)}
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
    assert not notes_of(events)
