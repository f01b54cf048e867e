"""Compares a process's first and tenth run: the engine is slower while it measures pass times.

`python -m bench.suites.first_runs THREADS TOKENS < PROMPT` prints the figures of ten runs as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from bench.application import ROOT, BenchError
from bench.context import Context
from bench.machine import load_average
from bench.tables import figure
from lab.figures import estimate, middle

RUNS, TOKENS = 10, 96
# The least ratios of the first run's figures to the tenth run's.
TARGETS = {"tokens per pass": 0.85, "tokens per second": 0.8}
# The loop ends even if the parent is killed.
BUSY_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


def measure_first_runs(context: Context, pairs: int) -> None:
    """Measures pairs of processes: the first alone, the second beside a process in a busy loop."""
    for number in range(pairs):
        for busy in (False, True):
            if context.results.has(process=number, busy=busy):
                continue
            prompt = context.prompts[number % len(context.prompts)]
            with _busy_process() if busy else nullcontext():
                runs = _runs_of_process(prompt.text, context.settings.threads)
            sample = {"process": number, "busy": busy, "load": load_average(), "runs": runs}
            context.results.add(sample)
        context.say(f"first runs: {number + 1} of {pairs} pairs of processes")


@contextmanager
def _busy_process() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) as process:
        try:
            yield
        finally:
            process.kill()


def _runs_of_process(prompt: str, threads: int) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "bench.suites.first_runs", str(threads), str(TOKENS)]
    process = subprocess.run(command, cwd=ROOT, input=prompt, capture_output=True, text=True)
    if process.returncode:
        raise BenchError(f"a process for first runs failed: {process.stderr.strip()[-300:]}")
    runs: list[dict[str, float]] = json.loads(process.stdout)
    return runs


def first_bounds(samples: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, bool]]:
    """Yields a description, the figures, the target, and whether the target was reached."""
    of_processes = [sample for sample in samples if "runs" in sample and "process" in sample]
    for busy in (False, True):
        for name, target in TARGETS.items():
            quotients = [
                s["runs"][0][name] / s["runs"][-1][name] for s in of_processes if s["busy"] is busy
            ]
            quotient = estimate([[one] for one in quotients], middle)
            if quotient is None:
                continue
            condition = "beside a busy process" if busy else "alone"
            what = f"first run / tenth, {name}, {condition}"
            measured_text = f"{figure(quotient, 2)}, least {min(quotients):.2f} of {len(quotients)}"
            yield what, measured_text, f"at least {target:g}", quotient.value >= target


def main(threads: str, tokens: str) -> None:
    """Makes RUNS equal runs of the prompt on standard input."""
    from bench.contestants import run_events
    from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
    from core.events.outcome import Outcome
    from core.models.machine import use_threads

    # 0: the default.
    use_threads(int(threads) or None)
    engine = Engine(load_models(dtype="float32", device="cpu"))
    sampling = SamplingParams(int(tokens), ignore_eos=True)
    request = Request(sys.stdin.read(), sampling, SpeculationConfig.preset("best"))
    runs = []
    for _ in range(RUNS):
        outcome = Outcome()
        for event in run_events(engine, [request]):
            outcome.observe(event)
        summary = outcome.summary
        figures = (summary["mean_acceptance_length"], summary["tokens_per_second"])
        runs.append(dict(zip(TARGETS, figures, strict=True)))
    engine.close()
    print(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
