"""The writer under trouble: whoever records never waits and never sees an error."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import storage.sink
from core.errors import StoreError
from core.events import Combined, Event, RunCompleted, Verified
from storage import RunQuery, RunStore
from storage.sink import Sink
from tests.synthetic import synthetic_run

QUICK_S = 0.5  # generous on a busy machine; a wait for the disk would be a second and more


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.sink.LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr("storage.writer.LAST_RETRY_S", 0.2)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def record_quickly(store: RunStore, events: list[Event]) -> None:
    start = time.monotonic()
    for event in events:
        store.record(event)
    assert time.monotonic() - start < QUICK_S


def test_a_locked_file_pauses_the_log_and_nothing_is_lost(store: RunStore, wait_for: Any) -> None:
    events = synthetic_run(30)
    record_quickly(store, events[:41])
    assert store.flush()
    with locked(store.path):
        record_quickly(store, events[41:81])
        wait_for(lambda: store.status().paused)
        status = store.status()
        assert "locked by another program" in status.reason
        assert str(store.path) in status.reason
        assert (status.waiting, status.dropped) == (40, 0)
        record_quickly(store, events[81:])
        assert not store.flush(0.1)
        assert list(store.events("synthetic-0")) == events[:41], "readers go on meanwhile"
    assert store.flush()
    wait_for(lambda: not store.status().paused)
    assert store.status() == dataclasses.replace(status, paused=False, reason="", waiting=0)
    assert list(store.events("synthetic-0")) == events


def test_the_log_goes_on_by_itself_after_a_pause(store: RunStore, wait_for: Any) -> None:
    events = synthetic_run(3)
    with locked(store.path):
        record_quickly(store, events)
        wait_for(lambda: store.status().paused)
    wait_for(lambda: store.status().waiting == 0)
    assert not store.status().paused
    assert list(store.events("synthetic-0")) == events


def test_a_full_disk_pauses_the_log_and_nothing_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: Any
) -> None:
    allowed = {"pages": 120}
    connect = storage.sink.connect

    def small(place: Path, **options: Any) -> sqlite3.Connection:
        connection = connect(place, **options)
        connection.execute(f"PRAGMA max_page_count = {allowed['pages']}")
        return connection

    monkeypatch.setattr(storage.sink, "connect", small)
    events = synthetic_run(200)
    with RunStore(path) as store:
        for start in range(0, len(events), 40):
            record_quickly(store, events[start : start + 40])
            store.flush(0.2)
        wait_for(lambda: store.status().paused)
        assert "the disk is full" in store.status().reason
        before = list(store.events("synthetic-0"))
        assert before == events[: len(before)]
        assert 1 < len(before) < len(events)
        allowed["pages"] = 1_000_000
        assert store.flush()
        assert not store.status().paused
        assert list(store.events("synthetic-0")) == events


@pytest.mark.parametrize("kind", [sqlite3.OperationalError, sqlite3.DatabaseError])
def test_any_error_of_the_disk_pauses_the_log(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, wait_for: Any, kind: type[sqlite3.Error]
) -> None:
    events = synthetic_run(4)
    with monkeypatch.context() as patch:

        def fail(sink: Sink, units: object) -> None:
            raise kind("disk I/O error")

        patch.setattr(Sink, "write", fail)
        record_quickly(store, events)
        wait_for(lambda: store.status().paused)
        assert store.status().reason == f"{store.path}: disk I/O error"
    assert store.flush()
    assert list(store.events("synthetic-0")) == events


def test_an_error_in_the_middle_of_a_transaction_leaves_nothing_behind(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, wait_for: Any, sql: Any
) -> None:
    real = storage.sink.insert_rows
    failures = iter([True, True])

    def fail_late(connection: sqlite3.Connection, table: Any, rows: Any) -> None:
        real(connection, table, rows)
        if table.name == "spans" and next(failures, False):
            assert connection.execute("SELECT count(*) FROM nodes").fetchone()[0] > 0
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(storage.sink, "insert_rows", fail_late)
    events = synthetic_run(3)
    record_quickly(store, events)
    assert store.flush()
    assert next(failures, None) is None
    assert list(store.events("synthetic-0")) == events


def test_beyond_the_limit_events_are_dropped_counted_and_the_run_is_marked(
    path: Path, wait_for: Any
) -> None:
    events = synthetic_run(50)
    other = synthetic_run(3, run_id="later")
    with RunStore(path, max_waiting=60) as store:
        with locked(path):
            record_quickly(store, events)
            wait_for(lambda: store.status().paused)
            status = store.status()
            assert status.waiting == 61, "sixty and the run's end"
            assert status.dropped >= len(events) - 61
        assert store.flush()
        for event in other:
            store.record(event)
        whole = 1 + 4 * 14
        assert list(store.events("synthetic-0")) == events[:whole]
        run = store.run("synthetic-0")
        assert (run.status, run.num_lost_events) == ("completed", 200 - 4 * 14)
        last = events[-1]
        assert isinstance(last, RunCompleted)
        assert run.stats == last.stats
        assert store.status().dropped == 200 - 4 * 14
        assert list(store.events("later")) == other, "the next run is whole again"
        assert store.run("later").num_lost_events == 0


def test_a_run_with_a_hole_is_marked_while_it_runs(store: RunStore) -> None:
    events = synthetic_run(6, end="cut")
    for event in events[:9] + events[10:]:
        store.record(event)
    assert list(store.events("synthetic-0")) == events[:9]
    assert store.run("synthetic-0").num_lost_events > 0
    assert store.run("synthetic-0").status == "running"


def test_events_of_a_run_whose_start_is_missing_are_counted(store: RunStore) -> None:
    for event in synthetic_run(2)[1:]:
        store.record(event)
    assert store.flush()
    assert store.status().dropped == 9
    assert store.runs(RunQuery()).total == 0


def test_a_round_that_cannot_be_stored_makes_a_hole_and_other_runs_go_on(store: RunStore) -> None:
    events = synthetic_run(6)
    bad = events[10]
    assert isinstance(bad, Combined)
    spoilt: list[Event] = list(events)
    spoilt[10] = dataclasses.replace(bad, texts=bad.texts[1:])
    other = synthetic_run(6, run_id="other")
    for pair in zip(spoilt, other, strict=True):
        for event in pair:
            store.record(event)
    assert list(store.events("other")) == other
    assert list(store.events("synthetic-0")) == events[:9]
    assert store.run("synthetic-0").num_lost_events >= 4
    assert store.run("synthetic-0").status == "completed"
    assert not store.status().paused


@pytest.mark.parametrize("value", [2**70, object(), None])
def test_values_sqlite_refuses_do_not_stop_the_log(store: RunStore, value: Any) -> None:
    events: list[Event] = list(synthetic_run(3))
    bad = events[6]
    assert isinstance(bad, Combined)
    events[6] = dataclasses.replace(bad, token_ids=(value, *bad.token_ids[1:]))
    for event in events:
        store.record(event)
    assert list(store.events("synthetic-0")) == events[:5]
    assert store.status().dropped > 0


def test_probabilities_that_are_no_numbers_are_kept(store: RunStore, keep: Any) -> None:
    events: list[Event] = list(synthetic_run(2))
    verified = events[3]
    assert isinstance(verified, Verified)
    events[3] = dataclasses.replace(verified, own_probability=float("nan"))
    keep(store, events)
    back = store.events("synthetic-0")
    assert repr(list(back)) == repr(events)


def test_a_second_run_of_the_same_name_does_not_touch_the_first(store: RunStore, keep: Any) -> None:
    first, second = synthetic_run(3), synthetic_run(5, seed=1, run_id="synthetic-0")
    keep(store, first)
    for event in second:
        store.record(event)
    assert store.flush()
    assert list(store.events("synthetic-0")) == first
    assert store.status().dropped > 0
    assert store.runs(RunQuery()).total == 1


def test_a_run_deleted_while_it_goes_on_is_gone_and_costs_nothing(
    store: RunStore, keep: Any
) -> None:
    events = synthetic_run(8)
    keep(store, events[:13])
    store.delete("synthetic-0")
    keep(store, synthetic_run(2, run_id="other"))
    keep(store, events[13:])
    assert [run.run_id for run in store.runs(RunQuery()).rows] == ["other"]
    assert list(store.events("other")) == synthetic_run(2, run_id="other")
    with pytest.raises(StoreError, match="no such run"):
        store.events("synthetic-0")


def test_a_closed_store_takes_events_without_a_word(path: Path) -> None:
    store = RunStore(path)
    store.close()
    store.close()
    store.record(synthetic_run(1)[0])
    assert store.status().dropped == 1


def test_closing_a_store_whose_file_is_locked_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.store.FLUSH_TIMEOUT_S", 0.2)
    store = RunStore(path)
    with locked(path):
        for event in synthetic_run(2):
            store.record(event)
        store.close()
    assert store.status().waiting == 10
    assert all(thread.name != "run-log" for thread in threading.enumerate())


def test_a_transaction_gathers_what_comes_within_a_tenth_of_a_second(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = Sink.write, []

    def counting(sink: Sink, units: Any) -> Any:
        sizes.append(len(units))
        return real(sink, units)

    monkeypatch.setattr(Sink, "write", counting)
    start = time.monotonic()
    for event in synthetic_run(60):
        store.record(event)
        time.sleep(0.002)
    took = time.monotonic() - start
    assert store.flush()
    assert sum(sizes) == 62
    assert len(sizes) <= took / 0.1 + 2


def test_a_round_is_on_disk_soon_without_being_asked_for(
    store: RunStore, wait_for: Any, sql: Any
) -> None:
    events = synthetic_run(12, end="cut")
    for number in range(12):
        for event in events[: 1 + 4 * (number + 1)][-5 if number == 0 else -4 :]:
            store.record(event)
        wait_for(lambda n=number: sql("SELECT count(*) FROM rounds") == [(n + 1,)], timeout=1)


def test_record_returns_while_the_writer_is_stuck(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, go_on = threading.Event(), threading.Event()
    real = Sink.write

    def slow(sink: Sink, units: Any) -> Any:
        stuck.set()
        go_on.wait(10)
        return real(sink, units)

    monkeypatch.setattr(Sink, "write", slow)
    events = synthetic_run(50)
    store.record(events[0])
    assert stuck.wait(5)
    record_quickly(store, events[1:])
    go_on.set()
    assert store.flush()
    assert list(store.events("synthetic-0")) == events
