"""How smoothly a long run is drawn: gaps between frames in a real browser while a run streams.

    python -m bench.page.gaps [--rounds 500] [--slowdown 1.0]

PlaybackWorker replays a SYNTHETIC run of 500 rounds, 60 a second, to the page, which shows it as it
shows a live one. Target: 95 % of the gaps at most 50 ms, on a machine that runs nothing else, since
browser, server and measurement share its cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.page.browser import LIMIT_MS, Tab, choose, chromium, open_page, start_run, wait_for_end
from bench.page.playback import PlaybackWorker, playback, respace_events
from bench.page.site import Site, open_site
from bench.table_model import synthetic_run
from core.models.loading.load import LoadedModels, load_models

ROUNDS_A_SECOND = 60
WATCH = """() => {
  const gaps = []; const long = []; let last = performance.now(); let on = true;
  const tick = (now) => { gaps.push(now - last); last = now; if (on) requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  new PerformanceObserver((list) => list.getEntries().forEach((e) => long.push(e.duration)))
    .observe({ entryTypes: ["longtask"] });
  window.__gaps = () => { on = false; return { gaps, long }; };
}"""


def playback_worker(models: LoadedModels, rounds: int, rounds_a_second: float) -> PlaybackWorker:
    events = respace_events(synthetic_run(models, rounds), rounds_a_second)
    return PlaybackWorker(models.infos, playback(events))


def measure(browser: Any, rounds: int, slowdown: float) -> dict[str, float]:
    """`slowdown`: the factor on the run's times. Returns `gaps_of` the run."""
    tab = Tab(browser)
    models = load_models(dtype="float32", device="cpu")
    with open_site(playback_worker(models, rounds, ROUNDS_A_SECOND / slowdown)) as site:
        figures = measure_gaps(tab, site)
        tab.leave()
    tab.page.context.close()
    return figures


def measure_gaps(tab: Tab, site: Site, loaded: bool = False) -> dict[str, float]:
    """`loaded`: whether to wait for all scripts before the click on Run."""
    page = tab.visit(site.url)
    page.set_default_timeout(LIMIT_MS)
    page.get_by_text("Press Run").first.wait_for()
    if loaded:
        page.wait_for_function("() => window.Plotly && !document.querySelector('[data-pending]')")
    page.evaluate(WATCH)
    page.click("#live-run")
    page.get_by_text("Finished: ").first.wait_for()
    return gaps_of(page.evaluate("() => window.__gaps()"))


def gaps_of(times: dict[str, list[float]]) -> dict[str, float]:
    """`frames`: the number of gaps between frames; `seconds`: their sum; `median`, `p95`, `p99`,
    `worst`: milliseconds of a gap; `under_50`: the share of gaps of at most 50 ms; `long_tasks`:
    the number of the browser's long tasks; `longest_task`: in milliseconds."""
    gaps, long = sorted(times["gaps"]), times["long"]
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
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=500)
    p.add_argument(
        "--slowdown",
        type=float,
        default=1.0,
        help="factor on the times of the recorded run; 2 plays half as fast",
    )
    args = p.parse_args()
    with chromium("page") as browser:
        figures = measure(browser, args.rounds, args.slowdown)
    print(", ".join(f"{name} {value:.4g}" for name, value in figures.items()))


SEEN_SCRIPT = Path(__file__).with_name("seen.js")
BEFORE_RUN_MS = 400


def token_delays(tab: Tab, site: Site) -> dict[str, Any]:
    """Figures of a replayed run. `late_ms`: for each token, milliseconds from the end of its round
    until the page shows the token; `updates_per_second`: updates of the shown text, None with fewer
    than two; `shift`: the sum of layout shifts that do not follow a visitor's input."""
    page = open_page(tab, site.url)
    page.evaluate(SEEN_SCRIPT.read_text(encoding="utf-8"))
    page.click("#live-run")
    wait_for_end(page)
    shown_at = page.evaluate("() => specscopeSeen")
    made_at = site.clock.tokens[site.clock.last()]
    delays = [shown - made for shown, made in zip(shown_at["tokens"], made_at, strict=False)]
    # Updates after the last token redraw the whole run.
    during = [moment for moment in shown_at["updates"] if moment <= made_at[-1]]
    seconds = (during[-1] - during[0]) / 1000 if len(during) > 1 else 0.0
    return {
        "late_ms": [round(value, 1) for value in delays],
        "tokens": len(made_at),
        "updates_per_second": round((len(during) - 1) / seconds, 2) if seconds else None,
        "shift": round(sum(value for value, touched in shown_at["shifts"] if not touched), 5),
        "shift_all": round(sum(value for value, _ in shown_at["shifts"]), 5),
    }


def measure_stop(tab: Tab, site: Site, tokens: int) -> dict[str, Any]:
    """Stops a run of plain decoding after its first words. `ms`: milliseconds from the click until
    RunCancelled; `ms_in_the_engine`: milliseconds from the call of `cancel` until RunCancelled;
    `rounds`: the number of rounds after that call; `of`: the number of all rounds."""
    page = open_page(tab, site.url)
    page.evaluate(SEEN_SCRIPT.read_text(encoding="utf-8"))
    choose(page, "autoregressive", tokens)
    page.wait_for_timeout(BEFORE_RUN_MS)
    start_run(page)
    page.click("#live-stop")
    wait_for_end(page, "Stopped: ")
    run = site.clock.last()
    click_ms = page.evaluate("() => specscopeSeen.clicked")
    cancelled_ms = site.clock.cancelled[run]
    request_ms = site.clock.stop_requests[run]
    rounds = [at_round for at_round in site.clock.rounds[run] if at_round > request_ms]
    return {
        "ms": round(cancelled_ms - click_ms, 1),
        "ms_in_the_engine": round(cancelled_ms - request_ms, 1),
        "rounds": len(rounds),
        "of": len(site.clock.rounds[run]),
    }


if __name__ == "__main__":
    main()
