"""metadata.yaml: what it says of a log is true, and every query of it runs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from storage import RunStore
from storage.datasette import METADATA, datasette_command
from tests.storage.test_views import view
from tests.storage.trouble import record
from tests.synthetic import DRAFTERS, synthetic_run

TOLD = yaml.safe_load(METADATA.read_text(encoding="utf-8"))["databases"]["specscope"]
OF_A_RUN = [name for name in TOLD["queries"] if name.endswith("_of_a_run")]


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with RunStore(tmp_path_factory.mktemp("filled") / "log.db") as store:
        for seed in range(4):
            record(store, synthetic_run(12, seed=seed, hostile=seed == 1))
        store.annotate("synthetic-2", "a note")
        study = {"study_id": "s", "kind": "tune", "title": "a grid", "created_utc": "2026-01-01"}
        store.studies.save(study, 1)
        result = {"run_id": "synthetic-2", "stats": {"tokens_per_second": 70.04}}
        store.studies.keep("s", ("length 4", "1", 0), result)
        assert store.flush()
        assert store.thin(3) == 1
        yield store


def ask(store: RunStore, name: str, **values: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        asked = {"run_id": "synthetic-3", "study_id": "s", "prompt": "SYNTHETIC prompt 3", **values}
        sql = TOLD["queries"][name]["sql"]
        return [dict(row) for row in connection.execute(sql, asked)]


@pytest.mark.parametrize("name", TOLD["queries"])
def test_every_query_finds_something(full_store: RunStore, name: str) -> None:
    rows = ask(full_store, name)
    assert rows
    assert TOLD["queries"][name]["title"]


def test_the_figures_of_a_study_are_those_of_its_runs(full_store: RunStore) -> None:
    (row,) = ask(full_store, "cells_of_a_study")
    assert row["configuration"] == "length 4" and row["tokens_per_second"] == 70.0
    assert row["run_id"] == "synthetic-2"


@pytest.mark.parametrize("name", OF_A_RUN)
def test_what_is_asked_of_a_run_is_that_runs_alone(full_store: RunStore, name: str) -> None:
    assert ask(full_store, name, run_id="nobody") == []
    assert ask(full_store, name, run_id="' OR 1=1 --") == []


@pytest.mark.parametrize("run_id", ["synthetic-0", "synthetic-3"], ids=["thinned", "whole"])
def test_the_queries_of_a_run_tell_what_the_views_tell(full_store: RunStore, run_id: str) -> None:
    result = ask(full_store, "acceptance_of_a_run", run_id=run_id)
    views = view(full_store.path, "acceptance_by_position", run_id)
    assert [r["num_accepted"] for r in result] == [r["num_accepted"] for r in views]
    board = {r["drafter"]: r for r in view(full_store.path, "ssm_scoreboard", run_id)}
    rows = ask(full_store, "drafters_of_a_run", run_id=run_id)
    assert {row["drafter"] for row in rows} == set(DRAFTERS)
    for row in rows:
        for name in ("num_drafted_tokens", "num_nodes", "num_accepted"):
            assert row[name] == board[row["drafter"]][name]


def test_rounds_are_reported_as_people_count_them(full_store: RunStore) -> None:
    assert [row["round"] for row in ask(full_store, "rounds_of_a_run")] == list(range(1, 13))


def test_orders_and_names(full_store: RunStore) -> None:
    speeds = [row["tokens_per_second"] for row in ask(full_store, "fastest_runs")]
    assert speeds == sorted(speeds, reverse=True)
    assert [row["run_id"] for row in ask(full_store, "runs_of_a_prompt")] == ["synthetic-3"]
    assert [row["note"] for row in ask(full_store, "noted_runs")] == ["a note"]


def test_all_it_names_is_there(full_store: RunStore) -> None:
    with closing(sqlite3.connect(full_store.path)) as connection:
        for table, told in TOLD["tables"].items():
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            assert columns, f"there is no {table}"
            named = {*told.get("facets", ()), *told.get("columns", ())}
            named |= {told[k] for k in ("sort", "sort_desc", "label_column", "fts_pk") if k in told}
            assert named <= columns, table


def test_the_command_for_the_usual_name(tmp_path: Path) -> None:
    path = tmp_path / "with blank" / "specscope.db"
    command = datasette_command(path)
    assert command == f"uvx datasette '{path}' -m {METADATA}"


def test_a_log_of_another_name_gets_a_description_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "my log.db"
    command = datasette_command(path)
    described = tmp_path / "my log.metadata.yaml"
    assert command == f"uvx datasette '{path}' -m '{described}'"
    result = yaml.safe_load(described.read_text(encoding="utf-8"))
    assert list(result["databases"]) == ["my log"]
    assert result["databases"]["my log"] == TOLD
    before = described.stat().st_mtime_ns
    datasette_command(path)
    assert described.stat().st_mtime_ns == before


def test_a_description_that_is_older_is_written_anew(tmp_path: Path) -> None:
    path, described = tmp_path / "log.db", tmp_path / "log.metadata.yaml"
    datasette_command(path)
    whole = described.read_text(encoding="utf-8")
    described.write_text(whole[:200], encoding="utf-8")
    datasette_command(path)
    assert described.read_text(encoding="utf-8") == whole


@pytest.mark.parametrize("mine", [b"", b"title: my own\n", b"\xff no text", METADATA.read_bytes()])
def test_no_file_of_somebody_elses_is_written_over(tmp_path: Path, mine: bytes) -> None:
    path, own = tmp_path / "log.db", tmp_path / "log.metadata.yaml"
    own.write_bytes(mine)
    other = tmp_path / "log.specscope.metadata.yaml"
    assert datasette_command(path) == f"uvx datasette {path} -m {other}"
    assert own.read_bytes() == mine
    assert yaml.safe_load(other.read_text(encoding="utf-8"))["databases"]["log"] == TOLD
    other.write_bytes(mine)
    assert datasette_command(path) == f"uvx datasette {path}", "neither name is free"
    assert other.read_bytes() == mine


def test_where_nothing_can_be_written_the_command_does_without(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "log.db"
    assert datasette_command(path) == f"uvx datasette '{path}'"
