"""What plain decoding was measured at beside a run is kept with it, exactly."""

import math
from pathlib import Path
from typing import Any

import pytest

from core.events import Event
from storage import PlainSpeed, RunQuery, RunStore
from tests.storage.trouble import locked, record_quickly
from tests.synthetic import HOSTILE_TEXTS, synthetic_run

RATES = (1 / 3, 17.0, 1e-300, 1.7e308, 100 / 7)


@pytest.mark.parametrize("rate", RATES)
def test_it_reads_back_to_the_last_bit(path: Path, keep: Any, rate: float) -> None:
    with RunStore(path) as store:
        keep(store, synthetic_run(2, seed=1))
        assert store.run("synthetic-1").baseline is None
        store.keep_baseline("synthetic-1", rate, "plain", "told")
    with RunStore(path) as store:
        assert store.run("synthetic-1").baseline == PlainSpeed(rate, "plain", "told")
        assert store.runs(RunQuery()).rows[0].baseline == PlainSpeed(rate, "plain", "told")
        assert list(store.events("synthetic-1")) == synthetic_run(2, seed=1)


def test_it_may_be_measured_at_any_time_of_the_run(store: RunStore, keep: Any) -> None:
    first, *rest = synthetic_run(3, seed=1)
    store.record(first)
    store.keep_baseline("synthetic-1", 1.0, "before", "")
    assert store.run("synthetic-1").baseline == PlainSpeed(1.0, "before", "")
    keep(store, rest)
    assert store.run("synthetic-1").baseline == PlainSpeed(1.0, "before", "")
    store.keep_baseline("synthetic-1", 2.0, "after", "")
    assert store.run("synthetic-1").baseline == PlainSpeed(2.0, "after", "")
    assert store.run("synthetic-1").num_lost_events == 0 and store.status().dropped == 0


def test_it_stays_where_the_measured_run_goes_and_goes_with_its_own(store: RunStore, keep: Any):
    keep(store, synthetic_run(2, seed=1))
    keep(store, synthetic_run(2, seed=2))
    store.keep_baseline("synthetic-1", 3.0, "synthetic-2", "")
    store.keep_baseline("nosuch", 3.0, "synthetic-2", "")
    store.delete("synthetic-2")
    assert store.run("synthetic-1").baseline == PlainSpeed(3.0, "synthetic-2", "")
    store.delete("synthetic-1")
    store.keep_baseline("synthetic-1", 3.0, "synthetic-2", "")
    assert store.flush() and store.runs(RunQuery()).total == 0


def test_it_waits_while_the_log_is_paused(store: RunStore) -> None:
    events: list[Event] = synthetic_run(2, seed=1)
    with locked(store.path):
        record_quickly(store, events)
        store.keep_baseline("synthetic-1", 5.0, "plain", "")
    assert store.flush(20.0)
    assert store.run("synthetic-1").baseline == PlainSpeed(5.0, "plain", "")


@pytest.mark.parametrize("note", [*HOSTILE_TEXTS, "\udce9"], ids=range(15))
def test_any_text_is_told_of_it(store: RunStore, keep: Any, note: str) -> None:
    keep(store, synthetic_run(1, seed=1))
    store.keep_baseline("synthetic-1", 1.0, note, note)
    assert store.run("synthetic-1").baseline == PlainSpeed(1.0, note, note)


def test_a_speed_that_is_no_number_is_none(store: RunStore, keep: Any) -> None:
    keep(store, synthetic_run(1, seed=1))
    store.keep_baseline("synthetic-1", math.nan, "plain", "")
    assert store.run("synthetic-1").baseline is None
