"""How smoothly a long run is drawn: gaps between a real browser's frames while it streams.

    python -m tests.ui.frame_gaps [--rounds 500] [--speed 1.0]

A SYNTHETIC run of 500 rounds (about 2,000 tokens) goes the whole way of a live one: worker, tap,
player, values, stream diff, pictures. PAGE asks for 95 % of the gaps under 50 ms. Run it on a quiet
machine: browser, server and measurement share its cores.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from storage import RunQuery, RunStore
from tests.ui.fakes import FakeWorker, recorded
from tests.ui.serving import served
from ui.context import make_context
from ui.page import build_page
from ui.visitors import Access

WATCH = """() => {
  const gaps = []; const long = []; let last = performance.now(); let on = true;
  const tick = (now) => { gaps.push(now - last); last = now; if (on) requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  new PerformanceObserver((list) => list.getEntries().forEach((e) => long.push(e.duration)))
    .observe({ entryTypes: ["longtask"] });
  window.__gaps = () => { on = false; return { gaps, long }; };
}"""
LIMIT_MS = 120_000


def measure(browser: Any, rounds: int, speed: float) -> dict[str, float]:
    """Milliseconds between frames: median, 95th percentile, worst; how many; how long it took."""
    with tempfile.TemporaryDirectory() as folder, RunStore(Path(folder) / "runs.db") as store:
        worker = FakeWorker(recorded(rounds), speed=speed)
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
        with served(build_page(context)) as url:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(LIMIT_MS)
            page.goto(url)
            page.get_by_text("Press Run").wait_for()
            page.evaluate(WATCH)
            page.click("#live-run")
            page.get_by_text("Finished: ").wait_for()
            found = page.evaluate("() => window.__gaps()")
            page.close()
    gaps, long = sorted(found["gaps"]), found["long"]
    return {
        "frames": len(gaps),
        "seconds": sum(gaps) / 1000,
        "median": gaps[len(gaps) // 2],
        "p95": gaps[int(0.95 * len(gaps))],
        "p99": gaps[int(0.99 * len(gaps))],
        "worst": gaps[-1],
        "under_50": sum(gap <= 50 for gap in gaps) / len(gaps),
        "long_tasks": len(long),
        "longest_task": max(long, default=0.0),
    }


def main() -> None:
    """Measure and print one line of figures."""
    from playwright.sync_api import sync_playwright

    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=500)
    p.add_argument("--speed", type=float, default=1.0, help="2 plays half as fast")
    args = p.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        figures = measure(browser, args.rounds, args.speed)
        browser.close()
    print(", ".join(f"{name} {value:.4g}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
