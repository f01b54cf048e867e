"""Datasette's command and its metadata.yaml."""

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

DESCRIPTION = yaml.safe_load(METADATA.read_text(encoding="utf-8"))["databases"]["specscope"]
OF_A_RUN = [name for name in DESCRIPTION["queries"] if name.endswith("_of_a_run")]


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


def run_query(store: RunStore, name: str, **values: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        defaults = {"run_id": "synthetic-3", "study_id": "s", "prompt": "SYNTHETIC prompt 3"}
        sql = DESCRIPTION["queries"][name]["sql"]
        return [dict(row) for row in connection.execute(sql, {**defaults, **values})]


@pytest.mark.parametrize("name", DESCRIPTION["queries"])
def test_every_query_returns_rows(full_store: RunStore, name: str) -> None:
    rows = run_query(full_store, name)
    assert rows
    assert DESCRIPTION["queries"][name]["title"]


def test_the_figures_of_a_study_are_those_of_its_runs(full_store: RunStore) -> None:
    (row,) = run_query(full_store, "cells_of_a_study")
    assert row["configuration"] == "length 4" and row["tokens_per_second"] == 70.0
    assert row["run_id"] == "synthetic-2"


@pytest.mark.parametrize("name", OF_A_RUN)
def test_queries_of_a_run_return_only_that_run(full_store: RunStore, name: str) -> None:
    assert run_query(full_store, name, run_id="nobody") == []
    assert run_query(full_store, name, run_id="' OR 1=1 --") == []


@pytest.mark.parametrize("run_id", ["synthetic-0", "synthetic-3"], ids=["thinned", "whole"])
def test_queries_of_a_run_agree_with_the_views(full_store: RunStore, run_id: str) -> None:
    result = run_query(full_store, "acceptance_of_a_run", run_id=run_id)
    views = view(full_store.path, "acceptance_by_position", run_id)
    assert [r["num_accepted"] for r in result] == [r["num_accepted"] for r in views]
    board = {r["drafter"]: r for r in view(full_store.path, "ssm_scoreboard", run_id)}
    rows = run_query(full_store, "drafters_of_a_run", run_id=run_id)
    assert {row["drafter"] for row in rows} == set(DRAFTERS)
    for row in rows:
        for name in ("num_drafted_tokens", "num_nodes", "num_accepted"):
            assert row[name] == board[row["drafter"]][name]


def test_rounds_are_counted_from_1(full_store: RunStore) -> None:
    assert [row["round"] for row in run_query(full_store, "rounds_of_a_run")] == list(range(1, 13))


def test_lists_are_in_order_and_find_prompts_and_notes(full_store: RunStore) -> None:
    speeds = [row["tokens_per_second"] for row in run_query(full_store, "fastest_runs")]
    assert speeds == sorted(speeds, reverse=True)
    assert [row["run_id"] for row in run_query(full_store, "runs_of_a_prompt")] == ["synthetic-3"]
    assert [row["note"] for row in run_query(full_store, "noted_runs")] == ["a note"]


def test_every_named_table_and_column_exists(full_store: RunStore) -> None:
    with closing(sqlite3.connect(full_store.path)) as connection:
        for table, description in DESCRIPTION["tables"].items():
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            assert columns, f"there is no {table}"
            named = {*description.get("facets", ()), *description.get("columns", ())}
            named |= {
                description[k]
                for k in ("sort", "sort_desc", "label_column", "fts_pk")
                if k in description
            }
            assert named <= columns, table


def test_the_command_for_the_usual_name(tmp_path: Path) -> None:
    path = tmp_path / "with blank" / "specscope.db"
    command = datasette_command(path)
    assert command == f"uvx datasette '{path}' -m {METADATA}"


@pytest.mark.parametrize("name", ["my log", 'a "log": # 1', "log \U0001f600", "l\u00f6g"])
def test_a_log_of_another_name_gets_a_description_of_its_own(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.db"
    command = datasette_command(path)
    described = tmp_path / f"{name}.metadata.yaml"
    assert command == f"uvx datasette '{path}' -m '{described}'"
    result = yaml.safe_load(described.read_text(encoding="utf-8"))
    assert result["databases"] == {name: DESCRIPTION}
    before = described.stat().st_mtime_ns
    datasette_command(path)
    assert described.stat().st_mtime_ns == before


def test_an_incomplete_description_is_rewritten(tmp_path: Path) -> None:
    path, described = tmp_path / "log.db", tmp_path / "log.metadata.yaml"
    datasette_command(path)
    complete = described.read_text(encoding="utf-8")
    described.write_text(complete[:200], encoding="utf-8")
    datasette_command(path)
    assert described.read_text(encoding="utf-8") == complete


@pytest.mark.parametrize(
    "content", [b"", b"title: my own\n", b"\xff no text", METADATA.read_bytes()]
)
def test_files_of_other_programs_are_not_overwritten(tmp_path: Path, content: bytes) -> None:
    path, first = tmp_path / "log.db", tmp_path / "log.metadata.yaml"
    first.write_bytes(content)
    other = tmp_path / "log.specscope.metadata.yaml"
    assert datasette_command(path) == f"uvx datasette {path} -m {other}"
    assert first.read_bytes() == content
    assert yaml.safe_load(other.read_text(encoding="utf-8"))["databases"]["log"] == DESCRIPTION
    other.write_bytes(content)
    assert datasette_command(path) == f"uvx datasette {path}", "neither name is free"
    assert other.read_bytes() == content


def test_without_a_writable_folder_the_command_has_no_description(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "log.db"
    assert datasette_command(path) == f"uvx datasette '{path}'"
