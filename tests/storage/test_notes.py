"""Notes, plain decoding's speeds and regrets of runs; lists of runs."""

import dataclasses
import gzip
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.events import Event
from storage import NO_DRAFTER, ORDERS, PlainSpeed, RunChoices, RunQuery, RunStore
from storage.database import read_connection
from storage.selection import _where
from storage.store import MAX_NOTE
from tests.logs import log_at
from tests.storage.test_queries import ids
from tests.storage.trouble import hold_write_lock, record_quickly
from tests.synthetic import DRAFTERS, HOSTILE_TEXTS, synthetic_run

OLDER = Path(__file__).parent / "older" / "m004.db.gz"


def test_a_note_is_kept_found_and_changed(store: RunStore, keep: Any) -> None:
    keep(store, synthetic_run(2, seed=1))
    keep(store, synthetic_run(2, seed=2))
    assert store.run("synthetic-1").note == ""
    store.annotate("synthetic-1", "For the lecture: 狐狸, acceptance is HIGH")
    assert store.run("synthetic-1").note == "For the lecture: 狐狸, acceptance is HIGH"
    for text in ("lecture", "high accept", "狸", "synthetic lecture"):
        assert ids(store, text=text) == ["synthetic-1"], text
    assert ids(store, noted=True) == ["synthetic-1"]
    store.annotate("synthetic-1", "quite another")
    assert ids(store, text="lecture") == []
    assert ids(store, text="another") == ["synthetic-1"]
    store.annotate("synthetic-1", "")
    assert ids(store, text="another") == ids(store, noted=True) == []
    assert list(store.events("synthetic-1")) == synthetic_run(2, seed=1)


def test_any_text_is_a_note(store: RunStore, keep: Any) -> None:
    for note in (*HOSTILE_TEXTS, "\udce9", "x" * MAX_NOTE):
        keep(store, synthetic_run(1, seed=1))
        store.annotate("synthetic-1", note)
        assert store.run("synthetic-1").note == note
        assert store.runs(RunQuery(noted=True)).rows[0].note == note
        store.delete("synthetic-1")


@pytest.mark.parametrize("note", ["x" * (MAX_NOTE + 1), None, 7, b"note"])
def test_a_value_that_is_no_note_is_refused(store: RunStore, keep: Any, note: Any) -> None:
    keep(store, synthetic_run(1, seed=1))
    with pytest.raises(ConfigError, match="note is .*a text of at most 4000 characters"):
        store.annotate("synthetic-1", note)
    assert store.run("synthetic-1").note == ""


def test_a_running_run_can_get_a_note(store: RunStore, keep: Any) -> None:
    events = synthetic_run(4, seed=1)
    keep(store, events[:5])
    store.annotate("synthetic-1", "while it ran")
    keep(store, events[5:])
    assert store.run("synthetic-1").note == "while it ran"
    assert list(store.events("synthetic-1")) == events
    assert ids(store, text="while") == ["synthetic-1"]


def test_a_deleted_runs_note_is_in_no_file(store: RunStore, keep: Any, path: Path) -> None:
    keep(store, synthetic_run(1, seed=1))
    keep(store, synthetic_run(1, seed=2))
    store.annotate("synthetic-1", "the word is xylophone")
    store.delete("synthetic-1")
    together = b"".join(file.read_bytes() for file in path.parent.glob("log.db*"))
    assert b"xylophone" not in together


def test_the_search_index_changes_only_with_texts(store: RunStore, keep: Any, sql: Any) -> None:
    keep(store, synthetic_run(2, seed=1))
    before = sql("SELECT * FROM runs_fts_data")
    sql("UPDATE runs SET thinned = 1, status = 'failed'")
    assert sql("SELECT * FROM runs_fts_data") == before
    sql("UPDATE runs SET output = 'new'")
    assert sql("SELECT * FROM runs_fts_data") != before


def run_of(seed: int, created: str, drafters: tuple[str, ...], llm: str) -> list[Event]:
    first, *rest = synthetic_run(2 + seed, seed=seed, drafters=drafters)
    models = (dataclasses.replace(first.models[0], name=llm), *first.models[1:])
    return [dataclasses.replace(first, created_utc=created, models=models), *rest]


@pytest.fixture(scope="module")
def four_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with RunStore(log_at(tmp_path_factory.mktemp("four_runs") / "log.db")) as store:
        for seed, created, drafters, llm in (
            (0, "2026-01-01T00:00:00.000+00:00", DRAFTERS, "big"),
            (1, "2026-01-02T12:00:00.500+00:00", ("ngram",), "big"),
            (2, "2026-01-02T12:00:01+00:00", (), "small \udce9"),
            (3, "2026-01-03T23:59:59.999+00:00", ("ngram", "ssm-code"), "small \udce9"),
        ):
            for event in run_of(seed, created, drafters, llm):
                store.record(event, owner=f"visitor-{seed % 2}")
        assert store.flush()
        yield store


@pytest.mark.parametrize(
    ("filters", "results"),
    [
        ({"llm": "big"}, [1, 0]),
        ({"llm": "small \udce9"}, [3, 2]),
        ({"llm": "bi"}, []),
        ({"drafter": "ngram"}, [3, 1]),
        ({"drafter": "ssm-code"}, [3, 0]),
        ({"drafter": "ssm-code", "llm": "big"}, [0]),
        ({"drafter": NO_DRAFTER}, [2]),
        ({"drafter": "' OR 1=1 --"}, []),
        ({"since_utc": "2026-01-02"}, [3, 2, 1]),
        ({"since_utc": "2026-01-02T12:00:01"}, [3, 2]),
        ({"until_utc": "2026-01-02T12:00:00.5"}, [0]),
        ({"until_utc": "2026-01-02T12:00:01"}, [1, 0]),
        ({"since_utc": "2026-01-02T14:00:01+02:00", "until_utc": "2026-01-03"}, [2]),
        ({"since_utc": "2026-01-02", "owner": "visitor-1", "order": "oldest"}, [1, 3]),
        ({"text": "synthetic", "drafter": "ngram", "status": "completed"}, [3, 1]),
        ({"noted": True}, []),
        ({"order": "passes"}, [0, 1, 2, 3]),
        ({"order": "passes", "drafter": "ngram"}, [1, 3]),
    ],
)
def test_filters(four_runs: RunStore, filters: dict[str, Any], results: list[int]) -> None:
    assert ids(four_runs, **filters) == [f"synthetic-{seed}" for seed in results]
    assert four_runs.runs(RunQuery(**filters)).total == len(results)


def test_the_choices_are_the_names_that_runs_have(four_runs: RunStore, store: RunStore) -> None:
    assert four_runs.choices() == RunChoices(("big", "small \udce9"), ("ngram", *sorted(DRAFTERS)))
    assert store.choices() == RunChoices((), ())


def test_fewest_passes_come_first_and_runs_without_figures_last(store: RunStore, keep: Any) -> None:
    for seed, (rounds, end) in enumerate(
        [(5, "completed"), (3, "cut"), (2, "failed"), (5, "completed")]
    ):
        keep(store, synthetic_run(rounds, seed=seed, end=end))
    assert ids(store, order="passes") == [f"synthetic-{seed}" for seed in (2, 3, 0, 1)]


def test_runs_of_an_older_log_are_found_and_sorted_too(path: Path) -> None:
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))
    with RunStore(path) as store:
        rows = store.runs(RunQuery()).rows
        for row in rows:
            assert row.run_id in ids(store, llm=row.llm)
            for drafter in row.drafters or (NO_DRAFTER,):
                assert row.run_id in ids(store, drafter=drafter)
        for order, figure in (
            ("fastest", "tokens_per_second"),
            ("longest", "num_new_tokens"),
            ("acceptance", "mean_acceptance_length"),
        ):
            values = [
                getattr(row.stats, figure)
                for row in store.runs(RunQuery(order=order)).rows
                if row.stats
            ]
            assert values == sorted(values, reverse=True)
            assert len(values) > 1
        store.annotate(rows[0].run_id, "found again")
        assert ids(store, text="again") == [rows[0].run_id]


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_reads_its_order_from_an_index(store: RunStore, order: str) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        query = f"EXPLAIN QUERY PLAN SELECT id FROM runs ORDER BY {ORDERS[order]} LIMIT 9, 9"
        plan = [row[3] for row in connection.execute(query)]
    assert "COVERING INDEX" in plan[0]
    expected = ["USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"] if order == "passes" else []
    assert plan[1:] == expected


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "passes"])
def test_filtered_lists_are_read_in_order_from_covering_indexes(
    four_runs: RunStore, order: str
) -> None:
    queries: tuple[dict[str, Any], ...] = (
        {"owner": "visitor-1"},
        {"status": "completed"},
        {"llm": "big"},
        {"drafter": "ngram"},
        {"since_utc": "2026-01-02", "until_utc": "2026-01-03"},
        {"noted": True},
        {"text": "synthetic"},
        {"text": "狐", "owner": "visitor-1", "llm": "big", "status": "completed"},
    )
    for query in queries:
        with read_connection(four_runs.path) as connection:
            where, values = _where(connection, RunQuery(**query, order=order))
            select = f"SELECT id FROM runs WHERE {where} ORDER BY {ORDERS[order]} LIMIT 9"
            result = connection.execute(f"EXPLAIN QUERY PLAN {select}", values)
            plan = [row["detail"] for row in result]
            assert "runs USING COVERING INDEX" in plan[0], (query, plan)
            assert not [step for step in plan if "TEMP B-TREE" in step], (query, plan)


RATES = (1 / 3, 17.0, 1e-300, 1.7e308, 100 / 7)


@pytest.mark.parametrize("rate", RATES)
def test_a_plain_speed_is_read_back_exactly(path: Path, keep: Any, rate: float) -> None:
    with RunStore(path) as store:
        keep(store, synthetic_run(2, seed=1))
        assert store.run("synthetic-1").baseline is None
        expected = PlainSpeed(rate, "plain", "note", ((rate, 1 / 7), (2.0, rate)), same_text=True)
        store.keep_baseline("synthetic-1", rate, "plain", "note", expected.blocks, True)
    with RunStore(path) as store:
        assert store.run("synthetic-1").baseline == expected
        assert store.runs(RunQuery()).rows[0].baseline == expected
        assert list(store.events("synthetic-1")) == synthetic_run(2, seed=1)


def test_a_plain_speed_may_be_stored_at_any_time_of_the_run(store: RunStore, keep: Any) -> None:
    first, *rest = synthetic_run(3, seed=1)
    store.record(first)
    store.keep_baseline("synthetic-1", 1.0, "before", "")
    assert store.run("synthetic-1").baseline == PlainSpeed(1.0, "before", "")
    keep(store, rest)
    assert store.run("synthetic-1").baseline == PlainSpeed(1.0, "before", "")
    store.keep_baseline("synthetic-1", 2.0, "after", "")
    assert store.run("synthetic-1").baseline == PlainSpeed(2.0, "after", "")
    assert store.run("synthetic-1").num_lost_events == 0 and store.status().dropped == 0


def test_a_plain_speed_is_deleted_only_with_the_run_that_has_it(store: RunStore, keep: Any):
    keep(store, synthetic_run(2, seed=1))
    keep(store, synthetic_run(2, seed=2))
    store.keep_baseline("synthetic-1", 3.0, "synthetic-2", "")
    store.keep_baseline("nosuch", 3.0, "synthetic-2", "")
    store.delete("synthetic-2")
    assert store.run("synthetic-1").baseline == PlainSpeed(3.0, "synthetic-2", "")
    store.delete("synthetic-1")
    store.keep_baseline("synthetic-1", 3.0, "synthetic-2", "")
    assert store.flush() and store.runs(RunQuery()).total == 0


def test_a_plain_speed_waits_while_the_log_is_paused(store: RunStore) -> None:
    events: list[Event] = synthetic_run(2, seed=1)
    with hold_write_lock(store.path):
        record_quickly(store, events)
        store.keep_baseline("synthetic-1", 5.0, "plain", "")
    assert store.flush(20.0)
    assert store.run("synthetic-1").baseline == PlainSpeed(5.0, "plain", "")


REGRET = {"depth": 3, "group": None, "alone": [{"drafters": ["a", "\udce9"], "passes": 7}]}


def test_a_regret_is_read_back_and_deleted_with_its_run(path: Path, keep: Any) -> None:
    with RunStore(path) as store:
        keep(store, synthetic_run(2, seed=1))
        keep(store, synthetic_run(2, seed=2))
        assert store.run("synthetic-1").regret is None
        store.keep_regret("synthetic-1", {**REGRET, "depth": 2})
        store.keep_regret("synthetic-1", REGRET)
        store.keep_regret("nosuch", REGRET)
    with RunStore(path) as store:
        assert store.run("synthetic-1").regret == REGRET
        assert store.run("synthetic-2").regret is None
        assert list(store.events("synthetic-1")) == synthetic_run(2, seed=1)
        store.delete("synthetic-1")
        store.keep_regret("synthetic-1", REGRET)
        assert store.flush() and store.status().dropped == 0


@pytest.mark.parametrize("note", [*HOSTILE_TEXTS, "\udce9"], ids=range(15))
def test_a_plain_speed_may_have_any_text(store: RunStore, keep: Any, note: str) -> None:
    keep(store, synthetic_run(1, seed=1))
    store.keep_baseline("synthetic-1", 1.0, note, note)
    assert store.run("synthetic-1").baseline == PlainSpeed(1.0, note, note)


def test_a_speed_that_is_no_number_is_none(store: RunStore, keep: Any) -> None:
    keep(store, synthetic_run(1, seed=1))
    store.keep_baseline("synthetic-1", math.nan, "plain", "")
    assert store.run("synthetic-1").baseline is None
