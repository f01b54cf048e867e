"""The `watching` suite: its tables from made-up samples, its figure, its cores; what it sees is a
browser's work."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from bench.page.runs import ENGINE, apart, can_part, engine_thread, pace, spread_threads
from bench.page.site import EventClock
from bench.results import Results
from bench.suites.watching import APART, HEADLESS, SHARED, WATCHED, tables


def results_of(tmp_path: Path, watched: float, cores: tuple[str, ...] = (APART, SHARED)) -> Results:
    results = Results.open(tmp_path / "watching.json", {"suite": "watching"})
    for repeat in range(3):
        figures = {}
        for name in cores:
            figures |= {f"{HEADLESS}, {name}": 200.0, f"{WATCHED}, {name}": 200.0 * watched}
        sample = {"preset": "specinfer", "prompt": f"p{repeat}", "repeat": 0, "load": 1.0}
        results.add({**sample, "figures": figures})
    return results


@pytest.mark.parametrize(("watched", "verdict"), [(0.96, "reached"), (0.5, "not reached, by 0.45")])
def test_being_watched_may_cost_five_percent(tmp_path: Path, watched: float, verdict: str) -> None:
    whole, claims = tables(results_of(tmp_path, watched))
    assert f"| specinfer | {APART} | 200 (200 to 200) | {200 * watched:.0f} " in whole
    assert f"| specinfer | {SHARED} | " in whole
    assert claims.rstrip().endswith(f"| {verdict} |")


def test_without_a_second_core_nothing_is_claimed(tmp_path: Path) -> None:
    whole, claims = tables(results_of(tmp_path, 0.9, (SHARED,)))
    assert APART not in whole and "specinfer" not in claims


def test_the_pace_leaves_out_what_waits_for_the_prompt() -> None:
    clock = EventClock(tokens={"a": [0.0] * 9}, rounds={"a": [0.0]})
    clock.tokens["b"] = [1000.0, 1000.0, 1010.0, 1020.0, 1020.0, 1020.0]
    clock.rounds["b"] = [1000.0, 1010.0, 1020.0]
    assert pace(clock) == pytest.approx(4 / 0.020)


@pytest.mark.skipif(not can_part(), reason="one core, or a system that keeps no thread to one")
def test_a_thread_has_a_core_of_its_own_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others, and processes that were started, have the rest."""
    stop = threading.Event()
    engine = threading.Thread(target=stop.wait, name=ENGINE)
    engine.start()
    # Other tests' engines may still be about in this process.
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), engine])
    before = os.sched_getaffinity(0)
    try:
        while engine.native_id is None:
            time.sleep(0.01)
        apart(engine_thread())
        own, rest = os.sched_getaffinity(engine.native_id), os.sched_getaffinity(0)
        assert len(own) == 1 and rest and not own & rest
        spread_threads()
        assert os.sched_getaffinity(engine.native_id) == os.sched_getaffinity(0) >= before
    finally:
        stop.set()
        engine.join()
        spread_threads()
