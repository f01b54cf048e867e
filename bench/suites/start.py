"""`start` measures the application's start-up time, memory and first runs. `visitors` measures
several clients of one application at once.

In `start`, `--repeats` is the number of timed starts; only the first-run measurement uses
`--threads`. In `visitors`, each visitor sends `--prompts` requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.application import Application, application, resident_mb
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.machine import load_average
from bench.results import Results
from bench.settings import Settings
from bench.suites.batch import failures, totals
from bench.suites.first_runs import first_bounds, measure_first_runs
from bench.tables import column, figure, long_rows, table
from bench.timing import time_call
from lab.figures import estimate, middle
from lab.order import Block

PRESETS = ("autoregressive", "specinfer", "best", "sequence")
NUM_SAMPLES = 10
OPEN_S, RESIDENT_MB = 10.0, 1200.0  # upper bounds
# Largest allowed growth of resident memory after the first fifth of the runs.
GROWTH_MB = 40.0


@dataclass(frozen=True)
class Start(Suite):
    """`runs`: requests to one process; `processes`: pairs of processes in `measure_first_runs`."""

    name: str = "start"
    about: str = "seconds until the page is open, resident memory, growth over 500 runs, first runs"
    defaults: Settings = Settings(prompts=12, tokens=16, repeats=5, dtypes=("float32",))
    runs: int = 500
    processes: int = 10

    def measure(self, context: Context) -> None:
        todo = [r for r in range(context.settings.repeats) if not context.results.has(repeat=r)]
        for repeat in todo:
            with application() as app:
                opened = {"opened_s": round(app.startup_s, 3), "opened_mb": resident_mb(app.pid)}
                context.results.add({"repeat": repeat, "load": load_average(), **opened})
            context.say(f"opening {repeat + 1}: {app.startup_s:.1f} s")
        # All runs are made in one process: an interrupted suite repeats all runs.
        if not context.results.has(runs=self.runs):
            with application() as app:
                self._run(context, app)
        measure_first_runs(context, self.processes)

    def _run(self, context: Context, app: Application) -> None:
        """Records the memory after increasing numbers of runs in one process."""
        from gradio_client import Client

        client = Client(app.url, verbose=False)
        for number in range(1, self.runs + 1):
            prompt = context.prompts[number % len(context.prompts)]
            client.predict(
                prompt=prompt.text,
                preset=PRESETS[number % len(PRESETS)],
                max_new_tokens=context.settings.tokens,
                seed=number,
                # Both temperatures for each preset.
                temperature=0.8 * (number // len(PRESETS) % 2),
                api_name="/generate",
            )
            # The sample after the last run tells a resumed suite that all runs were measured.
            if number % max(1, self.runs // NUM_SAMPLES) == 0 or number == self.runs:
                sample = {"pid": app.pid, "runs": number, "runs_mb": resident_mb(app.pid)}
                context.results.add(sample)
                context.say(f"{number} of {self.runs} runs")

    def report(self, context: Context) -> Report:
        lines = [*bounds(context.results), *first_bounds(context.results.samples)]
        openings = len(column(context.results.samples, "opened_s"))
        note = f"{openings} openings, each a process of its own; medians."
        text = table("Start and memory", ("", "measured", "target"), [x[:3] for x in lines], note)
        failures = (
            f"{name}: {mb}, target: {bound}" for name, mb, bound, holds in lines if not holds
        )
        return Report((text,), tuple(failures))


def bounds(results: Results) -> Iterator[tuple[str, str, str, bool]]:
    """Name, figure, target, and whether the target is met."""
    seconds, memory = (column(results.samples, name) for name in ("opened_s", "opened_mb"))
    opened, resident = (estimate([[x] for x in each], middle) for each in (seconds, memory))
    opens_in_time, below = opened is None or opened.value < OPEN_S, f"below {RESIDENT_MB:g}"
    yield "seconds until the page is open", figure(opened, 1), f"below {OPEN_S:g}", opens_in_time
    yield "resident then, MB", figure(resident, 0), below, max(memory, default=0.0) < RESIDENT_MB
    with_memory = [sample for sample in results.samples if sample.get("runs_mb") is not None]
    # The file may also have samples of an interrupted application.
    samples = [(s["runs"], s["runs_mb"]) for s in with_memory if s["pid"] == with_memory[-1]["pid"]]
    for runs, mb in samples:
        yield f"resident after {runs} runs, MB", f"{mb:.0f}", below, mb < RESIDENT_MB
    if len(samples) > 1:
        grown = samples[-1][1] - next(mb for runs, mb in samples if runs >= samples[-1][0] / 5)
        name, bound = "growth from a fifth of the runs on, MB", f"at most {GROWTH_MB:g}"
        yield name, f"{grown:.0f}", bound, grown <= GROWTH_MB


TEMPERATURE = 0.8
OTHER_TEXT = "{contestant} visitors: other text"


@dataclass(frozen=True)
class Visitors(Suite):
    """`counts`: numbers of visitors at once."""

    name: str = "visitors"
    about: str = "tokens per second of 1 to 8 clients of one page at once; each text unchanged"
    defaults: Settings = Settings(prompts=4, tokens=64, repeats=3, dtypes=("float32",))
    counts: tuple[int, ...] = (1, 2, 4, 8)
    presets: tuple[str, ...] = ("autoregressive", "best")

    def measure(self, context: Context) -> None:
        from gradio_client import Client

        blocks = Blocks(context, {}, self.presets, "preset")
        if not blocks.missing_blocks:
            return
        with application() as app:
            clients = [Client(app.url, verbose=False) for _ in range(max(self.counts))]
            # A warm-up: in an engine's first run the policy `goodput` measures pass times.
            for preset in self.presets:
                _visit(clients[:1], context, Block(preset, 0))
            runs = {str(count): partial(_visit, clients[:count], context) for count in self.counts}
            blocks.measure(runs, keep_row=_against_alone)

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results, OTHER_TEXT))


def _visit(clients: Sequence[Any], context: Context, block: Block) -> dict[str, Any]:
    visit = partial(_visitor_texts, context, block.item)
    with ThreadPoolExecutor(len(clients)) as pool:
        by_visitor, seconds = time_call(lambda: list(pool.map(visit, clients, range(len(clients)))))
    texts = [one for visitor in by_visitor for one in visitor]
    return {"seconds": seconds, "tokens": sum(n for _, _, n in texts), "texts": texts}


def _visitor_texts(
    context: Context, preset: str, client: Any, number: int
) -> list[tuple[str, str, int]]:
    """One visitor's (prompt id, text, number of new tokens), starting at prompt `number`."""
    first = number % len(context.prompts)
    texts = []
    for prompt in (*context.prompts[first:], *context.prompts[:first]):
        run = client.predict(
            prompt=prompt.text,
            preset=preset,
            max_new_tokens=context.settings.tokens,
            temperature=TEMPERATURE,
            seed=1,
            ignore_eos=True,
            api_name="/generate",
        )
        texts.append((prompt.id, run["text"], len(run["token_ids"])))
    return texts


def _against_alone(by_count: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Replaces `texts` by `differ`: the ids of prompts whose text is not a lone visitor's.
    `by_count`: figures by number of visitors."""
    # The first of `Visitors.counts` is one visitor.
    alone = {prompt: text for prompt, text, _ in next(iter(by_count.values()))["texts"]}
    for one in by_count.values():
        differing = {prompt for prompt, text, _ in one.pop("texts") if text != alone[prompt]}
        one["differ"] = sorted(differing)
    return by_count


def tables(results: Results) -> tuple[str, ...]:
    """Total tokens per second of all visitors."""
    note = (
        "Clients of one application, each with its own requests one after another; all their new "
        "tokens over the time until the last was answered; {} Prompts whose text was not that of a "
        "lone visitor: {}."
    )
    rows = long_rows(results.samples)
    return (totals("Visitors of one page", rows, lambda n: f"{n} visitor{'s' * (n != '1')}", note),)
