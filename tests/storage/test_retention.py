"""Retention: old runs are thinned to their accepted paths, in short transactions."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.events import Combined
from storage import RunStore
from storage.database import connect
from storage.thinned import THINNED
from storage.thinning import thin_some
from tests.storage.test_thinning import page_values, thin_ids
from tests.storage.trouble import hold_write_lock, record
from tests.synthetic import synthetic_run
from ui.run.view import reduce_all


def test_a_run_is_thinned_in_portions_and_is_complete_after_each(store, keep, monkeypatch):
    monkeypatch.setattr("storage.thinning.PORTION_S", 1e-9)
    monkeypatch.setattr("storage.thinning.ROUNDS_AT_ONCE", 8)
    run = synthetic_run(20, seed=1)
    keep(store, run)
    portions = []
    with closing(connect(store.path, timeout=1)) as connection:
        while (result := thin_some(connection, 0)) is not None:
            events = store.events("synthetic-1")
            assert page_values(reduce_all(events)) == page_values(reduce_all(run))
            assert events[0].warnings[-1] == THINNED  # type: ignore[union-attr]
            portions.append((result, sum(e in events for e in run if isinstance(e, Combined))))
    assert [result for result, _ in portions] == [0, 0, 1]
    complete_trees = [number for _, number in portions]
    assert complete_trees == sorted(complete_trees, reverse=True)
    assert complete_trees[0] > complete_trees[-1]


def test_others_write_between_portions(store: RunStore, keep: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("storage.thinning.PORTION_S", 1e-9)
    for seed in range(3):
        keep(store, synthetic_run(20, seed=seed))
    writes = 0
    # Without a timeout, a write raises if another write transaction is open.
    with closing(sqlite3.connect(store.path, timeout=0, isolation_level=None)) as other:

        def thin_and_write(connection: sqlite3.Connection, keep_: int) -> int | None:
            nonlocal writes
            finished = thin_some(connection, keep_)
            other.execute("UPDATE settings SET value_json = '1' WHERE name = 'nobody'")
            writes += 1
            return finished

        monkeypatch.setattr("storage.store.thin_some", thin_and_write)
        assert store.thin(0) == 3
    assert writes > 3


def test_the_setting_is_kept_in_the_log(path: Path) -> None:
    with RunStore(path) as store:
        assert store.retention() is None
        store.set_retention(7)
    with RunStore(path) as store:
        assert store.retention() == 7
        store.set_retention(0)
        assert store.retention() == 0
        store.set_retention(None)
        assert store.retention() is None


@pytest.mark.parametrize("keep_", [-1, True, 1.5, "3", 10**10])
def test_an_invalid_number_of_runs_is_refused(store: RunStore, keep_: Any) -> None:
    for call in (store.set_retention, store.thin):
        with pytest.raises(ConfigError, match="keep is .*: it must be a whole number from 0"):
            call(keep_)


def test_runs_are_thinned_when_retention_is_set_and_when_a_run_ends(store, keep, wait_for):
    for seed in range(4):
        keep(store, synthetic_run(3, seed=seed))
    store.set_retention(2)
    wait_for(lambda: thin_ids(store) == ["synthetic-0", "synthetic-1"])
    keep(store, synthetic_run(3, seed=4))
    wait_for(lambda: thin_ids(store) == ["synthetic-0", "synthetic-1", "synthetic-2"])
    assert store.status().dropped == 0


def test_a_store_opened_later_thins_by_the_stored_setting(path: Path, keep: Any, sql: Any) -> None:
    with RunStore(path) as store:
        for seed in range(3):
            keep(store, synthetic_run(3, seed=seed))
    sql("INSERT INTO settings VALUES ('retention', '1')")
    with RunStore(path) as store:
        end = time.monotonic() + 10
        while len(thin_ids(store)) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_locked_file_stops_neither_the_log_nor_the_thinning(store, keep, wait_for, monkeypatch):
    monkeypatch.setattr("storage.sink.LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr("storage.writer.UPKEEP_RETRY_S", 0.05)
    keep(store, synthetic_run(3, seed=1))
    store.set_retention(0)
    with hold_write_lock(store.path):
        run = synthetic_run(3, seed=2)
        record(store, run)
        wait_for(lambda: store.status().paused)
    wait_for(lambda: thin_ids(store) == ["synthetic-1", "synthetic-2"])
    assert store.status().dropped == 0


def test_rows_that_another_program_damaged_do_not_stop_the_log(store, keep, sql, monkeypatch):
    monkeypatch.setattr("storage.writer.UPKEEP_RETRY_S", 0.01)
    keep(store, synthetic_run(3, seed=1))
    sql("UPDATE rounds SET masses_json = 'no JSON'")
    store.set_retention(0)
    time.sleep(0.3)
    keep(store, synthetic_run(3, seed=2))
    assert list(store.events("synthetic-2")) == synthetic_run(3, seed=2) or thin_ids(store)
    assert not store.status().paused


def test_the_file_shrinks_after_automatic_thinning(store, keep, wait_for, monkeypatch):
    pages = twelve_runs(store, keep, monkeypatch)
    store.set_retention(0)
    wait_for(lambda: len(thin_ids(store)) == 12)
    wait_for(lambda: pages_of(store.path) < 0.6 * pages)


def test_thin_and_delete_free_space(store, keep, wait_for, monkeypatch):
    pages = twelve_runs(store, keep, monkeypatch)
    assert store.thin(0) == 12
    assert pages_of(store.path) < 0.6 * pages
    for seed in range(12):
        store.delete(f"synthetic-{seed}")
    wait_for(lambda: pages_of(store.path) < 0.35 * pages)


def twelve_runs(store: RunStore, keep: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("storage.thinning.PAGES_LEFT", 8)
    for number in range(12):
        keep(store, synthetic_run(60, run_id=f"synthetic-{number}"))
    return pages_of(store.path)


def pages_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_count").fetchone()[0])


def test_compact_makes_an_older_file_small_and_able_to_shrink(path: Path, keep: Any, sql: Any):
    with RunStore(path) as store:
        for number in range(6):
            keep(store, synthetic_run(60, run_id=f"synthetic-{number}"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
    with RunStore(path) as store:
        assert sql("PRAGMA auto_vacuum") == [(0,)]
        size = path.stat().st_size
        assert store.thin(0) == 6
        pages = pages_of(path)
        store.compact()
        assert pages_of(path) < 0.6 * pages
        assert path.stat().st_size < 0.6 * size
        assert sql("PRAGMA auto_vacuum") == [(2,)]
        assert len(store.events("synthetic-5")) == len(synthetic_run(60))
