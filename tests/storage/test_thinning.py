"""Thinning: the page shows a thinned run as before, except its trees."""

import dataclasses
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.events import Combined, Drafted, Event, RoundCompleted, RunStarted, Verified
from storage import RunQuery, RunStore
from storage.thinned import THINNED
from tests.laws.pairwise import parametrize_pairs
from tests.logs import log_at
from tests.storage.strategies import runs
from tests.storage.test_views import view
from tests.storage.trouble import record
from tests.synthetic import DRAFTERS, VOTE_AHEAD, Mechanisms, synthetic_run
from ui.run.view import View, reduce_all

MECHANISMS = {
    "trees": Mechanisms(),
    "vote": VOTE_AHEAD,
    "vote_tree": Mechanisms("vote_tree", "goodput", "auto"),
    "log_pool": Mechanisms("log_pool", "trend", "across"),
    "ahead": Mechanisms(pipeline="ahead"),
    "fused": Mechanisms(routing="cosine", draft="fused"),
}
NUMBERS = count()


def page_values(view: View) -> dict[str, Any]:
    return {
        "tokens": view.tokens,
        "text": view.text,
        "stats": view.stats,
        "state": (view.state, view.finish_reason, view.error, view.share),
        "rounds": [
            (r.number, r.accepted, r.emitted, r.length, r.spans, r.time, r.ahead, r.notes)
            for r in view.rounds
        ],
    }


def check_coherent(events: tuple[Event, ...]) -> None:
    """Asserts that every tree is one accepted path, whose nodes were drafted."""
    assert [event.seq for event in events] == list(range(len(events)))
    drafts: Drafted | None = None
    tree: Combined | None = None
    for event in events:
        if isinstance(event, Drafted):
            drafts = event
        elif isinstance(event, Combined):
            tree = event
            check_tree(tree, drafts)
        elif isinstance(event, Verified):
            assert event.path == tuple(range(len(tree.token_ids)))
            assert event.outcomes == ("accepted",) * len(event.path)
            assert len(event.llm_probabilities) == len(event.path)
            assert event.trials == event.top_k == ()


def check_tree(tree: Combined, drafted: Drafted | None) -> None:
    size = len(tree.token_ids)
    assert tree.parents == tuple(range(-1, size - 1))
    assert tree.depths == tuple(range(1, size + 1))
    assert len(tree.texts) == len(tree.proposals) == size
    assert len(tree.masses) in (0, size) and len(tree.origins) in (0, size)
    assert tree.dropped == tree.dropped_masses == ()
    drafts = drafted.drafts
    known = {(d.drafter, d.depths[i], d.token_ids[i]) for d in drafts for i in checked_nodes(d)}
    for node, proposals in enumerate(tree.proposals):
        for one in proposals:
            assert (one.drafter, tree.depths[node], tree.token_ids[node]) in known


def checked_nodes(draft: Any) -> range:
    assert all(parent < i for i, parent in enumerate(draft.parents))
    return range(len(draft.token_ids))


def is_possible(row: dict[str, Any]) -> bool:
    """Without drafters, only `trees` is possible: nothing is combined or drafted ahead."""
    return bool(row.get("drafters", DRAFTERS)) or row.get("shape", "trees") == "trees"


@parametrize_pairs(
    is_possible, shape=list(MECHANISMS), end=("completed", "cancelled", "failed"),
    drafters=(DRAFTERS, ("ngram",), ()), hostile=(False, True),
)  # fmt: skip
def test_a_thinned_run_has_the_figures_of_the_complete_run(
    store, keep, shape, end, drafters, hostile
):
    mechanisms = MECHANISMS[shape]
    run = synthetic_run(
        40, seed=3, drafters=drafters, end=end, hostile=hostile, mechanisms=mechanisms
    )
    keep(store, run)
    before = store.run("synthetic-3")
    figures = view(store.path, "run_summary", "synthetic-3")
    scores = view(store.path, "ssm_scoreboard", "synthetic-3")
    assert store.thin(0) == 1
    events = store.events("synthetic-3")
    assert len(events) == len(run)
    check_coherent(events)
    assert page_values(reduce_all(events)) == page_values(reduce_all(run))
    assert store.run("synthetic-3") == dataclasses.replace(before, thinned=True)
    assert view(store.path, "run_summary", "synthetic-3") == figures
    for row, old in zip(view(store.path, "ssm_scoreboard", "synthetic-3"), scores, strict=True):
        assert row == pytest.approx(old)
    trees = [[e for e in each if isinstance(e, Combined)] for each in (events, run)]
    verdicts = [e for e in run if isinstance(e, Verified)]
    for tree, old, verdict in zip(*trees, verdicts, strict=True):
        path = sorted(verdict.path)
        assert tree.origins == tuple(old.origins[node] for node in path if old.origins)
        assert tree.masses == tuple(old.masses[node] for node in path if node < len(old.masses))
    thinned, complete = events[0], run[0]
    assert thinned == dataclasses.replace(complete, warnings=(*complete.warnings, THINNED))
    for new, old in zip(events, run, strict=True):
        if not isinstance(new, (RunStarted, Drafted, Combined, Verified)):
            assert new == old


def test_only_accepted_nodes_stay_in_the_file(store: RunStore, keep: Any, sql: Any) -> None:
    keep(store, synthetic_run(40, seed=3))
    accepted = "SELECT count(*) FROM nodes WHERE outcome = 'accepted'"
    nodes = sql(accepted)
    drafted = sql("SELECT run, round, ordinal, num_tokens, spans_json FROM drafts")
    assert nodes[0][0] < sql("SELECT count(*) FROM nodes")[0][0]
    store.thin(0)
    assert sql(accepted) == sql("SELECT count(*) FROM nodes") == nodes
    assert sql("SELECT count(*) FROM trials") == sql("SELECT count(*) FROM top_k") == [(0,)]
    emptied = sql("SELECT DISTINCT tokens_json, dropped_json FROM drafts JOIN rounds")
    assert emptied == [("{}", "[]")]
    assert sql("SELECT run, round, ordinal, num_tokens, spans_json FROM drafts") == drafted
    assert sql("PRAGMA foreign_key_check") == []


def test_only_old_runs_are_thinned(store: RunStore, keep: Any) -> None:
    for seed in range(5):
        keep(store, synthetic_run(3, seed=seed))
    assert store.thin(5) == store.thin(9) == 0
    assert store.thin(3) == 2
    assert thin_ids(store) == ["synthetic-0", "synthetic-1"]
    assert list(store.events("synthetic-2")) == synthetic_run(3, seed=2)
    assert store.thin(3) == 0
    assert store.thin(0) == 3


def thin_ids(store: RunStore) -> list[str]:
    return [r.run_id for r in store.runs(RunQuery(order="oldest")).rows if r.thinned]


def test_a_run_whose_figures_are_counted_from_its_trees_is_not_thinned(
    path: Path, keep: Any, sql: Any
):
    """Such runs are in progress or interrupted, or the log lost some of their events."""
    cut = synthetic_run(8, seed=1, end="cut")
    with RunStore(path) as store:
        keep(store, cut)
        keep(store, synthetic_run(3, seed=2))
        assert store.thin(0) == 1
        assert not store.run("synthetic-1").thinned
    sql("UPDATE runs SET pid = 999999999 WHERE run_id = 'synthetic-1'")
    with RunStore(path) as store:
        assert store.run("synthetic-1").status == "interrupted"
        assert store.thin(0) == 0
        assert list(store.events("synthetic-1")) == cut
        keep(store, synthetic_run(6, seed=4)[:9])
        record(store, synthetic_run(6, seed=4)[10:])
        assert store.flush()
        assert store.run("synthetic-4").num_lost_events > 0
        assert store.thin(0) == 0


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_run_that_ends_within_a_round_is_thinned(store: RunStore, keep: Any, kept: int) -> None:
    run = synthetic_run(3, seed=1)
    seq = 1 + 4 * 2 + kept
    last = dataclasses.replace(run[-1], seq=seq)
    keep(store, [*run[:seq], last])
    store.thin(0)
    events = store.events("synthetic-1")
    assert len(events) == seq + 1
    assert [type(e) for e in events] == [type(e) for e in (*run[:seq], last)]
    assert page_values(reduce_all(events)) == page_values(reduce_all([*run[:seq], last]))


@pytest.fixture(scope="module")
def one_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with RunStore(log_at(tmp_path_factory.mktemp("shared") / "log.db")) as opened:
        yield opened


@pytest.mark.nightly
@settings(max_examples=60)
@given(data=st.data())
def test_any_run_can_be_thinned(one_store: RunStore, data: st.DataObject) -> None:
    run_id = f"any-{next(NUMBERS)}"
    run = data.draw(runs(run_id))
    for event in run:
        one_store.record(event)
    before = one_store.run(run_id)
    one_store.thin(0)
    events = one_store.events(run_id)
    assert [type(e) for e in events] == [type(e) for e in run]
    ended = before.status in ("completed", "cancelled", "failed")
    assert one_store.run(run_id) == dataclasses.replace(before, thinned=ended)
    commits = [e for e in run if isinstance(e, RoundCompleted)]
    assert [e for e in events if isinstance(e, RoundCompleted)] == commits
    one_store.delete(run_id)
