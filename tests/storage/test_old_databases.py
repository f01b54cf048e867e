"""Logs of earlier versions are migrated, and their runs are read back.

Each file is named after its last migration. `m004` has made-up runs. `m014` (commit 07e117f3)
has eleven runs with small tables in place of models, from four cases of `tests/golden/cases.py`.
`m018` (commit b55f4353) has two runs of the bundled models under schedule `shared`, with routing
and fused drafts.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.events import Combined, Drafted, event_from_plain, event_to_plain
from storage import RunQuery, RunStore
from tests.synthetic import synthetic_run
from ui.run.view import reduce_all

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
    """A version's events in today's classes. Fields that were added later have their defaults."""
    runs = json.loads(gzip.decompress((OLDER / f"{version}.json.gz").read_bytes()))
    return [[event_from_plain(values) for values in run] for run in runs]


def test_runs_of_old_logs_are_read_back(old: Path, version: str) -> None:
    with RunStore(old) as store:
        for run in events_of_version(version):
            assert list(store.events(run[0].run_id)) == run
            assert store.run(run[0].run_id).prompt == run[0].prompt
        assert store.runs(RunQuery()).total == len(events_of_version(version))


def test_new_runs_are_added_to_old_logs(old: Path, keep: Any) -> None:
    with RunStore(old) as store:
        keep(store, synthetic_run(3, seed=9))
    with RunStore(old) as store:
        assert list(store.events("synthetic-9")) == synthetic_run(3, seed=9)


@pytest.mark.parametrize("version", ["m018"], indirect=True)
def test_routing_fusion_and_schedule_replay(old: Path, version: str, sql: Any) -> None:
    drafted = "SELECT sum(num_tokens) FROM drafts JOIN runs ON runs.id = run WHERE run_id = ?"
    with_fed = {run_id: sql(drafted, run_id)[0][0] for (run_id,) in sql("SELECT run_id FROM runs")}
    assert not sql("SELECT 1 FROM _sqlite_migrations WHERE name >= 'm019'")
    for run, rule in zip(events_of_version(version), ("credit", "cosine"), strict=True):
        with RunStore(old) as store:
            replayed, live = reduce_all(store.events(run[0].run_id)), reduce_all(run)
        assert replayed == live and replayed.started.config["speculation"]["routing"] == rule
        for line in replayed.rounds:
            roles = [one.role for one in line.routing]
            assert len(roles) == 5 and roles.count("routed") + roles.count("explored") == 2
            assert line.routing_reason
            assert line.scheduled is not None and line.scheduled.schedule == "shared"
        trees = [event for event in run if isinstance(event, Combined)]
        assert all(len(tree.origins) == len(tree.parents) for tree in trees)
        assert any(tree.origins for tree in trees)
        # Before m019, tokens that an SSM was only fed were counted as drafted.
        drafts = [draft for event in run if isinstance(event, Drafted) for draft in event.drafts]
        num_drafted = sum(draft.ranks.count(0) for draft in drafts)
        assert sql(drafted, run[0].run_id)[0][0] == num_drafted < with_fed[run[0].run_id]


def test_the_fixture_is_older_than_the_events_of_today(version: str) -> None:
    written = json.loads(gzip.decompress((OLDER / f"{version}.json.gz").read_bytes()))
    now = json.loads(json.dumps([event_to_plain(e) for e in events_of_version(version)[0]]))
    assert written[0] != now
