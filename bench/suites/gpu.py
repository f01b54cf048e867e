"""`gpu-bundled`: what a GPU makes of the bundled family. Plain decoding, `best`, a fixed tree whose
rounds are made whole, and transformers' `generate`; the bytes that plain decoding reads a second
against the copy bandwidth that is measured beside it; the share of a round in which no kernel runs.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.context import Context, Report, Suite
from bench.gaps import gaps
from bench.interleave import Blocks
from bench.ours import DecodeCase, request
from bench.prompts import Prompt
from bench.results import Results
from bench.settings import Settings
from bench.tables import NOTHING, Group, Row, Table, figure, long_rows, ratio
from bench.theirs import Theirs
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events import RoundCompleted, RunCompleted
from core.models.loading.load import load_models
from lab.figures import median
from lab.order import Block

__all__ = ["BEST", "FIXED", "GENERATE", "PLAIN", "GpuContest", "copy_bandwidth", "summon_bundled"]

GENERATE = "transformers generate"
PLAIN = "autoregressive"
BEST = "best"
FIXED = "fixed tree, whole rounds"
TEMPERATURES = (0.0, 0.8)
GIGA = 1e9
COPIES, COPIED = 20, 1 << 30
Contestant = Callable[[Block], dict[str, float]]
Summon = Callable[[str, str], tuple[Engine, Theirs]]
"""(dtype, device) -> our engine and transformers' loop over the same weights."""


def summon_bundled(dtype: str, device: str) -> tuple[Engine, Theirs]:
    """The bundled family on a device."""
    theirs = Theirs(dtype)
    theirs.module.to(device)
    return Engine(load_models(dtype=dtype, device=device)), theirs


def configs(temperature: float) -> Mapping[str, SpeculationConfig]:
    """Ours, by name."""
    fixed = SpeculationConfig(expansion=(2, 1, 1, 1), speculation_length=4, max_tree_nodes=24)
    return {
        PLAIN: SpeculationConfig.preset("autoregressive"),
        BEST: SpeculationConfig.preset("best", temperature),
        FIXED: fixed,
    }


@dataclass(frozen=True)
class GpuContest(Suite):
    """See Suite. `device` is cuda but in tests."""

    name: str = "gpu-bundled"
    about: str = "on a GPU: plain, best and fixed trees, generate; copy bandwidth, launch gaps"
    defaults: Settings = Settings(prompts=12, tokens=128, repeats=3, dtypes=("bfloat16",))
    summon: Summon = summon_bundled
    device: str = "cuda"
    temperatures: tuple[float, ...] = TEMPERATURES

    def check(self, settings: Settings) -> None:
        """One process, and a GPU."""
        super().check(settings)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError.of("suite", self.name, "one without gpu: no CUDA device is found")

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            contest = _Contest(context, dtype, self)
            for temperature in self.temperatures:
                contest.run(temperature)

    def report(self, context: Context) -> Report:
        kinds = itertools.product(context.settings.dtypes, self.temperatures)
        return Report(tuple(filter(None, (_table(context.results, *kind) for kind in kinds))))


class _Contest:
    """All contestants in one dtype. Models are loaded when first needed: a full file loads none."""

    def __init__(self, context: Context, dtype: str, suite: GpuContest) -> None:
        self._context, self._dtype, self._suite = context, dtype, suite
        self._prompts = {prompt.id: prompt for prompt in context.all_prompts}
        self._loaded: tuple[Engine, Theirs] | None = None

    def run(self, temperature: float) -> None:
        """Measure the missing blocks, after one uncounted block; then one trace each."""
        context, results = self._context, self._context.results
        key = {"dtype": self._dtype, "temperature": temperature}
        items = [prompt.id for prompt in context.prompts]
        blocks = Blocks(context, {"kind": "block", **key}, items)
        if blocks.missing:
            contestants = dict(self._contestants(temperature))
            for once in contestants.values():
                once(Block(items[0], 0))
            blocks.measure(contestants, self._machine)
        if not results.has(kind="gaps", **key):
            results.add({"kind": "gaps", **key, "gaps": self._gaps(temperature)})

    def _machine(self) -> dict[str, Any]:
        engine, _ = self._models()
        return {
            "copied": copy_bandwidth(torch.device(self._suite.device)),
            "weights": engine.models.llm.weight_bytes,  # type: ignore[attr-defined]
        }

    def _gaps(self, temperature: float) -> dict[str, Any]:
        engine, _ = self._models()
        case = self._case(self._context.prompts[0], 0, temperature)
        found = {name: gaps(engine, case, how) for name, how in configs(temperature).items()}
        return {name: one for name, one in found.items() if one is not None}

    # -- contestants --

    def _contestants(self, temperature: float) -> Iterator[tuple[str, Contestant]]:
        for name, config in configs(temperature).items():
            yield name, partial(self._ours, config, temperature)
        yield GENERATE, partial(self._theirs, temperature)

    def _ours(
        self, config: SpeculationConfig, temperature: float, block: Block
    ) -> dict[str, float]:
        engine, _ = self._models()
        case = self._case(self._prompts[block.item], block.repeat, temperature)
        start, tokens, steady = time.perf_counter(), 0, 0.0
        for event in engine.generate(request(case, config)):
            if isinstance(event, RoundCompleted):
                tokens += len(event.token_ids)
            elif isinstance(event, RunCompleted):
                steady = event.stats.tokens_per_second
        return {"tokens": tokens, "seconds": time.perf_counter() - start, "steady": steady}

    def _theirs(self, temperature: float, block: Block) -> dict[str, float]:
        _, theirs = self._models()
        prompt = self._prompts[block.item]
        ids, tokens = theirs.tokenize(prompt.text), self._context.settings.tokens
        start = time.perf_counter()
        found = theirs.generate(ids, tokens, temperature, prompt.seed(block.repeat))
        return {"tokens": len(found), "seconds": time.perf_counter() - start}

    def _case(self, prompt: Prompt, repeat: int, temperature: float) -> DecodeCase:
        return DecodeCase(prompt, prompt.seed(repeat), self._context.settings.tokens, temperature)

    def _models(self) -> tuple[Engine, Theirs]:
        if self._loaded is None:
            self._loaded = self._suite.summon(self._dtype, self._suite.device)
        return self._loaded


def copy_bandwidth(device: torch.device, size: int = COPIED) -> float:
    """Copy bandwidth of the device in bytes a second, reads plus writes; the median of some."""
    size = size if device.type == "cuda" else size >> 4
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found = []
    for _ in range(COPIES):
        _wait(device)
        start = time.perf_counter()
        target.copy_(source)
        _wait(device)
        found.append(2 * size / (time.perf_counter() - start))
    return statistics.median(found)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# -- tables --


def _table(results: Results, dtype: str, temperature: float) -> str:
    """Empty where there are no blocks."""
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


def _gap(found: dict[str, Any] | None) -> str:
    """The idle share of a round, and kernels a round; a dash where nothing was traced."""
    if not found:
        return NOTHING
    return f"{found['idle']:.1%} of a round ({found['kernels'] / found['rounds']:.0f} kernels)"


def _note(rows: Sequence[Row]) -> str:
    plain = [row for row in rows if row["contestant"] == PLAIN]
    copied, steady = (median([row[name] for row in plain]) for name in ("copied", "steady"))
    read = steady * plain[0]["weights"]
    return (
        f"{len(plain)} blocks. Medians; ratios within blocks; 95 % intervals over prompts. Plain "
        f"decoding reads {read / GIGA:.1f} GB of weights a second behind the prompt, "
        f"{read / copied:.0%} of the {copied / GIGA:.1f} GB/s that a large copy was measured to "
        "move (read and written). Gaps: of a trace behind the first rounds; copies are no kernels."
    )
