"""When SSMs draft in one pass, sums count the pass's time once."""

import csv
import gzip
import io
import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.events import Event, RoundCompleted, Span
from storage import RunStore
from storage.export_csv import rounds_csv
from storage.export_json import events_json
from storage.export_trace import chrome_trace
from tests.core.engines import rounds_of
from tests.storage.test_datasette import DESCRIPTION
from tests.storage.test_old_databases import OLDER
from tests.storage.test_views import check, fold_all, view, with_overlaps
from tests.synthetic import DRAFTERS, synthetic_run
from tests.together import share_passes

THIRD = 1 / 3


@cache
def separate_run() -> list[Event]:
    return synthetic_run(12, seed=4)


@cache
def shared_run() -> list[Event]:
    return share_passes(separate_run())


def draft_spans(events: list[Event]) -> list[Span]:
    spans = [span for event in rounds_of(events) for span in event.spans]
    return [span for span in spans if span.lane in DRAFTERS and span.name != "prefill"]


def test_the_made_up_run_shares_its_time() -> None:
    assert {span.share for span in draft_spans(shared_run())} == {THIRD}
    true_ms = sum(span.end_ms - span.start_ms for span in draft_spans(separate_run()))
    assert sum(span.end_ms - span.start_ms for span in draft_spans(shared_run())) == pytest.approx(
        3 * true_ms
    )
    assert sum(span.ms for span in draft_spans(shared_run())) == pytest.approx(true_ms)


def test_shares_are_read_back(store: RunStore, keep: Any, sql: Any) -> None:
    keep(store, shared_run())
    assert list(store.events("synthetic-4")) == shared_run()
    result = sql("SELECT DISTINCT share FROM spans WHERE lane = ? AND name = 'draft'", DRAFTERS[0])
    assert result == [(THIRD,)]
    assert sql("SELECT DISTINCT share FROM spans WHERE lane = 'llm'") == [(1.0,)]


def test_drafts_stored_without_shares_have_all_of_their_time(store, keep, sql):
    keep(store, separate_run())
    for run, number, ordinal, spans in sql("SELECT run, round, ordinal, spans_json FROM drafts"):
        older = json.dumps([span[:4] for span in json.loads(spans)])
        where = (older, run, number, ordinal)
        sql("UPDATE drafts SET spans_json = ? WHERE run = ? AND round = ? AND ordinal = ?", *where)
    assert list(store.events("synthetic-4")) == separate_run()


def test_older_spans_have_all_of_their_time(path: Path, sql: Any) -> None:
    path.write_bytes(gzip.decompress((OLDER / "m004.db.gz").read_bytes()))
    assert "share" not in {row[1] for row in sql("PRAGMA table_info(spans)")}
    with RunStore(path) as store:
        assert sql("SELECT DISTINCT share FROM spans") == [(1.0,)]
        (run_id,) = sql("SELECT run_id FROM runs WHERE status = 'completed'")[0]
        events = list(store.events(run_id))
        assert {span.share for event in rounds_of(events) for span in event.spans} == {1.0}
        check(path, run_id, fold_all(events))


def test_no_span_is_without_a_share(store: RunStore, keep: Any, sql: Any) -> None:
    keep(store, shared_run())
    with pytest.raises(sqlite3.IntegrityError, match=r"spans\.share"):
        sql("UPDATE spans SET share = NULL")


def test_the_views_count_the_time_once(store: RunStore, keep: Any) -> None:
    keep(store, shared_run())
    stats = fold_all(shared_run())
    assert stats.draft_ms == pytest.approx(fold_all(separate_run()).draft_ms)
    check(store.path, "synthetic-4", stats)
    board = view(store.path, "ssm_scoreboard", "synthetic-4")
    # A drafter's time includes its prefill.
    lanes = sum(s.ms for e in rounds_of(shared_run()) for s in e.spans if s.lane in DRAFTERS)
    assert sum(row["draft_ms"] for row in board) == pytest.approx(lanes)
    prompts = lanes - sum(span.ms for span in draft_spans(shared_run()))
    assert prompts > 0 and stats.draft_ms == pytest.approx(lanes - prompts)


def test_busy_time_is_the_same_with_shares(store: RunStore, keep: Any, sql: Any) -> None:
    keep(store, shared_run())
    ((spent, covered),) = sql("SELECT sum_ms, busy_ms FROM span_times WHERE kind = 'draft'")
    expected = pytest.approx(fold_all(separate_run()).draft_ms)
    assert spent == expected and covered == expected


@pytest.mark.parametrize("seed", range(4))
def test_any_shares_and_overlaps_equal_the_fold(store: RunStore, keep: Any, seed: int) -> None:
    rng = random.Random(seed)
    events = [
        replace(event, spans=tuple(with_share(span, rng) for span in event.spans))
        if isinstance(event, RoundCompleted)
        else event
        for event in with_overlaps(synthetic_run(15, seed=seed), seed)
    ]
    keep(store, events)
    assert 0 < fold_all(events).overlap_ratio < 1
    check(store.path, f"synthetic-{seed}", fold_all(events))


def with_share(span: Span, rng: random.Random) -> Span:
    return replace(span, share=rng.choice((1.0, 0.5, 1 / 3))) if span.lane in DRAFTERS else span


def test_the_datasette_query_counts_the_time_once(store: RunStore, keep: Any) -> None:
    keep(store, shared_run())
    with closing(sqlite3.connect(store.path)) as connection:
        query = DESCRIPTION["queries"]["stages_of_a_run"]["sql"]
        rows = connection.execute(query, {"run_id": "synthetic-4"}).fetchall()
    drafted = sum(ms for lane, name, _, ms in rows if lane in DRAFTERS and name != "prefill")
    assert drafted == pytest.approx(fold_all(separate_run()).draft_ms, abs=0.01 * len(rows))


def table(events: list[Event]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(rounds_csv(events))))


def test_the_table_counts_the_time_once() -> None:
    for row, other, round_event in zip(
        table(shared_run()), table(separate_run()), rounds_of(shared_run()), strict=True
    ):
        assert float(row["draft_ms"]) == pytest.approx(float(other["draft_ms"]))
        spent = Counter[str]()
        for span in round_event.spans:
            spent[span.lane] += span.ms  # type: ignore[assignment]
        for name in DRAFTERS:
            assert float(row[f"ms: {name}"]) == pytest.approx(spent[name])
        each = sum(float(row[f"ms: {name}"]) for name in DRAFTERS)
        assert each == pytest.approx(sum(float(other[f"ms: {name}"]) for name in DRAFTERS))


def test_the_trace_keeps_the_true_time_and_reports_the_share() -> None:
    entries = json.loads(chrome_trace(shared_run()))["traceEvents"]
    slices = [entry for entry in entries if entry["ph"] == "X" and entry["cat"] != "rounds"]
    spans = sorted((s.lane, s.start_ms, s) for e in rounds_of(shared_run()) for s in e.spans)
    results = sorted(slices, key=lambda one: (one["cat"], one["ts"]))
    for one, (_, _, span) in zip(results, spans, strict=True):
        assert one["dur"] / 1000 == pytest.approx(span.end_ms - span.start_ms, abs=1e-5)
        assert one["args"].get("share", 1.0) == span.share
        assert ("share" in one["args"]) == (span.share < 1)
    plain = json.loads(chrome_trace(separate_run()))["traceEvents"]
    assert not [entry for entry in plain if "share" in entry.get("args", {})]


def test_exported_events_have_their_shares() -> None:
    document = json.loads(events_json(shared_run()))
    spans = [span for event in document["events"] for span in event.get("spans", ())]
    drafted = [s for s in spans if s["lane"] in DRAFTERS and s["name"] != "prefill"]
    assert {span["share"] for span in drafted} == {THIRD}
    assert document["summary"]["stats"]["draft_ms"] == pytest.approx(
        fold_all(separate_run()).draft_ms
    )
