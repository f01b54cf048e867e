"""`gpu-bundled`: the bundled models on a GPU, beside transformers' `generate`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

import torch

from bench.contestants import DecodeCase, TransformersLlm, request, run_events
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.tables import NOTHING, Group, Row, Table, figure, long_rows, ratio
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events import RoundCompleted, RunCompleted
from core.metrics import union_ms
from core.models.loading.load import load_models
from core.plurals import number_of
from lab.figures import median
from lab.order import Block

GENERATE = "transformers generate"
PLAIN = "autoregressive"
BEST = "best"
FIXED = "fixed tree, whole rounds"
GIGA = 1e9
COPIES, COPY_BYTES = 20, 1 << 30  # timed copies, and bytes of each copy on a GPU
Loader = Callable[[str, str], tuple[Engine, TransformersLlm]]
"""(dtype, device) -> an engine and transformers with the same weights."""


def load_bundled(dtype: str, device: str) -> tuple[Engine, TransformersLlm]:
    transformers = TransformersLlm(dtype)
    transformers.module.to(device)
    return Engine(load_models(dtype=dtype, device=device)), transformers


def configs(temperature: float) -> Mapping[str, SpeculationConfig]:
    fixed = SpeculationConfig(expansion=(2, 1, 1, 1), speculation_length=4, max_tree_nodes=24)
    return {
        PLAIN: SpeculationConfig.preset("autoregressive"),
        BEST: SpeculationConfig.preset("best", temperature),
        FIXED: fixed,
    }


@dataclass(frozen=True)
class GpuContest(Suite):
    """`device`: cuda except in tests."""

    name: str = "gpu-bundled"
    about: str = "on a GPU: plain, best and fixed trees, generate; copy bandwidth, launch gaps"
    defaults: Settings = Settings(prompts=12, tokens=128, repeats=3, dtypes=("bfloat16",))
    load: Loader = load_bundled
    device: str = "cuda"
    temperatures: tuple[float, ...] = (0.0, 0.8)

    def check(self, settings: Settings) -> None:
        super().check(settings)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError.of("suite", self.name, "one without gpu: no CUDA device is found")

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            # Models are loaded when the first missing result is measured.
            models = cache(partial(self.load, dtype, self.device))
            for temperature in self.temperatures:
                key = {"dtype": dtype, "temperature": temperature}
                items = [prompt.id for prompt in context.prompts]
                blocks = Blocks(context, {"kind": "block", **key}, items)
                if blocks.missing_blocks:
                    self._measure(blocks, *models())
                if not context.results.has(kind="gaps", **key):
                    case = context.case(items[0], 0, temperature)
                    named_configs = configs(temperature).items()
                    traces = {
                        name: gaps(models()[0], case, config) for name, config in named_configs
                    }
                    measured = {name: one for name, one in traces.items() if one is not None}
                    context.results.add({"kind": "gaps", **key, "gaps": measured})

    def _measure(self, blocks: Blocks, engine: Engine, transformers: TransformersLlm) -> None:
        context, temperature = blocks.context, blocks.key["temperature"]
        llm: Any = engine.models.llm

        def run_engine(config: SpeculationConfig, block: Block) -> dict[str, float]:
            run_request = request(context.case(block.item, block.repeat, temperature), config)
            start, tokens, steady = time.perf_counter(), 0, 0.0
            for event in run_events(engine, [run_request]):
                if isinstance(event, RoundCompleted):
                    tokens += len(event.token_ids)
                elif isinstance(event, RunCompleted):
                    steady = event.stats.tokens_per_second
            return {"tokens": tokens, "seconds": time.perf_counter() - start, "steady": steady}

        def generate(block: Block) -> dict[str, float]:
            return transformers.figures(context.case(block.item, block.repeat, temperature))

        def machine() -> dict[str, Any]:
            # The bandwidth varies over time.
            bandwidth = copy_bandwidth(torch.device(self.device))
            return {"copied": bandwidth, "weights": llm.weight_bytes}

        runs: dict[str, Any] = {
            name: partial(run_engine, config) for name, config in configs(temperature).items()
        }
        blocks.measure({**runs, GENERATE: generate}, machine, warm=Block(context.prompts[0].id, 0))

    def report(self, context: Context) -> Report:
        kinds = itertools.product(context.settings.dtypes, self.temperatures)
        return Report(tuple(filter(None, (_table(context.results, *kind) for kind in kinds))))


def copy_bandwidth(device: torch.device, size: int = COPY_BYTES) -> float:
    """Bytes per second, read plus written: the median over COPIES copies."""
    size = size if device.type == "cuda" else size >> 4
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    # On a GPU, a call returns before its kernel has run.
    wait: Any = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = []
    for _ in range(COPIES):
        wait()
        start = time.perf_counter()
        target.copy_(source)
        wait()
        times.append(2 * size / (time.perf_counter() - start))
    return median(times)


def _table(results: Results, dtype: str, temperature: float) -> str:
    rows = long_rows(results.where(kind="block", dtype=dtype, temperature=temperature))
    traced = next(iter(results.where(kind="gaps", dtype=dtype, temperature=temperature)), {})
    columns: Mapping[str, Callable[[Group], object]] = {
        "contestant": lambda group: group["contestant"],
        "tokens/s": lambda group: figure(group.median(), 1),
        f"/ {GENERATE}": lambda group: ratio(group.ratio(contestant=GENERATE)),
        f"/ {PLAIN}": lambda group: ratio(group.ratio(contestant=PLAIN)),
        "no kernel runs": lambda group: _gap(traced.get("gaps", {}).get(group["contestant"])),
    }
    title = f"{dtype}, T = {temperature:g}"
    return str(Table(title, rows, ("contestant",), columns, _note(rows))) if rows else ""


def _gap(trace: dict[str, Any] | None) -> str:
    if not trace:
        return NOTHING
    return f"{trace['idle']:.1%} of a round ({trace['kernels'] / trace['rounds']:.0f} kernels)"


def _note(rows: Sequence[Row]) -> str:
    plain = [row for row in rows if row["contestant"] == PLAIN]
    copied, steady = (median([row[name] for row in plain]) for name in ("copied", "steady"))
    read = steady * plain[0]["weights"]
    return (
        f"{number_of(len(plain), 'block')}. "
        f"Medians; ratios within blocks; 95 % intervals over prompts. Plain "
        f"decoding reads {read / GIGA:.1f} GB of weights a second behind the prompt, "
        f"{read / copied:.0%} of the {copied / GIGA:.1f} GB/s that a large copy was measured to "
        "move (read and written). Gaps: of a trace behind the first rounds; copies are no kernels."
    )


# Graphs are captured in the rounds before the trace.
ROUNDS_BEFORE, TRACED_ROUNDS = 12, 24
NO_KERNELS = ("Memcpy", "Memset")  # a trace lists these among the kernels


def gaps(
    engine: Engine, case: DecodeCase, speculation: SpeculationConfig
) -> dict[str, float] | None:
    """Traces rounds of one run. Returns the numbers of `rounds` and `kernels`, and the `idle`
    fraction of the time. None if no kernel ran, as on a CPU, or if the text ended before the
    trace."""
    from torch.profiler import ProfilerActivity, profile

    events = engine.generate(request(case, speculation))
    rounds = (event for event in events if isinstance(event, RoundCompleted))
    if len(list(islice(rounds, ROUNDS_BEFORE))) < ROUNDS_BEFORE or not torch.cuda.is_available():
        events.close()  # type: ignore[attr-defined]
        return None
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        num_rounds = len(list(islice(rounds, TRACED_ROUNDS)))
        torch.cuda.synchronize()
    # The run has tokens left: closing the iterator cancels the request.
    events.close()  # type: ignore[attr-defined]
    kernels = list(_kernels(trace))
    if not kernels:
        return None
    return {"rounds": num_rounds, "kernels": len(kernels), "idle": idle_share(kernels)}


def _kernels(trace: Any) -> Iterator[tuple[float, float]]:
    """Start and end of each kernel, in microseconds."""
    for event in trace.events():
        on_gpu = str(event.device_type).endswith("CUDA")
        if on_gpu and not event.name.startswith(NO_KERNELS):
            yield event.time_range.start, event.time_range.end


def idle_share(kernels: Sequence[tuple[float, float]]) -> float:
    """The fraction of the time from the first start to the last end in which no kernel ran.
    `kernels`: starts and ends, in any unit."""
    span = max(end for _, end in kernels) - min(start for start, _ in kernels)
    return 1 - union_ms(kernels) / span if span else 0.0
