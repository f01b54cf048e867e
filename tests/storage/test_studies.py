"""Studies in the log's file: kept, listed, interrupted, deleted."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from core.errors import StoreError, UnknownStudyError
from storage import RunStore, studies
from storage.process import HEARTBEAT_TIMEOUT_S, start_mark

HOSTILE = "<b>${x}\x00\u202e half \ud800"


def study(
    study_id: str = "s", kind: str = "compare", created: str = "2026-01-01"
) -> dict[str, Any]:
    return {
        "study_id": study_id, "kind": kind, "title": HOSTILE, "created_utc": created, "more": [1],
    }  # fmt: skip


def test_a_saved_study_is_read_back(store: RunStore) -> None:
    store.studies.save(study(), 12, HOSTILE)
    row, plain = store.studies.study("s")
    assert plain == study()
    assert (row.title, row.owner, row.state, row.done, row.total) == (
        HOSTILE, HOSTILE, "stopped", 0, 12,
    )  # fmt: skip


def test_each_cell_is_kept_once_in_the_order_of_keeping(store: RunStore) -> None:
    store.studies.save(study(), 2)
    cells = [("b", HOSTILE, 0), ("a", "x", 1)]
    for i, cell in enumerate(cells):
        store.studies.keep("s", cell, {"run_id": f"r{i}", "speed": 0.1 + i})
    store.studies.keep("s", cells[0], {"run_id": "later", "speed": 9})
    assert list(store.studies.results("s").items()) == [
        (cells[0], {"run_id": "r0", "speed": 0.1}),
        (cells[1], {"run_id": "r1", "speed": 1.1}),
    ]
    assert store.studies.cells("s") == tuple(cells)
    assert store.studies.of_run("r1") == "s" and store.studies.of_run("later") == ""
    assert store.studies.study("s")[0].done == 2


def test_lists_are_newest_first_of_one_kind_and_one_owner(store: RunStore) -> None:
    store.studies.save(study("1", "tune", "2026-01-01"), 1, "me")
    store.studies.save(study("2", "compare", "2026-01-03"), 1, "me")
    store.studies.save(study("3", "tune", "2026-01-02"), 1, "you")

    def ids(**filters: Any) -> list[str]:
        return [row.study_id for row in store.studies.studies(**filters)]

    assert ids() == ["2", "3", "1"]
    assert ids(kind="tune") == ["3", "1"]
    assert ids(owner="me") == ["2", "1"]
    assert ids(limit=1, offset=1) == ["3"]


def test_a_study_is_deleted_with_its_cells(store: RunStore, sql: Any) -> None:
    store.studies.save(study(), 1)
    store.studies.keep("s", ("a", "x", 0), {"run_id": "r"})
    store.studies.delete("s")
    for call in (
        lambda: store.studies.study("s"), lambda: store.studies.results("s"),
        lambda: store.studies.delete("s"), lambda: store.studies.set_state("s", "stopped"),
        lambda: store.studies.keep("s", ("a", "x", 0), {}),
    ):  # fmt: skip
        with pytest.raises(UnknownStudyError, match="'s'"):
            call()
    assert sql("SELECT count(*) FROM study_cells") == [(0,)]


def test_an_unknown_state_is_refused(store: RunStore) -> None:
    store.studies.save(study(), 1)
    with pytest.raises(StoreError, match="state is 'happy'"):
        store.studies.set_state("s", "happy")


def test_a_study_whose_process_is_gone_is_interrupted(path: Path, sql: Any) -> None:
    with RunStore(path) as store:
        store.studies.save(study("gone"), 1)
        store.studies.save(study("here"), 1)
        store.studies.save(study("done"), 1)
        for one in ("gone", "here"):
            assert store.studies.claim(one)
        store.studies.set_state("done", "completed")
    sql("UPDATE studies SET process_start = 'before' WHERE study_id != 'here'")
    with RunStore(path) as store:
        states = {row.study_id: row.state for row in store.studies.studies()}
    assert states == {"gone": "interrupted", "here": "running", "done": "completed"}


def test_a_study_is_claimed_by_one_process(path: Path, sql: Any) -> None:
    with RunStore(path) as store:
        store.studies.save(study("a"), 1)
        store.studies.save(study("b"), 1)
        assert store.studies.claim("a") and store.studies.claim("a"), (
            "a process may repeat its claim"
        )
        other = (os.getppid(), start_mark(os.getppid()))  # as if the parent process ran both
        sql("UPDATE studies SET pid = ?, process_start = ?", *other)
        sql("UPDATE studies SET state = 'stopped' WHERE study_id = 'b'")
        assert store.studies.study("a")[0].elsewhere
        assert not store.studies.claim("a") and not store.studies.claim("b")
        sql("UPDATE studies SET process_start = 'before'")
        assert not store.studies.study("a")[0].elsewhere
        assert store.studies.claim("b")


def test_a_study_that_another_host_has_resumed_meanwhile_goes_on(
    path: Path, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore(path) as store:
        store.studies.save(study("a"), 1)
        assert store.studies.claim("a")

    def resumed_elsewhere(row: sqlite3.Row) -> bool:
        """As if another host's process with the same id and start resumed the study now."""
        sql("UPDATE studies SET host = 'another', seen_at = ?", time.time())
        return True

    monkeypatch.setattr(studies, "_is_orphaned", resumed_elsewhere)
    with RunStore(path) as store:
        assert store.studies.study("a")[0].state == "running"


def test_a_study_of_another_host_is_interrupted_when_its_heartbeat_is_old(path, sql):
    def set_heartbeat(seconds_ago: float) -> None:
        values = ("a container that ended", time.time() - seconds_ago)
        sql("UPDATE studies SET host = ?, seen_at = ?", *values)

    def state() -> str:
        with RunStore(path) as store:
            return store.studies.study("a")[0].state

    with RunStore(path) as store:
        store.studies.save(study("a"), 1)
        store.studies.save(study("b"), 1)
        assert store.studies.claim("a")
        set_heartbeat(HEARTBEAT_TIMEOUT_S - 60)
        assert store.studies.study("a")[0].elsewhere and not store.studies.claim("b")
        assert state() == "running"
        set_heartbeat(HEARTBEAT_TIMEOUT_S + 1)
        assert not store.studies.study("a")[0].elsewhere
        store.studies.beat("a")
        assert store.studies.study("a")[0].elsewhere and not store.studies.claim("b")
        set_heartbeat(HEARTBEAT_TIMEOUT_S + 1)
        assert state() == "interrupted"
        assert store.studies.claim("a")
