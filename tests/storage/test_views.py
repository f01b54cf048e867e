"""The database's views have the figures of the events."""

import dataclasses
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.events import Combined, Drafted, Event, RoundCompleted, RunStats, Span, Verified
from core.metrics import StatsFold
from storage import RunStore
from tests.synthetic import DRAFTERS, ENDINGS, Mechanisms, synthetic_run

NOT_IN_SUMMARY = {"acceptance_histogram", "acceptance_rate_per_position"}


def view(path: Path, name: str, run_id: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        query = f"SELECT * FROM {name} WHERE run_id = ?"
        return [dict(row) for row in connection.execute(query, (run_id,))]


def fold_all(events: list[Event]) -> RunStats:
    fold = StatsFold()
    for event in events:
        fold.observe(event)
    return fold.stats(events[-1].at_ms)


def with_overlaps(events: list[Event], seed: int) -> list[Event]:
    rng = random.Random(seed)
    moved: list[Event] = []
    for event in events:
        if isinstance(event, RoundCompleted):
            lanes = ("llm", "combine", "verify", "commit", *DRAFTERS)
            starts = [event.at_ms - rng.uniform(0, 20) for _ in range(12)]
            spans = tuple(
                Span(rng.choice(lanes), "forward", start, start + rng.uniform(0, 6))
                for start in starts
            )
            prefills = tuple(span for span in event.spans if span.name == "prefill")
            if event.round == 3:
                prefills = (Span(DRAFTERS[0], "prefill", event.at_ms - 9, event.at_ms - 1),)
            event = dataclasses.replace(event, spans=prefills * 2 + spans)
        moved.append(event)
    return moved


def check(path: Path, run_id: str, stats: RunStats) -> None:
    (row,) = view(path, "run_summary", run_id)
    for field in dataclasses.fields(RunStats):
        if field.name not in NOT_IN_SUMMARY:
            expected = getattr(stats, field.name)
            assert row[field.name] == pytest.approx(expected, rel=1e-9, abs=1e-9), field.name
    positions = view(path, "acceptance_by_position", run_id)
    assert [row["position"] for row in positions] == list(range(len(positions)))
    rates = [row["acceptance_rate"] for row in positions]
    assert rates == pytest.approx(stats.acceptance_rate_per_position)
    above = [sum(stats.acceptance_histogram[i + 1 :]) for i in range(len(positions))]
    assert [row["num_accepted"] for row in positions] == above
    assert {row["num_rounds"] for row in positions} <= {stats.num_rounds}


@pytest.mark.parametrize("drafters", [DRAFTERS, ()], ids=["three", "none"])
@pytest.mark.parametrize("end", ENDINGS)
def test_the_summary_equals_the_fold(store, keep, end: str, drafters: tuple[str, ...]):
    for seed in (0, 1, 5):
        events = synthetic_run(20, seed=seed, end=end, drafters=drafters)
        keep(store, events)
        check(store.path, f"synthetic-{seed}", fold_all(events))
    if end != "cut":
        assert fold_all(events) == events[-1].stats  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_overlap_equals_the_fold(store: RunStore, keep: Any, seed: int) -> None:
    events = with_overlaps(synthetic_run(15, seed=seed), seed)
    keep(store, events)
    stats = fold_all(events)
    assert 0 < stats.overlap_ratio < 1
    check(store.path, f"synthetic-{seed}", stats)


@pytest.mark.parametrize("end", ENDINGS)
@pytest.mark.parametrize("pipeline", ["across", "ahead", "auto"])
def test_pipelined_overlap_equals_the_fold(store: RunStore, keep: Any, pipeline: str, end: str):
    events = synthetic_run(12, seed=3, end=end, mechanisms=Mechanisms(pipeline=pipeline))
    keep(store, events)
    stats = fold_all(events)
    assert 0 < stats.overlap_ratio < 1
    check(store.path, "synthetic-3", stats)


@pytest.mark.parametrize("seed", range(4))
def test_any_overlap_and_saving_equal_the_fold(store: RunStore, keep: Any, seed: int) -> None:
    """Overlap and saved time together may exceed the LLM's time."""
    across = Mechanisms(pipeline="across")
    events = with_overlaps(synthetic_run(12, seed=seed, mechanisms=across), seed)
    with_savings = [
        dataclasses.replace(
            event, ahead=tuple(dataclasses.replace(a, saved_ms=seed * 8.0) for a in event.ahead)
        )
        if isinstance(event, RoundCompleted)
        else event
        for event in events
    ]
    keep(store, with_savings)
    assert 0 < fold_all(with_savings).overlap_ratio <= 1
    check(store.path, f"synthetic-{seed}", fold_all(with_savings))


def test_a_run_without_a_round_has_a_summary_of_zeros(store: RunStore, keep: Any) -> None:
    events = synthetic_run(0, end="cancelled")
    keep(store, events)
    check(store.path, "synthetic-0", fold_all(events))


def test_the_summary_names_the_run(store: RunStore, keep: Any) -> None:
    keep(store, synthetic_run(2))
    (row,) = view(store.path, "run_summary", "synthetic-0")
    run = store.run("synthetic-0")
    for name in ("status", "prompt", "output", "llm", "seed", "finish_reason", "created_utc"):
        assert row[name] == getattr(run, name)


FUSED = Mechanisms(routing="cosine", draft="fused")


@pytest.mark.parametrize("mechanisms", [None, FUSED], ids=["trees", "fused"])
def test_the_scoreboard_counts_each_drafters_nodes(
    store: RunStore, keep: Any, mechanisms: Mechanisms | None
) -> None:
    events = synthetic_run(40, seed=2, mechanisms=mechanisms)
    keep(store, events)
    # In a fused draft, only tokens of rank 0 were drafted.
    drafted_ranks = (0,) if mechanisms else range(100)
    drafted, rounds, nodes, accepted, alone, busy = (Counter[str]() for _ in range(6))
    tree: Combined | None = None
    verdict: Verified | None = None
    for event in events:
        if isinstance(event, Drafted):
            for draft in event.drafts:
                drafted[draft.drafter] += sum(rank in drafted_ranks for rank in draft.ranks)
                rounds[draft.drafter] += 1
        elif isinstance(event, Combined):
            tree = event
        elif isinstance(event, Verified):
            verdict = event
        elif isinstance(event, RoundCompleted):
            emitted = verdict.path[: event.num_accepted]
            for node, proposals in enumerate(tree.proposals):
                names = {one.drafter for one in proposals if one.rank in drafted_ranks}
                for name in names:
                    nodes[name] += 1
                    accepted[name] += node in emitted
                    alone[name] += node in emitted and len(names) == 1
            for span in event.spans:
                busy[span.lane] += span.ms  # type: ignore[assignment]
    rows = {row["drafter"]: row for row in view(store.path, "ssm_scoreboard", "synthetic-2")}
    assert set(rows) == set(DRAFTERS)
    assert sum(alone.values()) > 0
    for name, row in rows.items():
        assert row["num_rounds"] == rounds[name]
        assert row["num_drafted_tokens"] == drafted[name]
        assert row["num_nodes"] == nodes[name]
        assert row["num_accepted"] == accepted[name]
        assert row["num_accepted_alone"] == alone[name]
        assert row["acceptance_rate"] == pytest.approx(accepted[name] / nodes[name])
        assert row["draft_ms"] == pytest.approx(busy[name])


def test_two_proposals_of_one_drafter_count_as_one_node(store: RunStore, keep: Any) -> None:
    """A draft of kind `sampled_iid` may have a token twice."""
    events: list[Event] = list(synthetic_run(1, drafters=("ssm-code",)))
    tree = events[2]
    twice = tuple(proposals * 2 for proposals in tree.proposals)
    events[2] = dataclasses.replace(tree, proposals=twice)
    keep(store, events)
    (row,) = view(store.path, "ssm_scoreboard", "synthetic-0")
    assert row["num_nodes"] == len(tree.token_ids)
    last = events[4]
    assert row["num_accepted"] == row["num_accepted_alone"] == last.num_accepted
