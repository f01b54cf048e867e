"""The engine's events and the log's rows equal the recorded events and rows.

After an intended change, run the modules `tests.golden.record`, `tests.golden.database` and
`tests.golden.api`.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from storage import RunStore
from tests.golden.cases import CASES
from tests.golden.database import DATABASE, ROWS, golden_events, rows_of, write_log
from tests.golden.differences import CLOSE, MODEL_CLOSE, differences
from tests.golden.record import FOLDER, bundled_models, golden_lines, recorded_lines


@pytest.fixture(scope="module")
def _prepared() -> None:
    """Loads the bundled models, and compiles the drafters `suffix` and `table`."""
    bundled_models()
    recorded_lines(CASES["lookups-T0"])


@pytest.mark.usefixtures("_prepared")
@pytest.mark.parametrize("name", CASES)
def test_a_runs_events_are_the_recorded_ones(name: str) -> None:
    golden, now = golden_lines(name), recorded_lines(CASES[name])
    parsed = [[json.loads(line) for line in lines] for lines in (golden, now)]
    close = MODEL_CLOSE if CASES[name].models == "bundled" else CLOSE
    results = list(differences(*parsed, close=close))
    assert not results, "\n".join(results[:5])


REACHED = (
    ("auto-long", '"hit": true'),
    ("auto-across", '"hit": true'),
    ("unused-ahead", '"reason": "unused"'),
    ("schedule-shared", '"schedule": "shared"'),
    ("schedule-cosine", '"schedule": "cosine"'),
    ("cancelled", '"event": "RunCancelled"'),
    ("failed", '"event": "RunFailed"'),
    ("failed-prefill", '"event": "RunFailed"'),
    ("lost", '"role": "lost"'),
    ("lookups", '"drafter": "table", "token_ids": ['),
    ("lookups", '"drafter": "suffix", "token_ids": ['),
    ("context", '"finish_reason": "context"'),
)


@pytest.mark.parametrize(("name", "text"), REACHED)
@pytest.mark.parametrize("at", ["T0", "T0.8"])
def test_a_case_reaches_what_it_was_made_for(name: str, text: str, at: str) -> None:
    # An empty list does not count.
    assert text in "".join(golden_lines(f"{name}-{at}")).replace("[]", "")


def test_every_recorded_run_has_a_case() -> None:
    assert {path.name.removesuffix(".jsonl.gz") for path in FOLDER.iterdir()} == set(CASES)


def test_the_logs_rows_are_the_recorded_ones(tmp_path: Path) -> None:
    write_log(tmp_path / "runs.db")
    golden = json.loads(gzip.decompress(ROWS.read_bytes()))
    results = list(differences(golden, rows_of(tmp_path / "runs.db")))
    assert not results, "\n".join(results[:5])


def test_the_recorded_log_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(gzip.decompress(DATABASE.read_bytes()))
    events = golden_events()
    with RunStore(path) as store:
        for run_id in dict.fromkeys(event.run_id for event in events):
            assert list(store.events(run_id)) == [e for e in events if e.run_id == run_id]


def test_only_differences_above_the_tolerance_are_found() -> None:
    one = {"a": [1, 0.5, "x"], "b": None}
    assert not list(differences(one, {"a": [1, 0.5000001, "x"], "b": None}))
    assert list(differences(one, {"a": [1, 0.50001, "x"], "b": None}))
    assert not list(differences(one, {"a": [1, 0.50001, "x"], "b": None}, close=MODEL_CLOSE))
    assert list(differences(one, {"a": [1, 0.51, "x"], "b": None}, close=MODEL_CLOSE))
    assert list(differences(one, {"a": [1, 0.5], "b": None}))
    assert list(differences(one, {"b": None, "a": [1, 0.5, "x"]}))


UNEQUAL: tuple[tuple[Any, Any], ...] = (
    *((0.5, math.nan), (math.inf, 5.0), (math.inf, -math.inf), (9e-05, 0.0), (1e-12, 0.0)),
    *((123456.0, 123566.0), (1, 1.0), (1, True), (0, False), (0, None), (1, 2), ("1", 1)),
)


@pytest.mark.parametrize("close", [CLOSE, MODEL_CLOSE])
@pytest.mark.parametrize(("one", "other"), UNEQUAL)
def test_unequal_values_are_found_in_both_directions(one: Any, other: Any, close: float) -> None:
    texts = [json.dumps({"a": [value]}) for value in (one, other)]
    for golden, now in ((one, other), (other, one), ([one], [other]), texts, texts[::-1]):
        assert list(differences(golden, now, close=close))


def test_a_value_equals_itself() -> None:
    for value in (0.0, math.nan, math.inf, -math.inf, 1, True, None, "x", [], {}):
        assert not list(differences(value, value))
