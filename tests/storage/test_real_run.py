"""A run of the bundled models: thinned and exported as the synthetic ones are."""

import json
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.events import Event, event_from_plain
from storage import RunStore
from storage.exports import events_json
from tests.core.engines import rounds_of
from tests.storage.test_exports import check_lanes, rows_of, trace_of
from tests.storage.test_thinning import check_coherent, told
from ui.run.view import reduce_all


@pytest.fixture(scope="module")
def run(bundled: Engine) -> list[Event]:
    speculation = SpeculationConfig.preset("specinfer")
    sampling = SamplingParams(max_new_tokens=24)
    return list(bundled.generate(Request("Once upon a time", sampling, speculation)))


def test_it_is_exported(run: list[Event]) -> None:
    found = json.loads(events_json(run))
    assert [event_from_plain(values) for values in found["events"]] == run
    commits = rounds_of(run)
    assert [row["text"] for row in rows_of(run)] == ["".join(e.text_deltas) for e in commits]
    lanes = check_lanes(trace_of(run))
    assert {"rounds", "llm", "verify", "commit"} < set(lanes)
    assert sum(name.endswith(")") for name in lanes) == 0, "no lane needs a second thread"


def test_thinned_it_tells_the_same(store: RunStore, keep: Any, run: list[Event]) -> None:
    keep(store, run)
    assert store.thin(0) == 1
    events = store.events(run[0].run_id)
    check_coherent(events)
    assert told(reduce_all(events)) == told(reduce_all(run))
