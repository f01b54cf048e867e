"""Events that the log cannot keep are counted, and their run is marked."""

import dataclasses
from typing import Any

import pytest

from core.errors import UnknownRunError
from core.events import Event
from storage import RunQuery, RunStore
from tests.storage.trouble import hold_write_lock, record, record_quickly
from tests.synthetic import synthetic_run

pytestmark = pytest.mark.usefixtures("short_waits")


def test_beyond_the_limit_events_are_dropped_counted_and_the_run_is_marked(path, wait_for):
    events = synthetic_run(50)
    other = synthetic_run(3, run_id="later")
    with RunStore(path, max_waiting=60) as store:
        with hold_write_lock(path):
            record_quickly(store, events)
            wait_for(lambda: store.status().paused)
            status = store.status()
            assert status.waiting == 61, "60 events and the run's end"
            assert status.dropped >= len(events) - 61
        assert store.flush()
        record(store, other)
        num_kept = 1 + 4 * 14
        assert list(store.events("synthetic-0")) == events[:num_kept]
        run = store.run("synthetic-0")
        assert (run.status, run.num_lost_events) == ("completed", 200 - 4 * 14)
        last = events[-1]
        assert run.stats == last.stats
        assert store.status().dropped == 200 - 4 * 14
        assert list(store.events("later")) == other, "the next run is complete"
        assert store.run("later").num_lost_events == 0


def test_a_run_that_lacks_an_event_is_marked_while_it_runs(store: RunStore) -> None:
    events = synthetic_run(6, end="cut")
    record(store, events[:9] + events[10:])
    assert list(store.events("synthetic-0")) == events[:9]
    assert store.run("synthetic-0").num_lost_events > 0
    assert store.run("synthetic-0").status == "running"


def test_events_of_a_run_whose_start_is_missing_are_counted(store: RunStore) -> None:
    record(store, synthetic_run(2)[1:])
    assert store.flush()
    assert store.status().dropped == 9
    assert store.runs(RunQuery()).total == 0


def test_a_round_that_cannot_be_stored_is_lost_and_other_runs_are_complete(store: RunStore) -> None:
    events = synthetic_run(6)
    bad = events[10]
    damaged: list[Event] = list(events)
    damaged[10] = dataclasses.replace(bad, texts=bad.texts[1:])
    other = synthetic_run(6, run_id="other")
    for pair in zip(damaged, other, strict=True):
        record(store, pair)
    assert list(store.events("other")) == other
    assert list(store.events("synthetic-0")) == events[:9]
    assert store.run("synthetic-0").num_lost_events >= 4
    assert store.run("synthetic-0").status == "completed"
    assert not store.status().paused


def test_a_run_whose_end_cannot_be_stored_is_interrupted(store: RunStore) -> None:
    events: list[Event] = list(synthetic_run(3, end="failed"))
    events[-1] = dataclasses.replace(events[-1], message=None)
    record(store, events)
    assert list(store.events("synthetic-0")) == events[:-1]
    assert store.run("synthetic-0").status == "interrupted"
    assert store.run("synthetic-0").num_rounds == 3


@pytest.mark.parametrize(
    ("at", "field", "value"),
    [(6, "token_ids", 2**70), (6, "token_ids", object()), (6, "token_ids", None)]
    + [(7, "own_text", None)],
)
def test_values_that_are_refused_do_not_stop_the_log(store, at: int, field: str, value: Any):
    events: list[Event] = list(synthetic_run(3))
    old = getattr(events[at], field)
    new = (value, *old[1:]) if isinstance(old, tuple) else value
    events[at] = dataclasses.replace(events[at], **{field: new})
    record(store, events)
    assert list(store.events("synthetic-0")) == events[:5]
    assert store.status().dropped > 0 and not store.status().paused


def test_probabilities_that_are_no_numbers_are_kept(store: RunStore, keep: Any) -> None:
    events: list[Event] = list(synthetic_run(2))
    verified = events[3]
    events[3] = dataclasses.replace(verified, own_probability=float("nan"))
    keep(store, events)
    back = store.events("synthetic-0")
    assert repr(list(back)) == repr(events)


def test_a_second_run_with_the_same_id_does_not_change_the_first(
    store: RunStore, keep: Any
) -> None:
    first, second = synthetic_run(3), synthetic_run(5, seed=1, run_id="synthetic-0")
    keep(store, first)
    record(store, second)
    assert store.flush()
    assert list(store.events("synthetic-0")) == first
    assert store.status().dropped > 0
    assert store.runs(RunQuery()).total == 1


def test_a_run_deleted_while_it_is_recorded_stays_deleted_and_others_are_kept(
    store: RunStore, keep: Any
):
    events = synthetic_run(8)
    keep(store, events[:13])
    store.delete("synthetic-0")
    keep(store, synthetic_run(2, run_id="other"))
    keep(store, events[13:])
    assert [run.run_id for run in store.runs(RunQuery()).rows] == ["other"]
    assert list(store.events("other")) == synthetic_run(2, run_id="other")
    with pytest.raises(UnknownRunError, match="no such run"):
        store.events("synthetic-0")
