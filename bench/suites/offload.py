"""`offload`: an LLM whose layers are streamed from a file. Compares passes with their bound,
max(bytes / rate, compute), and with accelerate's passes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from bench.contestants import decode, load_module
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.suites.grown import GROWN, llm_folders
from bench.tables import Group, Row, Table, figure, long_rows, ratio
from bench.timing import time_call
from core.config import SpeculationConfig
from core.config.offload import Offload
from core.engine.engine import Engine
from core.models.hf_model import HfModel
from core.models.layer_stream import stream_of
from core.models.loading.catalog import BUNDLED
from core.models.loading.load import load_models
from core.models.protocol import LanguageModel, chain
from lab.order import Block

GROWN_PARAMS = 450_000_000
RESIDENT, ACCELERATE, UNLIMITED = "resident", "accelerate disk_offload", "no limit"
# The streaming rate while texts are measured, by LLM, in MB/s.
TEXT_MBPS = MappingProxyType({BUNDLED: 200.0, GROWN: 400.0})
PLAIN = "autoregressive"
PRESETS = (PLAIN, "specinfer", "best")
# A pass that streams costs about the same for one tree node and for many.
TREE = "tree of 64 nodes"
TREE_CONFIG = SpeculationConfig(
    draft="best_first",
    verify="greedy",
    expansion=(1, 1, 3, 1, 1, 1, 1, 1),
    speculation_length=8,
    combine="vote_tree",
    vote_nodes=64,
    max_tree_nodes=64,
)
CONTEXT, PASSES = 64, 2  # tokens before a pass; number of timed passes
# The largest allowed ratio of a pass to its bound.
MAX_RATIO = 1.05
# Runs in a new process: the peak memory of the suite's process is already higher.
PEAK_CODE = """
import json, sys
from core import load_models
from core.config.offload import Offload
from core.models.machine import use_threads
from core.models.protocol import chain
import transformers.models.llama.modeling_llama, core.models.native.forward

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

llm, dtype, resident = sys.argv[1], sys.argv[2], int(sys.argv[3])
use_threads()
before = peak()
model = load_models(llm, [], dtype, "cpu", None, Offload("disk", resident)).llm
model.forward([chain(model.open_row(), range(16))])
info = model.stream.info
print(json.dumps({
    "imports": before, "peak": peak(), "resident": info.resident_bytes,
    "layers": 2 * model.stream.bytes // info.layers,
    "embedding": model.embeddings.nbytes,
}))
"""
Pass = Callable[[int], float]


@dataclass(frozen=True)
class OffloadSuite(Suite):
    """`rates`: MB/s at which passes stream; `widths`: the numbers of tokens of a pass."""

    name: str = "offload"
    about: str = "an LLM with streamed layers: passes against the bound, texts, memory; accelerate"
    defaults: Settings = Settings(prompts=5, tokens=48, repeats=2, dtypes=("bfloat16",))
    rates: tuple[int, ...] = (100, 200, 400)
    widths: tuple[int, ...] = (1, 16, 64)

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            for name, folder in llm_folders(context, dtype, GROWN_PARAMS).items():
                key = {"model": name, "dtype": dtype}
                self._measure_passes(context, key, folder)
                self._measure_texts(context, key, folder)
                self._measure_memory(context, key, folder)

    def _measure_passes(self, context: Context, key: Mapping[str, Any], folder: Path) -> None:
        items = list(map(str, self.widths))
        blocks = Blocks(context, {**key, "part": "passes"}, items, "tokens", "seconds")
        if not blocks.missing_blocks:
            return
        with ExitStack() as cleanup, torch.inference_mode():
            rates = {f"{mbps} MB/s": float(mbps) for mbps in self.rates} | {UNLIMITED: 0.0}
            offloads: dict[str, Offload | None] = {RESIDENT: None}
            offloads |= {rate: Offload("disk", 0, mbps) for rate, mbps in rates.items()}
            passes: dict[str, Pass] = {}
            size = 0
            for rate, offload in offloads.items():
                context.say(f"{key['model']}: loading, {rate}")
                model = load_models(str(folder), [], key["dtype"], "cpu", None, offload).llm
                passes[rate] = _our_pass(model, cleanup)
                stream = stream_of(model)
                size = stream.info.bytes_a_pass if stream else size
            if find_spec("accelerate"):
                middle = sorted(self.rates)[len(self.rates) // 2]
                unlimited, limited = _accelerate_passes(folder, key["dtype"], middle, cleanup)
                passes |= {ACCELERATE: unlimited, f"{ACCELERATE}, {middle} MB/s": limited}
            runs = {name: partial(_seconds, timed) for name, timed in passes.items()}
            blocks.measure(runs, lambda: {"bytes": size})

    def _measure_texts(self, context: Context, key: Mapping[str, Any], folder: Path) -> None:
        items = [prompt.id for prompt in context.prompts]
        blocks = Blocks(context, {**key, "part": "texts"}, items)
        if not blocks.missing_blocks:
            return
        context.say(f"{key['model']}: loading for texts, with SSMs")
        offload = Offload("disk", 0, TEXT_MBPS[key["model"]])
        models = load_models(str(folder), [BUNDLED], key["dtype"], "cpu", None, offload)
        with closing(Engine(models)) as engine:
            engine.warm_up(context.say)
            contestants = {name: SpeculationConfig.preset(name) for name in PRESETS}
            contestants[TREE] = TREE_CONFIG
            runs = {n: partial(_text, context, engine, one) for n, one in contestants.items()}
            blocks.measure(runs)

    def _measure_memory(self, context: Context, key: Mapping[str, Any], folder: Path) -> None:
        blocks = Blocks(context, {**key, "part": "memory"}, ["0", "half"], "resident", repeats=1)
        blocks.measure({"peak": partial(_peak, folder, key["dtype"])})

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


# -- passes --


def _our_pass(model: LanguageModel, cleanup: ExitStack) -> Pass:
    assert isinstance(model, HfModel)
    row = model.open_row()
    cleanup.callback(model.close_row, row)
    if model.stream is not None:
        cleanup.callback(model.stream.close)
    model.forward([chain(row, [0] * CONTEXT, last_only=True)])
    model.commit(row, range(CONTEXT))

    def timed_pass(tokens: int) -> float:
        start = time.perf_counter()
        model.forward([chain(row, range(1, tokens + 1))])
        seconds = time.perf_counter() - start
        # Drops the pass's tokens: the next pass has the same context.
        model.commit(row, [])
        return seconds

    return timed_pass


def _accelerate_passes(
    folder: Path, dtype: str, mbps: float, cleanup: ExitStack
) -> tuple[Pass, Pass]:
    """Passes of transformers with all weights on the disk, without a limit and at `mbps` MB/s."""
    from accelerate import disk_offload

    weights_folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
    module: Any = load_module(folder, getattr(torch, dtype))
    disk_offload(module, str(weights_folder), torch.device("cpu"))

    def timed_pass(tokens: int) -> float:
        # Drops all weights from the page cache: each pass reads them from the disk.
        for file in weights_folder.iterdir():
            handle = os.open(file, os.O_RDONLY)
            # Pages that are not yet written to the disk would stay in the page cache.
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
        ids = torch.arange(1, tokens + 1)[None]
        return time_call(lambda: module(input_ids=ids, use_cache=False))[1]

    def with_limit(tokens: int) -> float:
        with limited_reads(mbps):
            return timed_pass(tokens)

    return timed_pass, with_limit


@contextmanager
def limited_reads(mbps: float) -> Iterator[None]:
    """Limits accelerate to `mbps` x 10^6 bytes a second from its files."""
    from accelerate.utils import offload

    read, free_at = offload.load_offloaded_weight, 0.0

    def read_slowly(*file: Any) -> torch.Tensor:
        nonlocal free_at
        start = time.perf_counter()
        weight: torch.Tensor = read(*file)
        free_at = max(free_at, start) + weight.nbytes / 1e6 / mbps
        time.sleep(max(0.0, free_at - time.perf_counter()))
        return weight

    offload.load_offloaded_weight = read_slowly
    try:
        yield
    finally:
        offload.load_offloaded_weight = read


def _seconds(timed_pass: Pass, block: Block) -> float:
    """The mean seconds of PASSES passes. An earlier pass is not counted: its first layers may
    already be read."""
    tokens = int(block.item)
    timed_pass(tokens)
    return round(sum(timed_pass(tokens) for _ in range(PASSES)) / PASSES, 5)


# -- texts and memory --


def _text(
    context: Context, engine: Engine, speculation: SpeculationConfig, block: Block
) -> dict[str, Any]:
    case = context.case(block.item, block.repeat, 0.0, ignore_eos=True)
    (outcome,) = decode(engine, [case], speculation)
    figures = outcome["summary"]
    return {
        "per_pass": figures["num_new_tokens"] / figures["num_rounds"],
        "speed": figures["tokens_per_second"],
        "ids": outcome["token_ids"],
    }


def _peak(folder: Path, dtype: str, block: Block) -> dict[str, int]:
    half = sum(file.stat().st_size for file in folder.glob("*.safetensors")) // 2
    resident = half if block.item == "half" else 0
    command = [sys.executable, "-c", PEAK_CODE, str(folder), dtype, str(resident)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, int] = json.loads(process.stdout)
    return figures


# -- tables --


def tables(results: Results) -> tuple[str, ...]:
    texts = []
    samples = results.samples
    for key in dict.fromkeys((s["model"], s["dtype"]) for s in samples):
        of_model = [s for s in samples if (s["model"], s["dtype"]) == key]
        parts = {part: [s for s in of_model if s["part"] == part] for part in PARTS}
        title = " of the {} LLM, {}".format(*key)
        texts += [PARTS[part](title, rows) for part, rows in parts.items() if rows]
    return tuple(texts)


def _pass_table(title: str, samples: Sequence[Row]) -> str:
    size = samples[0]["bytes"]
    rows = [
        {**row, "over": row["value"] / _least_seconds(row["contestant"], sample)}
        for sample in samples
        for row in long_rows([sample], "seconds")
    ]
    note = (
        f"Seconds of a pass that streams {size / 1e6:.1f} MB; in brackets against max(bytes / rate,"
        f" compute), compute being the resident model's pass. Criterion: at most {MAX_RATIO}. "
        f"accelerate's files are dropped from the page cache before each pass; it reads embedding "
        "and head too."
    )
    widths = sorted({row["tokens"] for row in rows})
    columns: dict[str, Callable[[Group], object]] = {"stream": lambda group: group["contestant"]}
    columns |= {f"{n} token{'s' * (n > 1)}": partial(_pass_cell, n) for n in widths}
    return str(Table(f"Passes{title}", rows, ("contestant",), columns, note))


def _least_seconds(contestant: str, sample: Row) -> float:
    """The bound of a pass: reading time or the resident model's pass, whichever is longer."""
    rate, _, unit = contestant.removeprefix(f"{ACCELERATE}, ").partition(" ")
    reading = sample["bytes"] / 1e6 / float(rate) if unit == "MB/s" else 0.0
    return float(max(reading, sample["seconds"][RESIDENT]))


def _pass_cell(tokens: int, group: Group) -> str:
    passes = group.of(tokens=tokens)
    return f"{passes.middle('value'):.3f} ({passes.middle('over'):.3f}x)"


def _text_table(title: str, samples: Sequence[Row]) -> str:
    rows = long_rows(samples)
    note = (
        "Greedy; speed-up over plain decoding within each prompt. SpecInfer's paper has 2.6 to 3.5 "
        "times for an offloaded LLM, on a GPU with models of its own."
    )
    columns: dict[str, Callable[[Group], object]] = {
        "preset": lambda group: group["contestant"],
        "tokens a second": lambda group: figure(group.median("speed"), 2),
        "speed-up": lambda group: ratio(group.ratio("speed", contestant=PLAIN)),
        "tokens per pass": lambda group: figure(group.median("per_pass"), 2),
        "speed-up / tokens per pass": lambda group: figure(
            group.ratio(lambda row: row["speed"] / row["per_pass"], contestant=PLAIN), 2
        ),
    }
    mbps = TEXT_MBPS[samples[0]["model"]]
    return str(Table(f"Texts{title}, {mbps:g} MB/s", rows, ("contestant",), columns, note))


def _memory_table(title: str, samples: Sequence[Row]) -> str:
    rows = [{**s, **s["figures"]["peak"]} for s in samples]

    def megabytes(field: str) -> Callable[[Group], str]:
        return lambda group: f"{group[field] / 1e6:.0f}"

    columns: dict[str, Callable[[Group], object]] = {
        "resident MB": megabytes("resident"),
        "embedding MB": megabytes("embedding"),
        "two layers MB": megabytes("layers"),
        "peak MB": megabytes("peak"),
        "after the imports MB": megabytes("imports"),
        "peak less imports, residents, embedding, two layers": lambda group: (
            f"{_other_mb(group):.0f}"
        ),
    }
    note = "Peak memory of a fresh process that loads and runs a pass. Criterion: 300 MB at most."
    return str(Table(f"Memory{title}", rows, ("resident",), columns, note))


def _other_mb(group: Group) -> float:
    expected = sum(group[name] for name in ("imports", "resident", "embedding", "layers"))
    return float(group["peak"] - expected) / 1e6


PARTS: Mapping[str, Callable[[str, Sequence[Row]], str]] = MappingProxyType(
    {"passes": _pass_table, "texts": _text_table, "memory": _memory_table}
)


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each text that differs from plain decoding's text."""
    return tuple(
        f"{name}, {sample['prompt']}: its ids are not plain decoding's"
        for sample in results.where(part="texts")
        for name, figures in sample["figures"].items()
        if figures["ids"] != sample["figures"][PLAIN]["ids"]
    )
