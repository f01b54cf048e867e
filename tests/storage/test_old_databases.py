"""A log written by an earlier version opens, is brought up to date, and reads back whole."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.events import event_from_plain, event_to_plain
from storage import RunQuery, RunStore
from tests.synthetic import synthetic_run

OLDER = Path(__file__).parent / "older"
VERSIONS = sorted(path.name.removesuffix(".db.gz") for path in OLDER.glob("*.db.gz"))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(path: Path, version: str) -> Path:
    path.write_bytes(gzip.decompress((OLDER / f"{version}.db.gz").read_bytes()))
    return path


def events_of_version(version: str) -> list[list[Any]]:
    """The events that were recorded then, as they are now: new fields have their defaults."""
    runs = json.loads(gzip.decompress((OLDER / f"{version}.json.gz").read_bytes()))
    return [[event_from_plain(values) for values in run] for run in runs]


def test_its_runs_read_back(old: Path, version: str) -> None:
    with RunStore(old) as store:
        for run in events_of_version(version):
            assert list(store.events(run[0].run_id)) == run
            assert store.run(run[0].run_id).prompt == run[0].prompt
        assert store.runs(RunQuery()).total == len(events_of_version(version))


def test_new_runs_join_it(old: Path, keep: Any) -> None:
    with RunStore(old) as store:
        keep(store, synthetic_run(3, seed=9))
    with RunStore(old) as store:
        assert list(store.events("synthetic-9")) == synthetic_run(3, seed=9)


def test_the_fixture_is_older_than_the_events_of_today(version: str) -> None:
    written = json.loads(gzip.decompress((OLDER / f"{version}.json.gz").read_bytes()))
    now = json.loads(json.dumps([event_to_plain(e) for e in events_of_version(version)[0]]))
    assert written[0] != now
