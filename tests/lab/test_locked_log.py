"""Another program locks the log while a study is measured."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from core.errors import StoreError, UnknownStudyError
from lab.log_retries import UnsavedStates
from lab.study import Study
from tests.lab.test_study_runs import Lab, study, until


@contextmanager
def lock(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        yield
        raw.execute("ROLLBACK")


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr("storage.studies.OPEN_TIMEOUT_S", 0.02)
    monkeypatch.setattr("lab.log_retries.RETRY_INTERVAL_S", 0.02)
    opened = Lab(tmp_path / "log.db", slowdown=0.1)
    yield opened
    opened.close()


def test_a_cell_waits_for_a_locked_log_and_reports_it(lab: Lab) -> None:
    lab.conductor.begin(study())
    until(lab, 1)
    with lock(lab.store.path):
        wait_until(
            lambda: lab.conductor.progress().log_error.startswith("The log is busy: trying again")
        )
        assert lab.conductor.progress().is_active
    assert lab.conductor.wait(30)
    end = lab.conductor.progress()
    assert (end.state, end.done, end.log_error) == ("completed", 8, "")
    assert len(lab.results()) == 8


def test_a_study_whose_end_cannot_be_written_has_ended_and_can_be_resumed(lab, monkeypatch):
    lab.conductor.begin(study())
    until(lab, 1)
    with lock(lab.store.path), monkeypatch.context() as patch:
        patch.setattr("lab.log_retries.RETRY_TIMEOUT_S", 0.2)
        assert lab.conductor.wait(30)
        end = lab.conductor.progress()
        assert end.state == "failed" and not end.is_active
        assert "repeat" in end.reason and "measured, but not kept" in end.reason
        assert "locked" in end.reason
        assert lab.store.studies.study("s1")[0].state == "running", "the log has the old state"
        assert lab.conductor.unsaved_state("s1") == ("failed", end.reason)
    wait_until(lambda: lab.store.studies.study("s1")[0].state == "failed")
    wait_until(lambda: lab.conductor.unsaved_state("s1") is None)
    lab.conductor.resume(Study.from_plain(lab.store.studies.study("s1")[1]))
    assert lab.conductor.wait(30)
    assert lab.conductor.progress().state == "completed" and len(lab.results()) == 8
    # A refused write is retried: the log may get the state after the study's end.
    wait_until(lambda: lab.store.studies.study("s1")[0].state == "completed")


def test_stop_ends_the_waiting_for_the_log(lab: Lab) -> None:
    lab.conductor.begin(study())
    until(lab, 1)
    with lock(lab.store.path):
        wait_until(lambda: bool(lab.conductor.progress().log_error))
        lab.conductor.stop()
        assert lab.conductor.wait(10)
        assert not lab.conductor.progress().is_active


class LockedStore:
    def __init__(self) -> None:
        self.free = threading.Event()
        self.gone = False
        self.written: list[tuple[str, str, str]] = []

    def set_state(self, study_id: str, state: str, reason: str = "") -> None:
        if self.gone:
            raise UnknownStudyError("it was deleted")
        if not self.free.is_set():
            raise StoreError("locked")
        self.written.append((study_id, state, reason))


def test_a_resumed_study_is_not_set_to_its_unsaved_state_later(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lab.log_retries.RETRY_INTERVAL_S", 0.01)
    store = LockedStore()
    states = UnsavedStates(store)  # type: ignore[arg-type]
    states.record("s1", "failed", "why")
    states.record("s2", "stopped", "")
    with pytest.raises(StoreError), states.discarding_state("s1"):
        raise StoreError("locked still")
    assert states.state_of("s1") == ("failed", "why")
    with states.discarding_state("s1"):
        pass
    assert states.state_of("s1") is None
    store.free.set()
    wait_until(lambda: states.state_of("s2") is None)
    states.close()
    assert store.written == [("s2", "stopped", "")]


def test_close_retries_a_write_and_a_deleted_studys_state_is_dropped() -> None:
    store = LockedStore()
    states = UnsavedStates(store)  # type: ignore[arg-type]
    states.record("s1", "failed", "why")
    store.free.set()
    states.close()
    assert store.written == [("s1", "failed", "why")] and states.state_of("s1") is None
    store.gone = True
    states.record("s2", "failed", "")
    assert states.state_of("s2") is None
