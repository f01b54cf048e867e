"""The `start` and `visitors` suites: the real application, and tables from made-up samples."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.application import Application, BenchError, application, resident_mb
from bench.suites.first_runs import TARGETS
from bench.suites.start import Start, Visitors
from tests.ended import has_ended

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def app() -> Iterator[Application]:
    """The application, opened once for all tests here: opening takes ten seconds of CPU time."""
    with application() as opened:
        yield opened
    assert has_ended(opened.pid)


@pytest.fixture
def openings(app: Application, monkeypatch: pytest.MonkeyPatch) -> list[Application]:
    """An entry for each application that a suite opens; each entry is `app`."""
    opened: list[Application] = []

    def open_app() -> AbstractContextManager[Application]:
        opened.append(app)
        return nullcontext(app)

    monkeypatch.setattr("bench.suites.start.application", open_app)
    return opened


@pytest.mark.nightly
def test_the_application_opens_runs_and_ends(
    make_context: Any, openings: list[Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short runs suffice, since no speeds are checked; each process still makes ten runs.
    monkeypatch.setattr("bench.suites.first_runs.TOKENS", 8)
    # The process that would keep a core busy sleeps instead.
    monkeypatch.setattr("bench.suites.first_runs.BUSY_LOOP", "import time\ntime.sleep(600)")
    messages: list[str] = []
    context = make_context(messages.append)
    Start(runs=2, processes=1).measure(context)
    sample, *further = [one for one in context.results.samples if "process" not in one]
    assert sample["opened_s"] > 0
    assert [one["runs"] for one in further] == [1, 2]
    if sys.platform.startswith("linux"):  # elsewhere `resident_mb` returns None
        memory = [sample["opened_mb"], *(one["runs_mb"] for one in further)]
        assert all(200 < mb < 4000 for mb in memory)
    assert (
        messages[0].startswith("opening 1")
        and messages[-1] == "first runs: 1 of 1 pairs of processes"
    )
    assert [len(one["runs"]) for one in context.results.samples if "process" in one] == [10, 10]
    Start(runs=2, processes=1).measure(make_context(messages.append))
    assert len(context.results.samples) == 5, "existing samples are not measured again"
    assert len(openings) == 2, "one application is opened to be timed, one for the runs"
    assert "seconds until the page is open" in Start().report(context).tables[0]


def test_the_last_run_has_a_sample(make_context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From this sample a resumed suite knows that all runs were measured."""
    client = SimpleNamespace(predict=lambda **_: None)
    monkeypatch.setattr("gradio_client.Client", lambda *_, **__: client)
    context, app = make_context(), Application("", os.getpid(), 0.0)
    Start(runs=25)._run(context, app)
    assert [one["runs"] for one in context.results.samples] == [*range(2, 25, 2), 25]


@pytest.mark.nightly
def test_several_visitors_get_a_lone_visitors_texts(
    make_context: Any, openings: list[Application]
) -> None:
    context = make_context()
    suite = Visitors(counts=(1, 3), presets=("best",))
    suite.measure(context)
    assert len(openings) == 1
    (sample,) = context.results.samples
    assert [f["tokens"] for f in sample["figures"].values()] == [16, 48]
    assert suite.report(context).failures == ()
    assert "3 visitors" in suite.report(context).tables[0]


def test_an_application_that_exits_before_serving_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('no models here')")
    monkeypatch.setattr("bench.application.ROOT", tmp_path)
    with pytest.raises(BenchError, match="exited with code 1: no models here"), application():
        pytest.fail("an application that exits is yielded")


def test_an_application_that_serves_no_page_in_time_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("import time\ntime.sleep(60)")
    monkeypatch.setattr("bench.application.ROOT", tmp_path)
    monkeypatch.setattr("bench.application.TIMEOUT_S", 0.2)
    expected = "served no page within 0.2 s: it printed nothing"
    with pytest.raises(BenchError, match=expected), application():
        pytest.fail("an application that serves nothing is yielded")


def test_a_process_that_does_not_exist_has_no_resident_memory() -> None:
    assert resident_mb(2**22 + 1) is None  # Linux's process ids are at most 2^22


def first_line(code: str) -> str:
    """Runs Python code in a process. Returns the first line that the process prints, and kills the
    process."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe) as one:
        assert one.stdout
        line = one.stdout.readline().decode()
        one.kill()
    return line


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_application_ends_and_deletes_its_folder_when_its_parent_is_killed(
    tmp_path: Path,
) -> None:
    """Otherwise the application would take CPU time from the next measurement."""
    (tmp_path / "app.py").write_text(SERVER_CODE)
    parent_code = f"""
from pathlib import Path
import bench.application as a
a.ROOT = Path({str(tmp_path)!r})
with a.application() as app:
    log = Path(f"/proc/{{app.pid}}/fd/1").resolve()
    print(app.pid, log, flush=True)
    input()
"""
    pid, log = first_line(parent_code).split()
    assert has_ended(int(pid))
    assert not Path(log).parent.exists()


SERVER_CODE = """
import http.server as h
import sys
h.HTTPServer(("127.0.0.1", int(sys.argv[2])), h.SimpleHTTPRequestHandler).serve_forever()
"""


def opening_samples(
    seconds: float, mb: float, runs: list[tuple[int, float]]
) -> list[dict[str, Any]]:
    """Samples of an opening, of an interrupted application (which must not count), and of the
    complete application after it. A pair of `runs` is a number of runs and the megabytes after
    these runs."""
    interrupted = {"pid": 1, "runs": 450, "runs_mb": 4000.0}
    complete = [{"pid": 2, "runs": number, "runs_mb": mb} for number, mb in runs]
    return [{"repeat": 0, "opened_s": seconds, "opened_mb": mb}, interrupted, *complete]


@pytest.mark.parametrize(
    ("samples", "failures"),
    [
        (opening_samples(9.9, 1100.0, [(100, 1150.0), (500, 1190.0)]), []),
        (opening_samples(10.0, 1100.0, [(100, 1100.0)]), ["open: 10.0 (10.0 to 10.0), target"]),
        (
            opening_samples(5.0, 1100.0, [(100, 1150.0), (500, 1200.0)]),
            ["MB: 1200", "MB: 50, target"],
        ),
        (
            opening_samples(5.0, 1000.0, [(50, 900.0), (100, 1000.0), (500, 1041.0)]),
            ["runs on, MB: 41"],
        ),
    ],
)
def test_a_figure_outside_its_bound_is_a_failure(
    make_context: Any, samples: list[dict[str, Any]], failures: list[str]
) -> None:
    """`failures`: a part of each expected sentence."""
    context = make_context()
    for sample in samples:
        context.results.add(sample)
    result = Start().report(context).failures
    assert all(part in sentence for part, sentence in zip(failures, result, strict=True))


def process_sample(number: int, busy: bool, first: tuple[float, float]) -> dict[str, Any]:
    """A process of two runs with the figures of TARGETS (tokens a pass, tokens a second): `first`
    for the first run, 4 and 1000 for the last run."""
    runs = [dict(zip(TARGETS, figures, strict=True)) for figures in (first, (4.0, 1000.0))]
    return {"process": number, "busy": busy, "runs": runs}


@pytest.mark.parametrize(
    ("first", "missed"),
    [
        ((3.4, 800.0), []),
        ((3.3, 900.0), ["first run / tenth, tokens per pass, beside a busy process: 0.82"]),
        ((4.0, 700.0), ["first run / tenth, tokens per second, beside a busy process: 0.70"]),
    ],
)
def test_a_first_run_below_its_target_is_a_failure(
    make_context: Any, first: tuple[float, float], missed: list[str]
) -> None:
    context = make_context()
    for number in range(3):
        context.results.add(process_sample(number, False, (4.0, 1000.0)))
        context.results.add(process_sample(number, True, first))
    report = Start().report(context)
    assert (
        "| first run / tenth, tokens per pass, alone | 1.00 (1.00 to 1.00), least 1.00 of 3 |"
        in (report.tables[0])
    )
    for failure, beginning in zip(report.failures, missed, strict=True):
        assert failure.startswith(beginning)


def test_a_text_that_differs_from_a_lone_visitors_is_a_failure(make_context: Any) -> None:
    context = make_context()
    figures = {
        "1": {"tokens": 8, "seconds": 1.0, "differ": []},
        "8": {"tokens": 64, "seconds": 4.0, "differ": ["dev-code-45"]},
    }
    context.results.add({"preset": "best", "repeat": 0, "figures": figures})
    report = Visitors().report(context)
    assert report.failures == ("best, 8 visitors: other text than alone for dev-code-45",)
    (table,) = report.tables
    assert "| best | 8 (8 to 8) | 16 (16 to 16), 2.00x (2.00 to 2.00) |" in table


def work(seconds: float) -> None:
    """Prints its process id, then sleeps."""
    print(os.getpid(), flush=True)
    time.sleep(seconds)


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_worker_processes_end_when_their_suite_is_killed() -> None:
    parent_code = """
from bench.suites.process_pool import map_processes
from tests.bench.test_start import work
list(map_processes(1, work, [60.0]))
"""
    assert has_ended(int(first_line(parent_code)))
