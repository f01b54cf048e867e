"""`start`: seconds until the page is open, resident memory, and whether runs make it grow.

The real application with the bundled models, asked through its API. `--repeats` are openings,
`--tokens` new ones a run, `runs` those of one opening more; `--threads` is not read: the
application takes what it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.application import Application, application, resident_mb
from bench.context import Context, Report, Suite
from bench.machine import load_average
from bench.results import Results
from bench.settings import Settings
from bench.tables import column, figure, table
from lab.figures import estimate, median, middle

__all__ = ["Start", "failures", "tables"]

PRESETS = ("autoregressive", "specinfer", "best", "sequence")
LOOKS = 10
OPEN_S = 10.0
RESIDENT_MB = 1200.0
# A run is kept in the log, not in memory: what 400 runs may leave behind is an allocator's.
GROWTH_MB = 40.0


@dataclass(frozen=True)
class Start(Suite):
    """See Suite."""

    name: str = "start"
    about: str = "seconds until the page is open, resident memory, growth over 500 runs"
    defaults: Settings = Settings(prompts=12, tokens=16, repeats=5, dtypes=("float32",))
    runs: int = 500

    def measure(self, context: Context) -> None:
        todo = [r for r in range(context.settings.repeats) if not context.results.has(repeat=r)]
        for repeat in todo:
            with application() as app:
                opened = {"opened_s": round(app.opened_s, 3), "opened_mb": resident_mb(app.pid)}
                context.results.add({"repeat": repeat, "load": load_average(), **opened})
            context.say(f"opening {repeat + 1}: {app.opened_s:.1f} s")
        if not context.results.has(runs=self.runs):
            with application() as app:
                self._run(context, app)

    def _run(self, context: Context, app: Application) -> None:
        """Resident memory after so many runs, of one application: none goes on where another was
        interrupted."""
        from gradio_client import Client

        client = Client(app.url, verbose=False)
        for number in range(1, self.runs + 1):
            prompt = context.prompts[number % len(context.prompts)]
            client.predict(
                prompt=prompt.text,
                preset=PRESETS[number % len(PRESETS)],
                max_new_tokens=context.settings.tokens,
                seed=number,
                temperature=0.8 * (number % 2),
                api_name="/generate",
            )
            if number % max(1, self.runs // LOOKS) == 0:
                sample = {"pid": app.pid, "runs": number, "runs_mb": resident_mb(app.pid)}
                context.results.add(sample)
                context.say(f"{number} of {self.runs} runs")

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


# -- tables --


def tables(results: Results) -> tuple[str, ...]:
    """What opening takes, and memory by how many runs there were."""
    seconds, memory = (column(results.samples, name) for name in ("opened_s", "opened_mb"))
    opened, resident = (estimate([[x] for x in each], middle) for each in (seconds, memory))
    below = f"below {RESIDENT_MB:g}"
    lines = [
        ["seconds until the page is open", figure(opened, 1), f"below {OPEN_S:g}"],
        ["resident then, MB", figure(resident, 0), below],
        *([f"resident after {n} runs, MB", f"{mb:.0f}", below] for n, mb in _by_runs(results)),
    ]
    if (grown := _growth(results)) is not None:
        bound = f"at most {GROWTH_MB:g}"
        lines.append(["growth from a fifth of the runs on, MB", f"{grown:.0f}", bound])
    note = f"{len(seconds)} openings, each a process of its own; medians."
    return (table("Start and memory", ("", "measured", "target"), lines, note),)


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each bound that is missed."""
    found = []
    seconds = column(results.samples, "opened_s")
    if seconds and (took := median(seconds)) >= OPEN_S:
        found.append(f"the page is open after {took:.1f} s, target: below {OPEN_S:g}")
    resident = [*column(results.samples, "opened_mb"), *(mb for _, mb in _by_runs(results))]
    if max(resident, default=0.0) >= RESIDENT_MB:
        found.append(f"{max(resident):.0f} MB are resident, target: below {RESIDENT_MB:g}")
    grown = _growth(results)
    if grown is not None and grown > GROWTH_MB:
        target = f"target: at most {GROWTH_MB:g}"
        found.append(f"memory grew by {grown:.0f} MB over the runs, {target}")
    return tuple(found)


def _by_runs(results: Results) -> list[tuple[int, float]]:
    """Samples of the latest application; those of an interrupted one remain in the file."""
    told = [sample for sample in results.samples if sample.get("runs_mb") is not None]
    return [(s["runs"], s["runs_mb"]) for s in told if s["pid"] == told[-1]["pid"]]


def _growth(results: Results) -> float | None:
    """MB from a fifth of the runs on, when all code paths were used once, to the last run."""
    told = _by_runs(results)
    if len(told) < 2:
        return None
    last = told[-1][0]
    first = next(mb for runs, mb in told if runs >= last / 5)
    return told[-1][1] - first
