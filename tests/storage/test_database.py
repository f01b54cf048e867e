"""Opening the log's file: it is created, migrated, or refused."""

import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from sqlite_utils import Database

from core.errors import StoreError
from core.events import Event, RoundCompleted, Scheduled
from storage import RunQuery, RunStore
from storage.database import locate, open_database
from storage.migrations import migrations
from storage.selection import SCHEDULES
from tests.synthetic import Mechanisms, synthetic_run

ROOT = Path(__file__).parents[2]
TABLES = {
    "models", "runs", "run_models", "rounds", "drafts", "nodes", "proposals", "trials", "top_k",
    "tokens", "spans", "run_drafters", "settings",
}  # fmt: skip
VIEWS = {"run_summary", "acceptance_by_position", "ssm_scoreboard", "span_times", "overlaps"}


def test_a_new_file_gets_the_schema(path: Path) -> None:
    open_database(path)
    with closing(Database(path)) as database:
        assert set(database.table_names()) >= TABLES
        assert set(database.view_names()) == VIEWS
        assert all(database.table(name).strict for name in TABLES)
        assert database.table("runs").detect_fts() == "runs_fts"
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        applied = [migration.name for migration in migrations.applied(database)]
    assert applied == [
        "m001_runs", "m002_rounds", "m003_search", "m004_views", "m005_minions", "m006_overlap",
        "m007_studies", "m008_notes", "m009_lists", "m010_thinning", "m011_seen", "m012_baselines",
        "m013_shares", "m014_between", "m015_fingerprints", "m016_routing", "m017_fusion",
        "m018_scheduling", "m019_own_tokens", "m020_schedules", "m021_offload", "m022_nodes",
        "m023_ranks",
        "m024_blocks",
        "m025_same_text",
        "m026_regret",
    ]  # fmt: skip


def test_an_empty_file_gets_the_schema_and_missing_folders_are_created(path: Path) -> None:
    path.touch()
    with RunStore(path) as store:
        assert store.runs(RunQuery()).total == 0
    with RunStore(path.parent / "a" / "b" / "log.db") as store:
        assert store.path.exists()


def test_opening_again_changes_nothing(path: Path, keep: Any, sql: Any) -> None:
    with RunStore(path) as store:
        keep(store, synthetic_run(2))
    schema = "SELECT sql FROM sqlite_master ORDER BY name"
    before, applied = sql(schema), sql("SELECT * FROM _sqlite_migrations")
    open_database(path)
    assert (sql(schema), sql("SELECT * FROM _sqlite_migrations")) == (before, applied)
    with RunStore(path) as store:
        assert list(store.events("synthetic-0")) == synthetic_run(2)


def test_an_older_schema_is_migrated(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrations.apply(Database(connection), stop_before="m003_search")
        connection.execute("PRAGMA application_id = 0x53706563")
    with RunStore(path) as store:
        assert store.runs(RunQuery(text="fox")).total == 0


@pytest.mark.nightly
def test_several_processes_may_create_the_file_at_once(path: Path) -> None:
    code = (
        "import sys; from storage import RunStore; print('ready', flush=True); "
        "sys.stdin.readline(); RunStore(sys.argv[1]).close()"
    )
    command = [sys.executable, "-c", code, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(4)]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate(timeout=60)
    assert [process.returncode for process in started] == [0, 0, 0, 0]


def test_writer_and_reader_use_the_pragmas(store: RunStore, keep: Any, path: Path) -> None:
    from storage.database import connect

    for read_only in (False, True):
        with closing(connect(path, read_only=read_only, timeout=1)) as connection:
            assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
            assert connection.execute("PRAGMA synchronous").fetchone()[0] == 1


def test_where_the_file_is_located(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *a, **k: tmp_path / "data")
    monkeypatch.delenv("SPECSCOPE_DB", raising=False)
    assert locate(None) == tmp_path / "data" / "specscope.db"
    monkeypatch.setenv("SPECSCOPE_DB", "")
    assert locate(None) == tmp_path / "data" / "specscope.db"
    monkeypatch.setenv("SPECSCOPE_DB", str(tmp_path / "env.db"))
    assert locate(None) == tmp_path / "env.db"
    assert locate(tmp_path / "asked.db") == tmp_path / "asked.db"
    assert locate("~/x.db") == Path.home() / "x.db"
    with RunStore() as store:
        assert store.path == tmp_path / "env.db"


@pytest.mark.parametrize("name", ["with blank.db", "per%cent?.db", "hash#ä&=.db"])
def test_unusual_file_names_are_accepted(tmp_path: Path, keep: Any, name: str) -> None:
    with RunStore(tmp_path / name) as store:
        keep(store, synthetic_run(1))
        assert list(store.events("synthetic-0")) == synthetic_run(1)
    assert (tmp_path / name).exists()


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        RunStore(path)
    message = str(caught.value)
    assert str(path) in message
    assert "--db" in message
    assert "SPECSCOPE_DB" in message
    return message


def test_a_newer_schema_is_refused(path: Path, sql: Any) -> None:
    open_database(path)
    sql(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
        " VALUES ('specscope', 'm999_later', '')"
    )
    assert "newer SpecScope (its schema has m999_later)" in refusal(path)


def test_a_file_that_is_no_database_is_refused_and_unchanged(path: Path) -> None:
    content = b"This is a letter, not a database. " * 100
    path.write_bytes(content)
    assert "not a database" in refusal(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_unchanged(path: Path, sql: Any) -> None:
    sql("CREATE TABLE conversations (id INTEGER)")
    content = path.read_bytes()
    assert "another program" in refusal(path)
    assert path.read_bytes() == content


def test_a_folder_and_a_path_below_a_file_are_refused(tmp_path: Path) -> None:
    assert "a folder" in refusal(tmp_path)
    (tmp_path / "file").touch()
    assert "cannot be made" in refusal(tmp_path / "file" / "log.db")


def test_an_unwritable_default_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`os.access` is replaced: the test holds for root too."""
    monkeypatch.delenv("SPECSCOPE_DB", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *a, **k: tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StoreError, match=r"cannot be written to; .*--db or SPECSCOPE_DB"):
        RunStore()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_raises_store_error(path: Path, keep: Any) -> None:
    with RunStore(path) as store:
        keep(store, synthetic_run(20))
    damaged = bytearray(path.read_bytes())
    damaged[100:] = b"\xff" * (len(damaged) - 100)
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="log.db"), RunStore(path) as store:
        store.events("synthetic-0")


def test_a_deleted_file_is_an_error_and_is_not_created_again(store: RunStore) -> None:
    for leftover in store.path.parent.iterdir():
        leftover.unlink(missing_ok=True)  # the store may just have removed this file
    with pytest.raises(StoreError, match="unable to open"):
        store.runs(RunQuery())
    assert not store.path.exists()


def test_a_locked_new_file_is_refused(path: Path, sql: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("storage.database.OPEN_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "locked by another program" in refusal(path)


def test_the_migration_counts_only_drafted_tokens_of_fused_runs(
    path: Path, keep: Any, sql: Any
) -> None:
    fused = Mechanisms(routing="cosine", draft="fused")
    with RunStore(path) as store:
        keep(store, synthetic_run(20, mechanisms=fused, hostile=True))
        keep(store, synthetic_run(20, seed=1))
    board = "SELECT * FROM ssm_scoreboard ORDER BY run_id, drafter"
    counted = "SELECT num_tokens FROM drafts ORDER BY run, round, ordinal"
    rows, tokens = sql(board), sql(counted)
    sql("UPDATE drafts SET num_tokens = json_array_length(tokens_json, '$.ranks')")
    assert sql(counted) != tokens
    sql("DELETE FROM _sqlite_migrations WHERE name = 'm019_own_tokens'")
    open_database(path)
    assert (sql(board), sql(counted)) == (rows, tokens)


def test_schedules_of_runs_are_read_from_an_index(path: Path, sql: Any, keep: Any) -> None:
    def with_schedule(events: Iterable[Event], **fields: Any) -> list[Event]:
        part = Scheduled("shared", 1, 1, 0, None, None, 3, 2, 3, 2, 0.5, "", "it pays")
        return [
            replace(event, scheduled=replace(part, **fields))
            if isinstance(event, RoundCompleted) and event.round > 1
            else event
            for event in events
        ]

    with RunStore(path) as store:
        keep(store, synthetic_run(4, seed=1))
        keep(store, with_schedule(synthetic_run(4, seed=2), num_live=3))
        keep(
            store,
            with_schedule(synthetic_run(4, seed=3), schedule="cosine", tokens_per_ms=math.nan),
        )
        store.thin(0)
        results = {
            row.run_id[-1]: (row.schedules, row.num_others) for row in store.runs(RunQuery()).rows
        }
        assert results == {"1": ((), 0), "2": (("shared",), 2), "3": ((), 0)}, "NaN is no JSON"
        assert store.run("synthetic-2").schedules == ("shared",)
    plan = sql(f"EXPLAIN QUERY PLAN {SCHEDULES.replace('?', '1')}")
    assert any("rounds_scheduled" in str(tuple(line)) for line in plan), plan
