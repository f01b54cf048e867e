"""Studies on a fake worker and a real log."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError, ContextLengthError, StoreError, StudyError
from lab.conductor import Conductor
from lab.measured import Measured
from lab.order import Cell
from lab.prompts import StudyPrompt
from lab.study import Configuration, Study, plain_configuration
from lab.tables import configuration_rows, prompt_rows
from storage import RunQuery, RunStore
from tests.lab.grids import study_of
from tests.logs import log_at
from tests.ui.fakes import INFOS, FakeWorker, endless, script_of
from ui.server.session import Hub
from ui.server.study_runs import StudyRuns

MODELS = tuple(f"{info.name} (float32, cpu)" for info in INFOS)


def study(**changes: object) -> Study:
    tree = Configuration("specinfer", SpeculationConfig.preset("specinfer"))
    built_study = study_of((plain_configuration(), tree), kind="compare", models=MODELS, repeats=2)
    prompts = (StudyPrompt("1", "Once"), StudyPrompt("2", "Twice", "stories"))
    return replace(built_study, **{"study_id": "s1", "prompts": prompts, **changes})  # type: ignore[arg-type]


class Lab:
    def __init__(self, path: Path, slowdown: float = 0.0, rounds: int = 4) -> None:
        self.store = RunStore(log_at(path))
        self.worker = FakeWorker(script_of(rounds), slowdown=slowdown)
        self.hub = Hub(self.worker, self.store)
        self.runs = StudyRuns(self.hub)
        self.conductor = Conductor(self.runs, self.store.studies)

    def results(self) -> dict[Cell, Measured]:
        result = self.store.studies.results("s1")
        return {Cell(*key): Measured.from_plain(value) for key, value in result.items()}

    def close(self) -> None:
        self.conductor.close()
        self.worker.clear()
        self.store.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab(tmp_path / "log.db")
    yield opened
    opened.close()


def until(lab: Lab, done: int) -> None:
    for _ in range(3000):
        if lab.conductor.progress().done >= done:
            return
        lab.conductor.wait(0.005)
    raise AssertionError(lab.conductor.progress())


def test_a_study_is_measured_to_its_end(lab: Lab) -> None:
    lab.conductor.begin(study(), "me")
    assert lab.conductor.wait(20)
    end = lab.conductor.progress()
    assert (end.state, end.done, end.total, end.reason) == ("completed", 8, 8, "")
    assert set(lab.results()) == set(study().cells())
    row, plain = lab.store.studies.study("s1")
    assert (row.state, row.done, row.owner) == ("completed", 8, "me")
    assert Study.from_plain(plain) == study()
    lab.store.flush()
    rows = lab.store.runs(RunQuery()).rows  # without the warm-up runs
    assert {row.run_id for row in rows} == {one.run_id for one in lab.results().values()}
    assert {row.owner for row in rows} == {"me"}


@pytest.mark.parametrize("sampling", ["abc", None, [["seed", 1]]])
def test_a_stored_study_with_other_sampling_is_refused(sampling: object) -> None:
    with pytest.raises(ConfigError, match="a study of this version"):
        Study.from_plain({**study().to_plain(), "sampling": sampling})


def test_the_tables_have_the_measured_figures(lab: Lab) -> None:
    lab.conductor.begin(study())
    lab.conductor.wait(20)
    results = lab.results()
    plain, tree = configuration_rows(study(), results)
    speeds = [r.stats.tokens_per_second for c, r in results.items() if c.contestant == "specinfer"]
    assert (tree.slowest, tree.fastest, tree.cells) == (min(speeds), max(speeds), 4)
    assert plain.ratio is None and tree.ratio is not None and tree.ratio.value > 0
    assert tree.same.kind == "identical" and tree.same.cells == 4
    rows = prompt_rows(study(), results)
    assert [(row.prompt, row.domain) for row in rows[::2]] == [("1", ""), ("2", "stories")]
    assert all(len(row.runs) == 2 for row in rows)


def test_a_stopped_study_continues_after_its_kept_cells(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "log.db", slowdown=0.3)
    lab.conductor.begin(study())
    until(lab, 3)
    lab.conductor.stop()
    assert lab.conductor.wait(20)
    results = lab.results()
    assert lab.conductor.progress().state == "stopped" and 3 <= len(results) < 8
    lab.close()

    again = Lab(tmp_path / "log.db")  # as after a restart
    row, plain = again.store.studies.study("s1")
    assert row.state == "stopped"
    again.conductor.resume(Study.from_plain(plain))
    again.conductor.wait(20)
    after = again.results()
    assert len(after) == 8 and {cell: after[cell] for cell in results} == results
    again.close()


def test_a_resumed_study_reports_its_kept_cells_at_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "log.db", slowdown=0.3)
    lab.conductor.begin(study())
    assert lab.conductor.progress().is_warming_up
    until(lab, 3)
    assert not lab.conductor.progress().is_warming_up
    lab.conductor.stop()
    assert lab.conductor.wait(20)
    num_results = len(lab.results())
    lab.worker.set_script(endless, slowdown=5.0)
    visit = lab.hub.start(Request("A visitor's, which goes first"), "visitor")
    lab.conductor.resume(study())
    progress = lab.conductor.progress()
    assert (progress.done, progress.total, progress.is_warming_up) == (num_results, 8, True)
    visit.cancel()
    lab.conductor.stop()
    assert lab.conductor.wait(20) and not lab.conductor.progress().is_warming_up
    lab.close()


def test_a_visitors_run_goes_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "log.db", slowdown=1.0, rounds=12)
    lab.conductor.begin(study(repeats=1))
    until(lab, 1)
    while lab.runs.busy() == 0:
        lab.conductor.wait(0.002)
    visit = lab.hub.start(Request("A visitor's"), "visitor")
    states = set()
    while not visit.is_done:
        states.add(lab.conductor.progress().state)
        visit.wait_done(0.005)
    assert "waiting" in states
    assert lab.conductor.wait(60)
    end = lab.conductor.progress()
    assert end.state == "completed" and end.done == 4 and end.lost >= 1
    # The interrupted run is deleted from the log.
    run_ids = {result.run_id for result in lab.results().values()}
    rows = {row.run_id: row.status for row in lab.store.runs(RunQuery()).rows}
    assert set(rows) == {*run_ids, visit.run_id}
    assert all(rows[run_id] == "completed" for run_id in run_ids)
    assert rows[visit.run_id] == "completed"
    lab.close()


@pytest.mark.parametrize(
    ("own", "loaded", "same"),
    [
        ("llm (float32, cpu, 1a)", "llm (float32, cpu, 1a)", True),
        ("llm (float32, cpu, 1a)", "llm (float32, cpu, 2b)", False),
        ("llm (float32, cpu)", "llm (float32, cpu, 2b)", True),  # an older study has no fingerprint
        ("llm (float32, cpu)", "llm (float32, cuda, 2b)", False),
        ("llm", "llm (float32, cpu, 2b)", False),
    ],
)
def test_a_study_is_only_of_its_own_models(own: str, loaded: str, same: bool) -> None:
    assert study(models=(own, "ssm")).is_of((loaded, "ssm")) is same
    assert not study(models=(own,)).is_of((loaded, "ssm"))


def test_one_study_runs_at_a_time_and_only_on_its_models(lab: Lab) -> None:
    with pytest.raises(StudyError, match="but synthetic-llm .float32, cpu., ssm-code"):
        lab.conductor.begin(study(models=("other",)))
    lab.worker.set_script(script_of(8), slowdown=0.5)
    lab.conductor.begin(study())
    with pytest.raises(StudyError, match="one at a time"):
        lab.conductor.begin(study(study_id="s2"))
    lab.conductor.stop("another")
    assert lab.conductor.progress().state in ("running", "waiting")


def test_a_failing_run_ends_the_study_with_its_reason(lab: Lab) -> None:
    lab.worker.set_script(script_of(4, end="failed"), slowdown=0.0)
    lab.conductor.begin(study())
    lab.conductor.wait(20)
    end = lab.conductor.progress()
    assert end.state == "failed" and "failed" in end.reason
    assert end.reason.startswith("specinfer, prompt 1, repeat 1: run ")
    assert lab.store.studies.study("s1")[0].state == "failed"


def test_what_cannot_be_run_is_refused_before_a_study_is_stored(lab: Lab) -> None:
    prompts = (StudyPrompt("1", "Once"), StudyPrompt("long", "And then so on " * 6000))
    message = r'^prompt long \("And then so on.*\.\.\."\) cannot be run'
    with pytest.raises(ContextLengthError, match=message):
        lab.conductor.begin(study(prompts=prompts))
    nobody = SpeculationConfig(drafters=("nobody",))
    missing = (plain_configuration(), Configuration("mine", nobody))
    message = "^configuration mine cannot be run: drafters is 'nobody'"
    with pytest.raises(ConfigError, match=message):
        lab.conductor.begin(study(configurations=missing))
    assert not lab.worker.requests and not lab.conductor.progress().is_active
    assert lab.store.studies.studies() == ()


def test_a_configuration_is_checked_at_its_own_temperature(lab: Lab) -> None:
    """The study's temperature is 0, at which `mss` cannot run."""
    sampled = SpeculationConfig(draft="sampled", verify="mss")
    lab.conductor.begin(
        study(configurations=(plain_configuration(), Configuration("warm", sampled, 0.8)))
    )
    lab.conductor.wait(20)
    assert lab.conductor.progress().state == "completed"


def test_a_stored_study_that_cannot_be_resumed_is_refused_and_stays_stored(lab: Lab) -> None:
    too_long = study(prompts=(StudyPrompt("1", "And so on " * 6000),))
    lab.store.studies.save(too_long.to_plain(), len(too_long))
    with pytest.raises(ContextLengthError, match="^prompt 1 .* cannot be run: prompt is 18000"):
        lab.conductor.resume(too_long)
    assert lab.store.studies.study("s1")[0].state == "stopped" and not lab.worker.requests


def test_an_invalid_study_is_refused() -> None:
    twice = (plain_configuration(), plain_configuration())
    with pytest.raises(ConfigError, match="each name once"):
        study(configurations=twice)
    with pytest.raises(ConfigError, match="repeats is 0"):
        study(repeats=0)
    with pytest.raises(ConfigError, match="seed"):
        study(sampling=SamplingParams(seed=2**63 - 1))
    mss = SpeculationConfig(draft="sampled", verify="mss")
    with pytest.raises(ConfigError, match="draft"):
        study(configurations=(Configuration("mss", mss),))


def test_a_change_of_the_loaded_models_ends_the_study(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "log.db", slowdown=0.3)
    lab.conductor.begin(study())
    until(lab, 2)
    lab.runs.models = lambda: ("other (bfloat16, cpu)",)  # type: ignore[method-assign]
    assert lab.conductor.wait(20)
    end = lab.conductor.progress()
    assert end.state == "stopped" and "the loaded models changed to" in end.reason
    assert 2 <= end.done < 8 and len(lab.results()) == end.done
    lab.close()


def test_a_short_run_during_a_cell_interrupts_it_too(tmp_path: Path) -> None:
    """The short run begins and ends between two polls: only `num_begun` shows it."""
    lab = Lab(tmp_path / "log.db", slowdown=0.3)
    counts = iter([0, 2])
    begun = lab.runs.num_begun

    def num_begun() -> int:
        return next(counts, None) or begun()

    lab.runs.num_begun = num_begun  # type: ignore[method-assign]
    lab.conductor.begin(study(repeats=1))
    assert lab.conductor.wait(30)
    end = lab.conductor.progress()
    assert end.state == "completed" and end.lost >= 1
    lab.close()


def test_a_study_sends_heartbeats_while_it_runs_and_while_it_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.conductor.HEARTBEAT_S", 0.0)
    lab = Lab(tmp_path / "log.db", slowdown=0.5)
    beats: list[tuple[str, str]] = []
    first_beat = threading.Event()

    def beat(study_id: str) -> None:
        beats.append((study_id, lab.conductor.progress().state))
        if not first_beat.is_set():
            first_beat.set()
            raise StoreError("the log is locked")

    monkeypatch.setattr(lab.store.studies, "beat", beat)
    lab.conductor.begin(study(repeats=1))
    assert first_beat.wait(10)
    lab.runs.start(Request("mine", SamplingParams(max_new_tokens=8)))
    assert lab.conductor.wait(20)
    assert {one for one, _ in beats} == {"s1"}
    assert {state for _, state in beats} == {"running", "waiting"}
    assert lab.conductor.progress().state == "completed", "a lost heartbeat changes nothing"
    lab.close()
