"""Runs that move between the engine's thread and the drafting process, at any moment and with
whatever going wrong: no text, no innocent drafter and no row is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core import Engine
from core.drafters.studio import Studio
from core.events import RoundCompleted
from tests.core.engines import ids_of_events
from tests.core.pipelined import SOON, beside, is_free, notes_of, pipelined, plain, requests
from tests.lanes import PunctualLane


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with pipelined(monkeypatch) as made:
        yield made


def nothing_beside(engine: Engine) -> bool:
    """The process stands and knows nobody."""
    process = beside(engine)
    rows = [row for model in process.models.values() for row in model._rows if row is not None]
    homes = engine._drafting.homes
    assert homes._there is not None
    return not (rows or homes._apart or homes._known or homes._there._learnt or homes._there._left)


def moved_by(monkeypatch: pytest.MonkeyPatch, modes: Callable[[int], str]) -> None:
    """The mode of every round, by its number."""
    monkeypatch.setattr(
        "core.engine.modes_of",
        lambda live, _: {one.sequence.run_id: modes(one.sequence.round) for one in live},
    )


def test_to_and_fro(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `auto` lets it: every third round is apart from the LLM."""
    moved_by(monkeypatch, lambda number: "ahead" if number % 3 == 0 else "off")
    events = list(engine.generate(requests("ahead", 30)[0]))
    assert ids_of_events(events) == plain(30)[0]
    assert is_free(engine) and nothing_beside(engine) and not notes_of(events)


class Deadly:
    """A process that dies at a message: the first that `at` says, asked with its number."""

    def __init__(self, engine: Engine, at: Callable[[int, str], bool]) -> None:
        self.died = False
        self._process, self._at, self._number = beside(engine), at, 0
        self._send = self._process.send
        self._process.send = self.send  # type: ignore[method-assign]

    def send(self, message: Any) -> None:
        if not self.died and self._at(self._number, message[0]):
            self.died = True
            self._process.die()
        self._number += 1
        self._send(message)


@pytest.mark.parametrize("pipeline", ["ahead", "across"])
def test_a_process_that_dies_at_any_message_costs_no_drafter(
    pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two drafts of a round, between two commits, in mid-move."""
    moved_by(monkeypatch, lambda number: pipeline if number else "off")
    for number in range(99):
        with pipelined(monkeypatch) as engine:
            process = Deadly(engine, lambda n, _, number=number: n == number)  # type: ignore[misc]
            events = list(engine.generate_many(requests(pipeline, 5)))
            for place, run_id in enumerate(dict.fromkeys(e.run_id for e in events)):
                found = ids_of_events(e for e in events if e.run_id == run_id)
                assert found == plain(5)[place], number
            for note in notes_of(events):
                assert "drafting goes on in a thread" in note, number
            assert is_free(engine)
        if not process.died:
            break
    assert number > 10


def test_a_row_that_comes_back_with_all_the_text_is_read_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was drafted ahead here came true, so that nothing was left to read; then the run moves
    to the process, which dies at once."""
    monkeypatch.setattr("core.drafters.outcomes.LEAST", 0.0)
    monkeypatch.setattr("core.drafters.foresight.OUTCOMES", 60)
    hits = 0
    for moves in range(1, 5):
        with pipelined(monkeypatch, at_once=False) as engine:
            homes = engine._drafting.homes
            homes._allowed = False
            events = []
            lane, engine._lane = engine._lane, PunctualLane()
            for event in engine.generate(requests("ahead", 30)[0]):
                events.append(event)
                if isinstance(event, RoundCompleted) and event.round == moves:
                    homes._allowed = True
                    assert engine.ready_beside(SOON)
                    Deadly(engine, lambda _, method: method == "draft")
                    hits += sum(
                        state.ready is not None
                        for ssm in homes.here.ssms.values()
                        for state in ssm._states.values()
                    )
            engine._lane = lane
            assert ids_of_events(events) == plain(30)[0]
            (note,) = notes_of(events)
            assert "drafting goes on in a thread" in note, moves
            assert is_free(engine)
    assert hits


@pytest.mark.loses_drafters
@pytest.mark.parametrize("apart", ["here", "there"])
def test_who_cannot_move_is_lost_alone_and_leaves_nothing(
    apart: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, then = ("off", "ahead") if apart == "here" else ("ahead", "off")
    moved_by(monkeypatch, lambda number: first if number < 2 else then)
    unpack = Studio.unpack

    def refuses(studio: Studio, name: str, *rest: Any) -> None:
        if name == "ssm-1":
            raise RuntimeError("no room")
        unpack(studio, name, *rest)

    monkeypatch.setattr(Studio, "unpack", refuses)
    events = list(engine.generate(requests("ahead")[0]))
    assert ids_of_events(events) == plain()[0]
    (note,) = notes_of(events)
    assert "ssm-1 failed" in note and "no room" in note
    assert is_free(engine) and nothing_beside(engine)


def test_an_engine_closes_in_mid_run_though_its_process_died_unnoticed(engine: Engine) -> None:
    events = engine.generate(requests("ahead")[0])
    found = [next(events) for _ in range(9)]
    beside(engine).die()
    engine.close()
    assert engine._drafting.homes._process is None
    found += list(events)
    assert ids_of_events(found) == plain()[0]
    assert is_free(engine) and not notes_of(found)


def test_a_run_that_opens_no_ssm_leaves_nothing(engine: Engine) -> None:
    assert ids_of_events(engine.generate(requests("ahead", 1)[0])) == plain(1)[0]
    assert nothing_beside(engine)
