"""`start`: seconds until the page is open, resident memory, and whether runs make it grow.

The real application with the bundled models, asked through its API. `--repeats` are openings,
`--tokens` new ones a run, `runs` those of one opening more; `--threads` is not read: the
application takes what it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.application import Application, application, resident_mb
from bench.context import Context, Report
from bench.machine import load_average
from bench.settings import Settings
from bench.suites.start_tables import failures, tables

__all__ = ["Start"]

PRESETS = ("autoregressive", "specinfer", "best", "sequence")
LOOKS = 10


@dataclass(frozen=True)
class Start:
    """See Suite."""

    name: str = "start"
    about: str = "seconds until the page is open, resident memory, growth over 500 runs"
    defaults: Settings = Settings(prompts=12, tokens=16, repeats=5, dtypes=("float32",))
    runs: int = 500

    def check(self, settings: Settings) -> None:
        """Any settings of one process will do."""
        settings.alone()

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
