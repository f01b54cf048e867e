"""`start`: seconds until the page is open, resident memory, and whether runs make it grow.

The real application with the bundled models, asked through its API. `--repeats` are openings,
`--tokens` new ones a run, `runs` those of the last opening; `--threads` is not read: the
application takes what it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
                sample: dict[str, Any] = {"repeat": repeat, "opened_s": round(app.opened_s, 3)}
                sample |= {"load": load_average(), "opened_mb": resident_mb(app.pid)}
                if repeat == todo[-1]:
                    sample["runs_mb"] = self._run(context, app)
            context.results.add(sample)
            context.say(f"opening {repeat + 1}: {app.opened_s:.1f} s")

    def _run(self, context: Context, app: Application) -> list[tuple[int, float | None]]:
        """Resident memory after so many runs."""
        from gradio_client import Client

        client = Client(app.url, verbose=False)
        found = []
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
                found.append((number, resident_mb(app.pid)))
                context.say(f"{number} of {self.runs} runs")
        return found

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))
