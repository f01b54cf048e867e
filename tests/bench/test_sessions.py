"""The `sessions` suite on a small log: the log has the stated size, and every call works."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench import sessions_log
from bench.sessions_log import LogContents, make_log
from bench.suites.sessions import SessionsLog, cases
from bench.timing import time_call
from core.events import Combined, RunStarted
from core.models.loading.load import LoadedModels
from storage import RunQuery, RunStore
from ui.run.view import reduce_all

WORDS = ("old", "mill,", "river")
SMALL_SUITE = SessionsLog(runs=120, nodes=14_000)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, family: LoadedModels) -> tuple[Path, LogContents]:
    path = tmp_path_factory.mktemp("log") / "log.db"
    return path, make_log(path, family, 120, 14_000, WORDS)


def test_the_log_has_the_stated_numbers_of_rows(log: tuple[Path, LogContents]) -> None:
    path, made = log
    with closing(sqlite3.connect(path)) as connection:

        def count(what: str) -> int:
            return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])

        assert count("runs") == made.runs == 120
        assert count("nodes") == made.nodes >= 14_000
        tables = ["rounds", "drafts", "nodes", "proposals", "trials", "top_k", "tokens", "spans"]
        assert sum(map(count, tables)) == made.rows
        assert count("pragma_foreign_key_check") == 0
        assert count("runs WHERE prompt NOT LIKE 'SYNTHETIC%'") == 0


def test_runs_of_the_log_are_complete_when_read(log: tuple[Path, LogContents]) -> None:
    path, made = log
    with closing(sqlite3.connect(path)) as connection:
        query = (
            "SELECT runs.run_id, count(*) FROM nodes JOIN runs ON runs.id = nodes.run GROUP BY 1"
        )
        nodes = dict(connection.execute(query).fetchall())
    with RunStore(path) as store:
        assert store.runs(RunQuery()).total == 120
        for run_id in (*made.usual[:3], made.large[0]):
            events = store.events(run_id)
            start = events[0]
            assert isinstance(start, RunStarted)
            assert "SYNTHETIC" in start.warnings[0]
            view = reduce_all(events)
            assert view.state == "completed" or store.run(run_id).status == "cancelled"
            assert len(view.rounds) == store.run(run_id).num_rounds
            trees = [len(e.token_ids) for e in events if isinstance(e, Combined)]
            assert sum(trees) == nodes[run_id] and max(trees) > 12
        assert {len(reduce_all(store.events(r)).rounds) for r in made.usual} <= set(range(16, 25))


def test_too_many_nodes_are_refused(
    tmp_path: Path, family: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_log, "ROUND_COUNTS", (2, 4))  # 500 rounds take long to make
    with pytest.raises(ValueError, match="nodes do not fit into 2 runs"):
        make_log(tmp_path / "log.db", family, 2, 100_000, WORDS)


@pytest.mark.nightly
def test_every_call_is_measured_once_a_repeat_and_reported(
    make_context: Any, log: tuple[Path, LogContents], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[LogContents] = []

    def make_same_log(path: Path, models: LoadedModels, runs: int, nodes: int, _: Any) -> Any:
        made.append(make_log(path, models, runs, nodes, WORDS))
        return made[-1]

    monkeypatch.setattr("bench.suites.sessions.make_log", make_same_log)
    context, timed = make_context(repeats=2), 0

    def interrupted(call: Any) -> Any:
        nonlocal timed
        timed += 1
        if timed == 12:
            raise KeyboardInterrupt
        return time_call(call)

    with monkeypatch.context() as patch:
        patch.setattr("bench.suites.sessions.time_call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SMALL_SUITE.measure(context)
    assert len(context.results.samples) == 11, "the log and ten calls"
    SMALL_SUITE.measure(context)
    assert made == [log[1]] * 2, "the same arguments make the same log"
    counted = {case.name: 0 for case in cases()}
    for sample in context.results.samples:
        if sample["case"] != "made":
            counted[sample["case"]] += 1
            assert sample["ms"] > 0
    assert set(counted.values()) == {2}
    before = len(context.results.samples)
    SMALL_SUITE.measure(context)
    assert len(context.results.samples) == before, "nothing is measured twice"
    report = SMALL_SUITE.report(context)
    together = "\n".join(report.tables)
    for case in cases():
        assert f"| {case.name} |" in together
    assert "SYNTHETIC" in together


def test_a_call_that_takes_too_long_is_a_failure(make_context: Any) -> None:
    context = make_context()
    case = next(c for c in cases() if c.limit_ms == 50)
    for repeat, ms in enumerate((10.0, 60.0, 70.0)):
        context.results.add({"case": case.name, "repeat": repeat, "ms": ms, "found": 1})
    assert SMALL_SUITE.report(context).failures == (f"{case.name}: 60.0 ms, 50 ms are allowed",)
