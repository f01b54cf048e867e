"""The suites `start` and `visitors`, and the application that they start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from gradio_client import Client

from bench.application import Application, BenchError, application, free_port, resident_mb
from bench.suites import first_runs
from bench.suites.first_runs import TARGETS
from bench.suites.start import Start, Visitors
from core.models.loading.catalog import BUNDLED
from tests.ended import has_ended
from tests.ui.watched import WatchedApp, watched_app

ROOT = Path(__file__).resolve().parents[2]
OPEN_TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def running_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedApp]:
    """The application, which other machines can reach without a login."""
    port, database = free_port("0.0.0.0"), tmp_path_factory.mktemp("app") / "runs.db"
    host = {"GRADIO_SERVER_NAME": "0.0.0.0"}
    with watched_app(port, "--db", str(database), **host) as started:
        yield started


@pytest.fixture
def openings(running_app: WatchedApp, monkeypatch: pytest.MonkeyPatch) -> list[Application]:
    """Makes a suite open the running application in place of a new one. Lists the openings."""
    opened: list[Application] = []
    app = Application(f"http://127.0.0.1:{running_app.port}/", running_app.process.pid, 1.0)

    def open_app() -> AbstractContextManager[Application]:
        opened.append(app)
        return nullcontext(app)

    monkeypatch.setattr("bench.suites.start.application", open_app)
    return opened


@pytest.mark.nightly
def test_suite_start_measures_openings_memory_and_first_runs(
    make_context: Any, openings: list[Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No speeds are checked.
    monkeypatch.setattr(first_runs, "TOKENS", 8)
    of_process = cache(first_runs._runs_of_process)
    monkeypatch.setattr(first_runs, "_runs_of_process", of_process)
    # No core is kept busy.
    monkeypatch.setattr(first_runs, "BUSY_LOOP", "import time\ntime.sleep(600)")
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
    """The sample tells a resumed suite that all runs were measured."""
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
    suite = Visitors(counts=(1, 2), presets=("best",))
    suite.measure(context)
    assert len(openings) == 1
    (sample,) = context.results.samples
    assert [f["tokens"] for f in sample["figures"].values()] == [16, 32]
    assert suite.report(context).failures == ()
    assert "2 visitors" in suite.report(context).tables[0]


@pytest.mark.nightly
def test_the_start_prints_the_address_the_time_and_who_else_can_reach_it(
    running_app: WatchedApp,
) -> None:
    match = re.search(
        r"is open at (http\S+) \(first request answered ([\d.]+) s after the start\)",
        running_app.opened,
    )
    assert match and str(running_app.port) in match[1]
    assert float(match[2]) < OPEN_TIMEOUT_S
    assert running_app.process.stdout is not None
    second = running_app.process.stdout.readline()
    reach = rf"Others reach it at http://\S+:{running_app.port}/: anyone on the network may"
    assert re.search(reach, second)
    assert "their own browser, nobody else's" in second and "--auth" in second
    assert "0.0.0.0" not in second, "an address that another machine can use"


@pytest.mark.nightly
def test_gradio_server_name_is_used_and_no_file_of_the_server_can_be_read(
    running_app: WatchedApp,
) -> None:
    with urlopen(f"http://127.0.0.2:{running_app.port}/", timeout=10) as answer:
        assert answer.status == 200 and b"SpecScope" in answer.read()
    for path in ("requirements.txt", "app.py", "bundled/llm/config.json", "/etc/hostname"):
        with pytest.raises(HTTPError) as caught:
            urlopen(f"http://127.0.0.1:{running_app.port}/gradio_api/file={path}", timeout=10)
        assert caught.value.code in (403, 404)
        caught.value.close()


@pytest.mark.nightly
def test_the_engine_answers_without_compiling_and_an_interrupt_ends_it(
    running_app: WatchedApp,
) -> None:
    process = running_app.process
    running_app.check_start()
    running_app.ask(BUNDLED)
    client = Client(f"http://127.0.0.1:{running_app.port}/", verbose=False)
    spec = client.predict(prompt="Once upon a time", max_new_tokens=24, api_name="/generate")
    plain = client.predict(
        prompt="Once upon a time", max_new_tokens=24, preset="autoregressive", api_name="/generate"
    )
    assert spec["token_ids"] == plain["token_ids"] and len(spec["token_ids"]) == 24
    assert spec["summary"]["num_rounds"] < 24 == plain["summary"]["num_rounds"]
    client.close()
    process.send_signal(signal.SIGINT)
    end = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert process.returncode in (0, 130)
    output, _ = process.communicate(timeout=60)
    assert "WATCHED" not in output, "compiled or timed in the first requests"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SERVER_CODE)
    monkeypatch.setattr("bench.application.ROOT", tmp_path)


@pytest.mark.usefixtures("server")
def test_an_application_serves_its_page_and_ends_with_its_block() -> None:
    with application() as app:
        assert app.startup_s > 0
        with urlopen(app.url, timeout=10) as answer:
            assert answer.status == 200
    assert has_ended(app.pid)


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
    """The first line that the code prints in a process, which is then killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe) as one:
        assert one.stdout
        line = one.stdout.readline().decode()
        one.kill()
    return line


@pytest.mark.usefixtures("server")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_application_ends_and_deletes_its_folder_when_its_parent_is_killed(
    tmp_path: Path,
) -> None:
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
    """Samples of an opening, an interrupted application (which must not count), and a complete
    application. `runs`: numbers of runs, with the megabytes after them."""
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
    """`failures`: parts of the expected sentences."""
    context = make_context()
    for sample in samples:
        context.results.add(sample)
    result = Start().report(context).failures
    assert all(part in sentence for part, sentence in zip(failures, result, strict=True))


def process_sample(number: int, busy: bool, first: tuple[float, float]) -> dict[str, Any]:
    """A sample with tokens a pass and tokens a second: `first` for the first run, 4 and 1000 for
    the last run."""
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
    """Prints its process id first."""
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
