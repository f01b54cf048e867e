"""The engine's events and the log's rows equal the recorded events and rows.

After an intended change, run the modules `tests.golden.record`, `tests.golden.database` and
`tests.golden.api`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from storage import RunStore
from tests.golden.cases import CASES
from tests.golden.database import DATABASE, ROWS, golden_events, rows_of, write_log
from tests.golden.differences import differences
from tests.golden.record import FOLDER, bundled_models, golden_lines, recorded_lines


@pytest.fixture(scope="module")
def _load_bundled() -> None:
    """Loads the bundled models before the first test that runs them."""
    bundled_models()


@pytest.mark.usefixtures("_load_bundled")
@pytest.mark.parametrize("name", CASES)
def test_a_runs_events_are_the_recorded_ones(name: str) -> None:
    golden, now = golden_lines(name), recorded_lines(CASES[name])
    parsed = [[json.loads(line) for line in lines] for lines in (golden, now)]
    results = list(differences(*parsed))
    assert not results, "\n".join(results[:5])


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
    assert not list(differences(one, {"a": [1, 0.50001, "x"], "b": None}))
    assert list(differences(one, {"a": [1, 0.51, "x"], "b": None}))
    assert list(differences(one, {"a": [1, 0.5], "b": None}))
    assert list(differences(one, {"b": None, "a": [1, 0.5, "x"]}))
