"""Law 6: JSON and the database give back a run's events, and a replay gives the live view."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core import Request, SamplingParams, SpeculationConfig
from core.engine.run_events import run_cancelled, run_failed
from core.errors import SpecScopeError
from core.events import (
    Ahead,
    Event,
    OffloadInfo,
    RanksInfo,
    RankTraffic,
    RoundCompleted,
    RunCompleted,
    RunStarted,
    Span,
    event_from_plain,
    event_to_plain,
)
from core.sequence import TokenSequence
from storage import RunStore
from tests.core.remote_ssms.served import engine_over
from tests.laws.runs import bundled_engine, prompts
from tests.logs import log_at
from tests.synthetic import Mechanisms, synthetic_run
from ui.run.view import View, reduce_all

pytestmark = pytest.mark.usefixtures("bundled")
RUNS: dict[str, tuple[SamplingParams, dict[str, Any]]] = {
    "routed": (SamplingParams(16), {"routing": "credit"}),
    "fused": (SamplingParams(16), {"draft": "fused", "routing": "cosine"}),
    "union": (SamplingParams(max_new_tokens=16), {"record_top_k": 3}),
    "coupled": (SamplingParams(max_new_tokens=16, temperature=0.8, seed=1), {"record_top_k": 3}),
    "mss": (
        SamplingParams(max_new_tokens=16, temperature=0.8, seed=2),
        {"draft": "sampled", "verify": "mss", "record_top_k": 2},
    ),
    "traversal": (
        SamplingParams(max_new_tokens=16, temperature=0.8, seed=3),
        {"draft": "sampled_iid", "verify": "traversal", "expansion": (2, 1, 1)},
    ),
    "vote": (
        SamplingParams(max_new_tokens=16),
        {"combine": "vote", "weights": "paper", "length": "confidence"},
    ),
    "stopped": (SamplingParams(max_new_tokens=16, stop=("a",)), {}),
    "plain": (SamplingParams(max_new_tokens=4), {"drafters": ()}),
}
CUT_OFF = {
    "cancelled": run_cancelled,
    "failed": lambda sequence: run_failed(sequence, RuntimeError("the device went away")),
}

# These columns are not part of an event. A round's `thinned` has its own control.
REPEATED = {
    "runs": {
        *("output", "owner", "host", "pid", "process_start", "num_lost_events", "note"),
        *("baseline_run_id", "baseline_tokens_per_second", "baseline_note"),
        *("baseline_blocks_json", "baseline_same_text", "regret_json"),
        *("llm", "num_rounds", "num_new_tokens", "tokens_per_second", "mean_acceptance_length"),
    },
    "rounds": {"num_nodes", "tree_depth", "num_new_tokens", "thinned"},
    "drafts": {"num_tokens", "num_nodes", "num_scored", "sum_scores"},
    "tokens": {"source", "position"},
}
# Fixed: `max_tree_nodes=auto` depends on the machine.
NODES: dict[str, Any] = {"max_tree_nodes": 12}
NAMES = (*RUNS, *CUT_OFF, "ahead", "scheduled", "offloaded", "nodes", "ranks")
ORDER = ("ordinal", "round", "node", "position")
FLAGS = ("accepted", "drafted_ahead", "thinned")
TABLES = (
    *("runs", "run_models", "models", "rounds", "drafts", "top_k"),
    *("nodes", "proposals", "trials", "tokens", "spans"),
)


@cache
def events_of(name: str) -> tuple[Event, ...]:
    if name in CUT_OFF:
        return tuple(cut_off(CUT_OFF[name]))
    if name == "ahead":
        # In a real run, hits, misses and switches would depend on measured times.
        return tuple(synthetic_run(8, seed=5, mechanisms=Mechanisms(pipeline="auto")))
    if name == "scheduled":
        return schedule_run()
    if name == "offloaded":
        return offload_run()
    if name == "nodes":
        return over_nodes()
    if name == "ranks":
        return over_ranks()
    sampling, fields = RUNS[name]
    request = Request(prompts(8)[3], sampling, SpeculationConfig(**{**NODES, **fields}))
    *events, last = bundled_engine().generate(request)
    assert isinstance(last, RunCompleted)
    # No text here ends within a character, so the test sets the tail.
    return (*events, replace(last, text_tail="\ufffd") if name == "plain" else last)


def offload_run() -> tuple[Event, ...]:
    info = OffloadInfo("disk", 2, 1_000_000, 3_000_000, 12_000_000, 200.0)
    loads = (Span("layers", "load", 1.0, 2.5), Span("layers", "load", 2.5, 4.0))
    return tuple(
        replace(event, offload=info)
        if isinstance(event, RunStarted)
        else replace(event, loads=loads)
        if isinstance(event, RoundCompleted)
        else event
        for event in events_of("union")
    )


def over_nodes() -> tuple[Event, ...]:
    models = bundled_engine().models
    first, *others = models.ssms
    engine, transport = engine_over(models, [[first], others])
    events = []
    sampling = SamplingParams(24, temperature=0.8, seed=1)
    for event in engine.generate(Request(prompts(8)[3], sampling, SpeculationConfig(**NODES))):
        events.append(event)
        if isinstance(event, RoundCompleted) and event.round == 2:
            transport.kill(0)
    return tuple(events)


def over_ranks() -> tuple[Event, ...]:
    info = RanksInfo("tp", (7_000_000, 7_000_004))
    traffic = tuple(RankTraffic(rank, 33, 40_960, 3.5 + rank) for rank in range(2))
    return tuple(
        replace(event, ranks=info)
        if isinstance(event, RunStarted)
        else replace(event, traffic=traffic)
        if isinstance(event, RoundCompleted)
        else event
        for event in events_of("union")
    )


def schedule_run() -> tuple[Event, ...]:
    engine = bundled_engine()
    requests = [Request(p, SamplingParams(24), SpeculationConfig(**NODES)) for p in prompts(2)]
    before, engine.schedule = engine.schedule, "shared"
    try:
        events = list(engine.generate_many(requests))
    finally:
        engine.schedule = before
    return tuple(event for event in events if event.run_id == events[0].run_id)


def cut_off(end: Callable[[TokenSequence], Event]) -> list[Event]:
    sampling = SamplingParams(max_new_tokens=32)
    engine = bundled_engine()
    sequence = engine.prepare(Request(prompts(8)[5], sampling, SpeculationConfig(**NODES)))
    live = engine.admit(sequence)
    try:
        events: list[Event] = [engine.run_started_event(live)]
        list(engine.prefill(live))
        for _ in range(3):
            events += engine.round([live])
    finally:
        engine.release(live)
    return [*events, end(sequence)]


def record(path: Path, events: tuple[Event, ...]) -> list[Event]:
    with RunStore(log_at(path)) as store:
        for event in events:
            store.record(event, "visitor")
        assert store.flush()
        return list(store.events(events[0].run_id))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests do not change the databases in this folder."""
    return tmp_path_factory.mktemp("runs")


def database(folder: Path, name: str) -> Path:
    path = folder / f"{name}.db"
    if not path.exists():
        assert record(path, events_of(name))
    return path


def read(path: Path, run_id: str) -> list[Event]:
    with RunStore(path) as store:
        return list(store.events(run_id))


@pytest.mark.parametrize("name", NAMES)
def test_real_runs_come_back_from_json_and_the_database(name: str, folder: Path) -> None:
    events = events_of(name)
    assert [e for e in events if isinstance(e, RoundCompleted)]
    assert read(database(folder, name), events[0].run_id) == list(events)
    texts = [json.dumps(event_to_plain(event)) for event in events]
    assert [event_from_plain(json.loads(text)) for text in texts] == list(events)


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_of_real_runs_gives_the_live_view(name: str, folder: Path) -> None:
    events, live = events_of(name), View()
    for event in events:
        live = reduce_all([event], live)
    assert reduce_all(read(database(folder, name), events[0].run_id)) == live


def other_value(value: Any, column: str) -> Any:
    if column.endswith("_json"):
        return json.dumps(other(json.loads(value)))
    if isinstance(value, str):
        return {"completed": "cancelled"}.get(value, value + "x")
    # The row with the largest value becomes the first: a change of order must be noticed.
    if column in ORDER:
        return -value - 7
    return 1 - value if column in FLAGS else value + 1


def other(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: other(inner) for key, inner in value.items()} or {"x": 1}
    if isinstance(value, list):
        return [*map(other, value[:-1]), *value[-1:], *value[-1:]] or [[0, "x"]]
    return f"{value}x" if isinstance(value, str) else (value or 0) + 1


def columns(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]


def change_one(path: Path, table: str, column: str) -> bool:
    """Returns False if the column is empty in all rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        result = connection.execute(
            f"SELECT * FROM {table} WHERE {column} != '' ORDER BY {column} DESC LIMIT 1"
        )
        names = [entry[0] for entry in result.description]
        row = result.fetchone()
        if row is None:
            return False
        old = dict(zip(names, row, strict=True))
        where = " AND ".join(f"{name} IS ?" for name in names)
        new = other_value(old[column], column)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", [new, *row])
    return True


def reads_back(path: Path, events: tuple[Event, ...]) -> bool:
    try:
        with RunStore(path) as store:
            return list(store.events(events[0].run_id)) == list(events)
    except (SpecScopeError, ValueError, LookupError, TypeError):
        return False


@pytest.fixture(scope="module")
def databases(folder: Path) -> dict[Path, tuple[Event, ...]]:
    """The last database's run is thinned."""
    paths = {database(folder, name): events_of(name) for name in NAMES}
    thin = folder / "thin.db"
    newest, events = events_of("coupled"), events_of("union")
    record(thin, events)
    record(thin, newest)
    with RunStore(thin) as store:
        assert store.thin(1) == 1
        store.delete(newest[0].run_id)
        store.annotate(events[0].run_id, "seen in the lecture")
        store.keep_baseline(events[0].run_id, 50.0, "another", "plain decoding", ((50.0, 60.0),))
        store.keep_regret(events[0].run_id, {"depth": 3})
        return paths | {thin: tuple(store.events(events[0].run_id))}


@pytest.mark.parametrize("table", TABLES)
def test_control_every_changed_column_is_noticed(table, databases, tmp_path):
    unreported, never_set = set(), set()
    for column in columns(next(iter(databases)), table):
        for path, events in databases.items():
            copy = tmp_path / "copy.db"
            copy.write_bytes(path.read_bytes())
            if change_one(copy, table, column):
                if reads_back(copy, events):
                    unreported.add(column)
                break
        else:
            never_set.add(column)
    assert unreported == REPEATED.get(table, set())
    assert not never_set


def test_control_a_thinned_round_marked_as_complete_is_noticed(databases, tmp_path):
    path, events = list(databases.items())[-1]
    path = Path(shutil.copy(path, tmp_path))
    assert reads_back(path, events)
    assert change_one(path, "rounds", "thinned")
    assert not reads_back(path, events)


@pytest.mark.parametrize("part", [field.name for field in fields(Ahead)])
def test_control_every_changed_field_of_ahead_is_noticed(part: str, tmp_path):
    events = events_of("ahead")
    record(tmp_path / "runs.db", events)
    index = [field.name for field in fields(Ahead)].index(part)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
        query = "SELECT rowid, ahead_json FROM rounds WHERE ahead_json != '[]' LIMIT 1"
        row, text = connection.execute(query).fetchone()
        plain = json.loads(text)
        old = plain[0][index]
        plain[0][index] = not old if part == "hit" else other_value(old, part)
        connection.execute(
            "UPDATE rounds SET ahead_json = ? WHERE rowid = ?", [json.dumps(plain), row]
        )
    assert not reads_back(tmp_path / "runs.db", events)
