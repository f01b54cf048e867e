"""The `page` and `watching` suites without a browser."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from bench.context import Report
from bench.page import runs, site
from bench.page.browser import chromium
from bench.page.runs import ENGINE, can_pin, engine_thread, pace, pin_thread, spread_threads
from bench.page.site import EventClock
from bench.results import Results
from bench.suites import watching
from bench.suites.page import FACTS, tables
from bench.suites.watching import APART, HEADLESS, SHARED, WATCHED

DELAYS = {"late_ms": [40.0, 60.0, 90.0], "updates_per_second": 14.0, "shift": 0.0}
FRAMES = {"under_50": 0.97, "p95": 20.0, "worst": 120.0, "longest_task": 110.0}
WITHIN_BOUNDS: dict[str, Any] = {
    "frames": FRAMES,
    "frames at once": FRAMES,
    "60 rounds a second": DELAYS,
    "300 rounds a second": DELAYS,
    "stop": {"ms": 30.0, "ms_in_the_engine": 8.0, "rounds": 1, "of": 40},
}


def report_of(tmp_path: Path, changes: dict[str, Any], *problems: str) -> Report:
    results = Results.open(tmp_path / "page.json", {"suite": "page"})
    for fact, figures in {**WITHIN_BOUNDS, **changes}.items():
        # A machine without a load average stores None.
        sample = {
            "fact": fact,
            "repeat": 0,
            "load": None if fact == "stop" else 1.0,
            "figures": figures,
        }
        results.add({**sample, "problems": list(problems) if fact == "frames" else []})
    return tables(results)


def test_figures_within_all_bounds_have_their_lines_and_no_failure(tmp_path: Path) -> None:
    assert set(WITHIN_BOUNDS) == set(FACTS)
    report = report_of(tmp_path, {})
    assert report.failures == ()
    lines = [line for line in report.tables[0].splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + 2 * 4 + 2 * 4 + 3 + 2 and not [
        line for line in lines if line.endswith("| no |")
    ]


@pytest.mark.parametrize(
    ("fact", "figures", "message"),
    [
        ("frames", {**FRAMES, "under_50": 0.9}, "at most 50 ms"),
        ("60 rounds a second", {**DELAYS, "late_ms": [150.0] * 5}, "median"),
        ("300 rounds a second", {**DELAYS, "updates_per_second": 7.0}, "updates"),
        ("300 rounds a second", {**DELAYS, "shift": 0.2}, "layout shift"),
        ("stop", {"ms": 30.0, "ms_in_the_engine": 8.0, "rounds": 2, "of": 40}, "Stop: rounds"),
    ],
)
def test_a_figure_outside_its_bound_is_a_failure(
    tmp_path: Path, fact: str, figures: Any, message: str
) -> None:
    report = report_of(tmp_path, {fact: figures})
    assert len(report.failures) >= 1 and any(message in failure for failure in report.failures)


def test_requests_to_other_hosts_and_errors_have_separate_lines(tmp_path: Path) -> None:
    problems = ["request to another host: http://x", "console: bad"]
    report = report_of(tmp_path, {}, *problems)
    assert [failure.split(",")[0] for failure in report.failures] == [
        "no request to another host",
        "no error in the console",
    ]


def watched_tables(
    tmp_path: Path, watched: float, cores: tuple[str, ...] = (APART, SHARED)
) -> tuple[str, ...]:
    """`watched`: the watched speed divided by the headless speed."""
    results = Results.open(tmp_path / "watching.json", {"suite": "watching"})
    for repeat in range(3):
        figures = {}
        for name in cores:
            figures |= {f"{HEADLESS}, {name}": 200.0, f"{WATCHED}, {name}": 200.0 * watched}
        sample = {"preset": "specinfer", "prompt": f"p{repeat}", "repeat": 0, "load": 1.0}
        results.add({**sample, "figures": figures})
    return watching.tables(results)


@pytest.mark.parametrize(("watched", "verdict"), [(0.96, "reached"), (0.5, "not reached, by 0.45")])
def test_being_watched_may_cost_five_percent(tmp_path: Path, watched: float, verdict: str) -> None:
    speeds, claims = watched_tables(tmp_path, watched)
    assert f"| specinfer | {APART} | 200 (200 to 200) | {200 * watched:.0f} " in speeds
    assert f"| specinfer | {SHARED} | " in speeds
    assert claims.rstrip().endswith(f"| {verdict} |")


def test_without_a_second_core_nothing_is_claimed(tmp_path: Path) -> None:
    speeds, claims = watched_tables(tmp_path, 0.9, (SHARED,))
    assert APART not in speeds and "specinfer" not in claims


def test_the_pace_is_the_last_runs_without_its_first_round() -> None:
    clock = EventClock(tokens={"a": [0.0] * 9}, rounds={"a": [0.0]})
    clock.tokens["b"] = [1000.0, 1000.0, 1010.0, 1020.0, 1020.0, 1020.0]
    clock.rounds["b"] = [1000.0, 1010.0, 1020.0]
    assert pace(clock) == pytest.approx(4 / 0.020)


@pytest.mark.skipif(not can_pin(), reason="one core, or a system that cannot pin threads")
def test_a_pinned_thread_has_a_core_of_its_own_until_threads_are_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()
    engine = threading.Thread(target=stop.wait, name=ENGINE)
    engine.start()
    # Threads of other tests' engines may still run.
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), engine])
    before = os.sched_getaffinity(0)
    try:
        while engine.native_id is None:
            time.sleep(0.01)
        pin_thread(engine_thread())
        pinned, rest = os.sched_getaffinity(engine.native_id), os.sched_getaffinity(0)
        assert len(pinned) == 1 and rest and not pinned & rest
        spread_threads()
        assert os.sched_getaffinity(engine.native_id) == os.sched_getaffinity(0) >= before
    finally:
        stop.set()
        engine.join()
        spread_threads()


def test_only_cores_that_the_process_may_use_are_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    assigned: dict[int, set[int]] = {}
    monkeypatch.setattr(runs, "cores", lambda: (5, 6, 7))
    monkeypatch.setattr(runs, "_threads", lambda: iter((1, 2)))
    monkeypatch.setattr(runs, "_set_affinity", assigned.__setitem__)
    pin_thread(1)
    assert assigned == {1: {5}, 2: {6, 7}}
    spread_threads()
    assert assigned == {1: {5, 6, 7}, 2: {5, 6, 7}}


def test_a_site_that_is_left_by_an_error_closes_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("make_context", "build_page"):
        monkeypatch.setattr(site, name, MagicMock())
    monkeypatch.setattr(site, "serve", lambda page: nullcontext("http://here"))
    worker = MagicMock()
    with pytest.raises(ValueError, match="measured"), site.open_site(worker):
        assert not worker.close.called
        raise ValueError("measured")
    worker.close.assert_called_once_with()


def test_a_browser_that_is_left_by_an_error_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    playwright = MagicMock(Error=OSError)
    monkeypatch.setitem(sys.modules, "playwright", playwright)
    monkeypatch.setitem(sys.modules, "playwright.sync_api", playwright)
    started = playwright.sync_playwright.return_value
    started.__exit__.return_value = None
    browser = started.__enter__.return_value.chromium.launch.return_value
    with pytest.raises(ValueError, match="measured"), chromium("page") as opened:
        assert opened is browser and not browser.close.called
        raise ValueError("measured")
    browser.close.assert_called_once_with()
