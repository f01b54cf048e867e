"""kill -9, a full disk, and two processes on one file."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.events import Event, RoundCompleted, event_to_plain
from core.metrics import StatsFold
from storage import RunQuery, RunStore
from storage.database import connect
from storage.process import HEARTBEAT_TIMEOUT_S
from tests.synthetic import synthetic_run

ROOT = Path(__file__).parents[2]
ROUNDS = 500
PACE_S = 0.02  # between two rounds
SAFE_AFTER_S = 0.25  # after this time a recorded round is on disk

# The child processes read events from a file: making events would load torch.
READ = """
import json, sys, time
from pathlib import Path
from core.events import RoundCompleted, event_from_plain
from storage import RunStore
with open(sys.argv[2], encoding="utf-8") as lines:
    events = [event_from_plain(json.loads(line)) for line in lines]
"""

RECORDER = f"""{READ}
with RunStore(sys.argv[1]) as store:
    for event in events:
        store.record(event)
        if isinstance(event, RoundCompleted):
            print(event.round, time.time(), flush=True)
            time.sleep({PACE_S})
"""

FULL_DISK = f"""{READ}
import resource
path = Path(sys.argv[1])
store = RunStore(path)
for event in events[:41]:
    store.record(event)
assert store.flush()
size = Path(str(path) + "-wal").stat().st_size
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5_000, hard))
start = time.monotonic()
for event in events[41:]:
    store.record(event)
assert time.monotonic() - start < 0.5
end = time.monotonic() + 10
while not store.status().paused:
    assert time.monotonic() < end
    time.sleep(0.01)
assert store.status().dropped == 0
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert store.flush(), store.status()
assert not store.status().paused
assert list(store.events("synthetic-0")) == events
store.close()
"""


def write_events(path: Path, events: Sequence[Event]) -> str:
    file = path.with_name("events.jsonl")
    lines = (json.dumps(event_to_plain(event)) + "\n" for event in events)
    file.write_text("".join(lines), encoding="utf-8")
    return str(file)


@contextmanager
def recorder(path: Path, run_id: str) -> Iterator[subprocess.Popen[str]]:
    events = synthetic_run(ROUNDS, end="cut", run_id=run_id)
    command = [sys.executable, "-c", RECORDER, str(path), write_events(path, events)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], number: int) -> list[str]:
    return list(itertools.islice(process.stdout, number))


@pytest.mark.nightly
@pytest.mark.parametrize("rounds", [7, 40, 75])
def test_after_kill_9_every_round_older_than_250_ms_is_on_disk(path: Path, rounds: int) -> None:
    with recorder(path, "killed") as process:
        lines = lines_until(process, rounds)
        process.kill()
        killed_at = time.time()
        lines += process.stdout.readlines()
        process.wait()
    assert process.returncode != 0
    stamped = [(int(number), float(at)) for number, at in map(str.split, lines)]
    safe = [number for number, at in stamped if at < killed_at - SAFE_AFTER_S]
    assert rounds < 20 or safe, "no round is old enough to be checked"

    with closing(connect(path, timeout=1)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    with RunStore(path) as store:
        if not safe and not store.runs(RunQuery()).total:
            return  # the process was killed before its first transaction
        result = store.events("killed")
        expected = synthetic_run(ROUNDS, end="cut", run_id="killed")
        assert list(result) == expected[: len(result)]
        assert (len(result) - 1) % 4 == 0, "only complete rounds are stored"
        kept = [event.round for event in result if isinstance(event, RoundCompleted)]
        assert set(safe) <= set(kept)
        assert len(kept) <= len(stamped) + 1

        run = store.run("killed")
        fold = StatsFold()
        for event in result:
            fold.observe(event)
        assert run.status == "interrupted"
        assert run.stats == fold.stats(result[-1].at_ms)
        assert run.output == "".join(
            delta for e in result if isinstance(e, RoundCompleted) for delta in e.text_deltas
        )
        assert run.num_rounds == len(kept)
        last_word = run.output.split()[-1]
        assert store.runs(RunQuery(text=last_word)).total == 1, "its text can be searched"


@pytest.mark.nightly
def test_a_run_of_a_living_process_stays_running(path: Path) -> None:
    with recorder(path, "living") as process:
        lines_until(process, 30)
        with RunStore(path) as store:
            assert store.run("living").status == "running"
            assert store.run("living").num_rounds > 10
            assert store.run("living").output
            assert store.run("living").stats is None
        lines_until(process, 5)
        with RunStore(path) as store:
            assert store.run("living").status == "running"
            process.kill()
            process.wait()
            assert store.run("living").status == "running", "a store checks only when it opens"
    with RunStore(path) as store:
        assert store.run("living").status == "interrupted"
        assert store.runs(RunQuery(status="interrupted")).total == 1


@pytest.mark.nightly
def test_a_run_of_another_host_is_interrupted_when_its_last_round_is_old(path: Path) -> None:
    with recorder(path, "away") as process:
        lines_until(process, 30)

    def status(seconds_ago: float) -> str:
        """The status of a run of another host whose last round ended `seconds_ago`."""
        with closing(connect(path, timeout=5)) as connection, connection:
            last = connection.execute("SELECT max(completed_at_ms) FROM rounds").fetchone()[0]
            start = connection.execute("SELECT start_at_ms FROM runs").fetchone()[0]
            created = time.time() - seconds_ago - (last - start) / 1000
            values = ("a container that ended", datetime.fromtimestamp(created, UTC).isoformat())
            connection.execute("UPDATE runs SET host = ?, created_utc = ?", values)
        with RunStore(path) as store:
            return store.run("away").status

    assert status(HEARTBEAT_TIMEOUT_S - 60) == "running"
    assert status(HEARTBEAT_TIMEOUT_S + 2) == "interrupted"


@pytest.mark.nightly
def test_a_killed_process_that_was_not_waited_for_counts_as_ended(path: Path) -> None:
    with recorder(path, "zombie") as process:
        lines_until(process, 30)
        process.kill()
        process.stdout.read()  # returns at the process's end; the process is a zombie until wait()
        time.sleep(0.05)
        with RunStore(path) as store:
            assert store.run("zombie").status == "interrupted"


@pytest.mark.nightly
def test_two_processes_write_to_one_file(path: Path, keep: Any) -> None:
    with recorder(path, "theirs") as process:
        lines_until(process, 10)
        with RunStore(path) as store:
            for seed in range(10):
                for event in synthetic_run(10, seed=seed):
                    store.record(event)
                time.sleep(0.02)
            assert store.flush()
            assert store.status().dropped == 0
            lines_until(process, 5)
            for seed in range(10):
                assert list(store.events(f"synthetic-{seed}")) == synthetic_run(10, seed=seed)
            time.sleep(SAFE_AFTER_S)
            theirs = store.events("theirs")
            expected = synthetic_run(ROUNDS, end="cut", run_id="theirs")
            assert list(theirs) == expected[: len(theirs)]
            assert len(theirs) > 4 * 15


def test_two_stores_in_one_process_see_each_others_runs(path: Path, keep: Any) -> None:
    with RunStore(path) as one, RunStore(path) as other:
        first, second = synthetic_run(20, seed=1), synthetic_run(20, seed=2)
        for a, b in zip(first, second, strict=True):
            one.record(a)
            other.record(b)
        assert one.flush()
        assert other.flush()
        assert list(other.events("synthetic-1")) == first
        assert list(one.events("synthetic-2")) == second
        one.delete("synthetic-2")
        assert other.runs(RunQuery()).total == 1


def test_a_run_that_another_store_deletes_while_it_is_recorded_stays_deleted(
    path: Path, keep: Any
) -> None:
    with RunStore(path) as one, RunStore(path) as other:
        events = synthetic_run(10)
        keep(one, events[:9])
        other.delete("synthetic-0")
        keep(other, synthetic_run(2, run_id="new"))
        keep(one, events[9:])
        assert [run.run_id for run in one.runs(RunQuery()).rows] == ["new"]
        assert list(one.events("new")) == synthetic_run(2, run_id="new")


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
def test_a_full_disk_pauses_the_log_and_loses_nothing(path: Path) -> None:
    """A file size limit acts like a full disk, and needs no root."""
    command = [sys.executable, "-c", FULL_DISK, str(path), write_events(path, synthetic_run(60))]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
