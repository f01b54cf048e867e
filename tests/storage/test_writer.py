"""`RunStore.record` never waits and never raises."""

import dataclasses
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import storage.sink
from storage import RunStore
from storage.sink import Sink
from tests.storage.trouble import hold_write_lock, record, record_quickly
from tests.synthetic import synthetic_run

pytestmark = pytest.mark.usefixtures("short_waits")


def test_a_locked_file_pauses_the_log_and_nothing_is_lost(store: RunStore, wait_for: Any) -> None:
    events = synthetic_run(30)
    record_quickly(store, events[:41])
    assert store.flush()
    with hold_write_lock(store.path):
        record_quickly(store, events[41:81])
        wait_for(lambda: store.status().paused)
        status = store.status()
        assert "locked by another program" in status.reason
        assert str(store.path) in status.reason
        assert (status.waiting, status.dropped) == (40, 0)
        record_quickly(store, events[81:])
        assert not store.flush(0.1)
        assert list(store.events("synthetic-0")) == events[:41], "readers are not blocked"
    assert store.flush()
    wait_for(lambda: not store.status().paused)
    assert store.status() == dataclasses.replace(status, paused=False, reason="", waiting=0)
    assert list(store.events("synthetic-0")) == events


def test_the_log_continues_after_a_pause_without_a_call(store: RunStore, wait_for: Any) -> None:
    events = synthetic_run(3)
    with hold_write_lock(store.path):
        record_quickly(store, events)
        wait_for(lambda: store.status().paused)
    wait_for(lambda: store.status().waiting == 0)
    assert not store.status().paused
    assert list(store.events("synthetic-0")) == events


def test_a_full_disk_pauses_the_log_and_nothing_is_lost(path, monkeypatch):
    allowed = {"pages": 120}
    connect = storage.sink.connect

    def connect_limited(path: Path, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.execute(f"PRAGMA max_page_count = {allowed['pages']}")
        return connection

    monkeypatch.setattr(storage.sink, "connect", connect_limited)
    events = synthetic_run(100)
    with RunStore(path) as store:
        for start in range(0, len(events), 40):
            record_quickly(store, events[start : start + 40])
            # On a busy machine a flush may take more than 0.2 s.
            if not store.flush(0.2) and store.status().paused:
                break
        assert store.status().paused
        record_quickly(store, events[start + 40 :])
        assert "the disk is full" in store.status().reason
        before = list(store.events("synthetic-0"))
        assert before == events[: len(before)]
        assert 1 < len(before) < len(events)
        allowed["pages"] = 1_000_000
        assert store.flush()
        assert not store.status().paused
        assert list(store.events("synthetic-0")) == events


@pytest.mark.parametrize("kind", [sqlite3.OperationalError, sqlite3.DatabaseError])
def test_any_error_of_the_disk_pauses_the_log(store, monkeypatch, wait_for, kind):
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


def test_a_transaction_that_fails_in_the_middle_is_rolled_back(
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


def test_a_closed_store_drops_events_without_an_error(path: Path) -> None:
    store = RunStore(path)
    store.close()
    store.close()
    store.record(synthetic_run(1)[0])
    assert store.status().dropped == 1


def test_closing_a_store_whose_file_is_locked_returns(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("storage.store.FLUSH_TIMEOUT_S", 0.2)
    before = set(threading.enumerate())
    store = RunStore(path)
    with hold_write_lock(path):
        record(store, synthetic_run(2))
        started = set(threading.enumerate()) - before
        assert "run-log" in {thread.name for thread in started}
        store.close()
    assert store.status().waiting == 10
    assert not [thread for thread in started if thread.name == "run-log" and thread.is_alive()]


def test_events_within_a_tenth_of_a_second_share_a_transaction(store, monkeypatch):
    real, sizes = Sink.write, []

    def write_counted(sink: Sink, units: Any) -> Any:
        sizes.append(len(units))
        return real(sink, units)

    monkeypatch.setattr(Sink, "write", write_counted)
    start = time.monotonic()
    for event in synthetic_run(60):
        store.record(event)
        time.sleep(0.002)
    seconds = time.monotonic() - start
    assert store.flush()
    assert sum(sizes) == 62
    assert len(sizes) <= seconds / 0.1 + 2


def test_a_round_is_on_disk_within_a_second_without_a_flush(
    store: RunStore, wait_for: Any, sql: Any
):
    events = synthetic_run(12, end="cut")
    for number in range(12):
        record(store, events[: 1 + 4 * (number + 1)][-5 if number == 0 else -4 :])
        wait_for(lambda n=number: sql("SELECT count(*) FROM rounds") == [(n + 1,)], timeout=1)


def test_record_returns_while_the_writer_is_blocked(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
):
    is_writing, may_continue = threading.Event(), threading.Event()
    real = Sink.write

    def write_blocked(sink: Sink, units: Any) -> Any:
        is_writing.set()
        may_continue.wait(10)
        return real(sink, units)

    monkeypatch.setattr(Sink, "write", write_blocked)
    events = synthetic_run(50)
    store.record(events[0])
    assert is_writing.wait(5)
    record_quickly(store, events[1:])
    may_continue.set()
    assert store.flush()
    assert list(store.events("synthetic-0")) == events
