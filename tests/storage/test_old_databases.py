"""Logs of earlier versions are migrated, and their runs are read back. Each file is named after its
last migration. Commits: `m014` 07e117f3, `m018` b55f4353, `m026` dd6e0058."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.events import (
    Combined,
    Drafted,
    RoundCompleted,
    RunCancelled,
    RunFailed,
    RunStarted,
    event_from_plain,
    event_to_plain,
)
from core.events.parts import OffloadInfo, RanksInfo
from storage import RunQuery, RunStore
from storage.queries import PlainSpeed
from tests.synthetic import synthetic_run
from ui.run.view import reduce_all

OLDER = Path(__file__).parent / "older"
VERSIONS = sorted(path.name.removesuffix(".db.gz") for path in OLDER.glob("*.db.gz"))
# The events of m026 have all of today's fields. When a field is added, use VERSIONS instead.
WITH_FEWER_FIELDS = [version for version in VERSIONS if version != "m026"]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(path: Path, version: str) -> Path:
    path.write_bytes(gzip.decompress((OLDER / f"{version}.db.gz").read_bytes()))
    return path


def events_of_version(version: str) -> list[list[Any]]:
    """Fields that were added later have their defaults."""
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


@pytest.mark.parametrize("version", ["m026"], indirect=True)
def test_all_that_m026_held_is_read_back(old: Path) -> None:
    names = ["thinned", "ahead", "routed", "failed", "cancelled", "scheduled"]
    with RunStore(old) as store:
        runs = {name: store.run(name) for name in names}
        events = {name: store.events(name) for name in names}
        study, _ = store.studies.study("s")
        cells = store.studies.results("s")
    assert [name for name in names if runs[name].thinned] == ["thinned"]
    assert {runs[name].status for name in ("thinned", "ahead", "scheduled")} == {"completed"}
    assert isinstance(events["failed"][-1], RunFailed)
    assert isinstance(events["cancelled"][-1], RunCancelled)
    assert runs["scheduled"].schedules == ("shared",)
    blocks = ((50.0, 101.0), (51.0, 99.0))
    plain = PlainSpeed(50.5, "scheduled", "measured before", blocks, True)
    assert (runs["ahead"].note, runs["ahead"].baseline) == ("a note", plain)
    assert runs["routed"].regret == {"best": "ssm-2", "cost": 1.5}
    assert (study.state, study.reason, study.owner) == ("failed", "a reason", "a visitor")
    assert cells == {("best", "w1", 0): {"run_id": "ahead", "speed": 1.5}}
    start = events["ahead"][0]
    assert isinstance(start, RunStarted)
    assert start.offload == OffloadInfo("disk", 8, 6, 2_000_000, 6_000_000, 500.0)
    assert start.ranks == RanksInfo("layers", (1000, 900))
    rounds = [event for event in events["ahead"] if isinstance(event, RoundCompleted)]
    assert any(one.ahead for one in rounds)
    for one in rounds:
        assert [trip.state for trip in one.nodes] == ["in_time", "late"]
        assert [load.name for load in one.loads] == ["load"]
        assert [traffic.ms for traffic in one.traffic] == [0.5, 0.75]


@pytest.mark.parametrize("version", WITH_FEWER_FIELDS)
def test_the_fixture_is_older_than_the_events_of_today(version: str) -> None:
    written = json.loads(gzip.decompress((OLDER / f"{version}.json.gz").read_bytes()))
    now = json.loads(json.dumps([event_to_plain(e) for e in events_of_version(version)[0]]))
    assert written[0] != now
