"""Law 6: events are read back from the database as they were recorded."""

import json
import typing
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.events import Event, RoundCompleted, event_from_plain, event_to_plain
from storage import RunQuery, RunStore
from tests.laws.pairwise import parametrize_pairs
from tests.logs import log_at
from tests.storage.strategies import runs
from tests.storage.trouble import record
from tests.synthetic import DRAFTERS, ENDINGS, HOSTILE_TEXTS, VOTE_AHEAD, Mechanisms, synthetic_run

NUMBERS = count()


def text_of(events: list[Event]) -> str:
    pieces = [d for e in events if isinstance(e, RoundCompleted) for d in e.text_deltas]
    return "".join([*pieces, getattr(events[-1], "text_tail", "")])


def texts_of(event: Event) -> tuple[str, ...]:
    return event.texts if isinstance(event, RoundCompleted) else ()


@pytest.fixture(scope="module")
def one_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with RunStore(log_at(tmp_path_factory.mktemp("shared") / "log.db")) as opened:
        yield opened


@parametrize_pairs(end=ENDINGS, drafters=(DRAFTERS, ("ngram",), ()), hostile=(False, True))
def test_a_synthetic_run_is_read_back_equal(
    store, keep, end: str, drafters: tuple[str, ...], hostile: bool
):
    events = synthetic_run(9, seed=3, drafters=drafters, end=end, hostile=hostile)
    keep(store, events, "visitor")
    assert list(store.events("synthetic-3")) == events
    summary = store.run("synthetic-3")
    start = events[0]
    assert (summary.prompt, summary.output) == (start.prompt, text_of(events))
    assert (summary.config, summary.drafters) == (start.config, drafters)
    assert (summary.llm, summary.seed, summary.owner) == ("synthetic-llm", 3, "visitor")
    assert summary.status == ("running" if end == "cut" else end)
    assert summary.stats == getattr(events[-1], "stats", None)
    assert (summary.num_rounds, summary.num_lost_events) == (9, 0)


def test_synthetic_runs_have_every_kind_of_event_and_value() -> None:
    events = [e for end in ENDINGS for e in synthetic_run(9, end=end, hostile=True)]
    events += synthetic_run(9, mechanisms=VOTE_AHEAD)
    assert {type(event) for event in events} == set(typing.get_args(Event))
    together = repr([event_to_plain(event) for event in events])
    for kind in ("recovered", "bonus", "plain", "accepted", "rejected", "not_reached"):
        assert f"'{kind}'" in together
    assert any(getattr(event, "dropped", ()) for event in events)
    assert any("" in getattr(event, "text_deltas", ()) for event in events)
    assert any(text in texts for e in events for text in HOSTILE_TEXTS if (texts := texts_of(e)))


@settings(max_examples=40)
@given(data=st.data())
def test_any_run_is_read_back_equal(one_store: RunStore, data: st.DataObject) -> None:
    run_id = f"any-{next(NUMBERS)}"
    events = data.draw(runs(run_id))
    dropped = one_store.status().dropped
    for event in events:
        one_store.record(event, "\udce9\0")
    assert list(one_store.events(run_id)) == events
    assert one_store.run(run_id).owner == "\udce9\0"
    assert one_store.status().dropped == dropped


@pytest.mark.parametrize("extra", [0, 1, 2, 3])
def test_an_unfinished_run_is_read_back_in_complete_rounds(store: RunStore, keep: Any, extra: int):
    events = synthetic_run(5, end="cut")
    num_complete = 1 + 4 * 3
    keep(store, events[: num_complete + extra])
    assert list(store.events("synthetic-0")) == events[:num_complete]
    assert store.run("synthetic-0").num_rounds == 3


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_run_that_ends_within_a_round_is_read_back_with_its_events(store, keep, kept: int):
    complete = synthetic_run(3, end="failed")
    seq = 1 + 4 * 2 + kept
    last = event_from_plain({**event_to_plain(complete[-1]), "seq": seq})
    events = [*complete[:seq], last]
    keep(store, events)
    assert list(store.events("synthetic-0")) == events


def test_interleaved_runs_do_not_mix(store: RunStore, keep: Any) -> None:
    both = [synthetic_run(6, seed=seed, run_id=f"run-{seed}") for seed in (1, 2)]
    mixed = [event for pair in zip(*both, strict=True) for event in pair]
    keep(store, mixed)
    assert [list(store.events(f"run-{seed}")) for seed in (1, 2)] == both


def test_drafts_ahead_stored_without_reasons_are_read_back(path, keep, sql):
    events = synthetic_run(8, seed=5, mechanisms=Mechanisms(pipeline="ahead"))
    with RunStore(path) as store:
        keep(store, events)
    for number, text in sql("SELECT rowid, ahead_json FROM rounds"):
        older = json.dumps([entry[:6] for entry in json.loads(text)])
        sql("UPDATE rounds SET ahead_json = ? WHERE rowid = ?", older, number)
    expected = [
        replace(e, ahead=tuple(replace(one, reason="") for one in e.ahead))
        if isinstance(e, RoundCompleted)
        else e
        for e in events
    ]
    with RunStore(path) as store:
        assert list(store.events("synthetic-5")) == expected != events


def test_closing_writes_waiting_events(path: Path) -> None:
    events = synthetic_run(40, hostile=True)
    with RunStore(path) as store:
        record(store, events)
    with RunStore(path) as store:
        assert list(store.events("synthetic-0")) == events
        assert store.runs(RunQuery()).total == 1
