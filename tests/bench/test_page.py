"""The tables of the `page` suite, from made-up samples; its measuring is a browser's work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.results import Results
from bench.suites.page import FACTS, tables

DELAYS = {"late_ms": [40.0, 60.0, 90.0], "updates_per_second": 14.0, "shift": 0.0}
FRAMES = {"under_50": 0.97, "p95": 20.0, "worst": 120.0, "longest_task": 110.0}
GOOD: dict[str, Any] = {
    "frames": FRAMES,
    "frames at once": FRAMES,
    "60 rounds a second": DELAYS,
    "300 rounds a second": DELAYS,
    "stop": {"ms": 30.0, "ms_in_the_engine": 8.0, "rounds": 1, "of": 40},
}


def results_of(tmp_path: Path, changes: dict[str, Any], problems: list[str]) -> Results:
    results = Results.open(tmp_path / "page.json", {"suite": "page"})
    for fact, figures in {**GOOD, **changes}.items():
        sample = {"fact": fact, "repeat": 0, "load": 1.0, "figures": figures}
        results.add({**sample, "problems": problems if fact == "frames" else []})
    return results


def test_every_fact_has_its_line_and_all_hold(tmp_path: Path) -> None:
    assert set(GOOD) == set(FACTS)
    report = tables(results_of(tmp_path, {}, []))
    assert report.failures == ()
    lines = [line for line in report.tables[0].splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + 2 * 4 + 2 * 4 + 3 + 2 and not [
        line for line in lines if line.endswith("| no |")
    ]


@pytest.mark.parametrize(
    ("fact", "figures", "told"),
    [
        ("frames", {**FRAMES, "under_50": 0.9}, "at most 50 ms"),
        ("60 rounds a second", {**DELAYS, "late_ms": [150.0] * 5}, "median"),
        ("300 rounds a second", {**DELAYS, "updates_per_second": 7.0}, "updates"),
        ("300 rounds a second", {**DELAYS, "shift": 0.2}, "layout shift"),
        ("stop", {"ms": 30.0, "ms_in_the_engine": 8.0, "rounds": 2, "of": 40}, "Stop: rounds"),
    ],
)
def test_what_does_not_hold_is_told_and_fails(
    tmp_path: Path, fact: str, figures: Any, told: str
) -> None:
    report = tables(results_of(tmp_path, {fact: figures}, []))
    assert len(report.failures) >= 1 and any(told in failure for failure in report.failures)


def test_a_request_elsewhere_and_an_error_are_told_apart(tmp_path: Path) -> None:
    told = ["request to another host: http://x", "console: bad"]
    report = tables(results_of(tmp_path, {}, told))
    assert [failure.split(",")[0] for failure in report.failures] == [
        "no request to another host",
        "no error in the console",
    ]


def test_what_was_measured_before_is_read_and_what_is_no_figure_is_left_out(tmp_path: Path) -> None:
    """Files of before hold facts that are tests by now."""
    report = tables(results_of(tmp_path, {"keys": {"failed": ["step"]}, "axe, dark": ["x"]}, []))
    assert report.failures == () and "step" not in report.tables[0]
