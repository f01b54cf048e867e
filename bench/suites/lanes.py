"""`lanes`: where drafting runs best beside the LLM (a thread or a process), and how the cores are
split between the two.

No engine: a rehearsal (`bench.draftsman`) in which every form does the same work. `--tokens` are
its rounds; `--threads` is not read, since it is what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.context import Context, Report
from bench.draftsman import Drafted, Verifier
from bench.forms import Form, InProcess, InThread, Serial
from bench.interleave import interleaved
from bench.machine import cores, load_average
from bench.ours import Case, decode
from bench.settings import Settings
from bench.suites.lane_tables import SERIAL, tables
from bench.suites.pipeline_rows import WORKS
from core.config import SpeculationConfig
from core.engine import Engine
from core.models.loading import LoadedModels
from lab.order import Block, blocks

__all__ = ["Lanes"]

QUICK_SWITCH_S = 0.0005
WORK_NAMES = ("one SSM, chain of 4", "all SSMs, 4 steps")
Texts = Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Lanes:
    """See Suite. `splits`: torch's threads for each side; None: one, and all cores for both."""

    name: str = "lanes"
    about: str = "drafting beside the LLM: one after the other, thread, process; split of the cores"
    defaults: Settings = Settings(prompts=4, tokens=48, repeats=5, dtypes=("float32",))
    splits: tuple[int, ...] | None = None

    def check(self, settings: Settings) -> None:
        """Any settings of one process will do."""
        settings.alone()

    def measure(self, context: Context) -> None:
        before = torch.get_num_threads()
        for dtype in context.settings.dtypes:
            todo = {work: _missing(context, dtype, work) for work in WORK_NAMES}
            if any(todo.values()):
                with ExitStack() as stack:
                    stack.callback(torch.set_num_threads, before)
                    _measured(context, dtype, todo, self._contestants(context, dtype, stack))

    def report(self, context: Context) -> Report:
        return Report(tables(context.results, WORK_NAMES))

    def _contestants(
        self, context: Context, dtype: str, stack: ExitStack
    ) -> dict[str, tuple[Form, int]]:
        """Forms and splits by name; `stack` ends them."""
        models = context.load(dtype)
        makers: dict[str, Callable[[], Form]] = {
            SERIAL: partial(Serial, models),
            "thread": partial(InThread, models),
            "thread, switching after 0.5 ms": partial(InThread, models, QUICK_SWITCH_S),
            "process": partial(InProcess, dtype),
        }
        splits = self.splits or tuple(dict.fromkeys((1, cores())))
        found: dict[str, tuple[Form, int]] = {}
        for name, make in makers.items():
            form = make()
            stack.callback(form.close)
            for threads in splits:
                found[f"{name}, {threads} + {threads}"] = (form, threads)
        return found


def _missing(context: Context, dtype: str, work: str) -> list[Block]:
    """Blocks that are not in the results."""
    every = blocks([prompt.id for prompt in context.prompts], context.settings.repeats)
    return [b for b in every if not context.results.has(**_key(dtype, work, b))]


def _key(dtype: str, work: str, block: Block) -> dict[str, Any]:
    return {"dtype": dtype, "work": work, "prompt": block.item, "repeat": block.repeat}


def _measured(
    context: Context,
    dtype: str,
    todo: Mapping[str, list[Block]],
    contestants: Mapping[str, tuple[Form, int]],
) -> None:
    models = context.load(dtype)
    texts = _texts(context, models)
    verifier = Verifier(models.llm)
    for work, left in todo.items():
        runs = {
            name: partial(_rehearsed, texts, verifier, form, threads, work)
            for name, (form, threads) in contestants.items()
        }
        for run in runs.values() if left else ():
            run(left[0])  # a pool of threads and the arenas grow in the first
        for number, (block, figures) in enumerate(interleaved(left, runs), start=1):
            sample = {**_key(dtype, work, block), "load": load_average(), "figures": figures}
            context.results.add(sample)
            context.say(f"{dtype}, {work}: {number} of {len(left)}")


def _texts(context: Context, models: LoadedModels) -> Texts:
    """Each prompt with its token ids and those that plain decoding continues it with."""
    plain, tokens = SpeculationConfig.preset("autoregressive"), context.settings.tokens
    asked = [Case(prompt, 0, tokens, 0.0, ignore_eos=True) for prompt in context.prompts]
    found = decode(Engine(models), asked, plain)
    return {
        case.prompt.id: (case.prompt.text, tuple(one["prompt_token_ids"]), tuple(one["token_ids"]))
        for case, one in zip(asked, found, strict=True)
    }


def _rehearsed(
    texts: Texts, verifier: Verifier, form: Form, threads: int, work: str, block: Block
) -> dict[str, list[float]]:
    """Milliseconds of each round, and of its two sides."""
    prompt, prompt_ids, new_ids = texts[block.item]
    config = SpeculationConfig(**WORKS[work], draft="topk", verify="greedy")
    verifier.open(prompt_ids)
    drafted = form.open(prompt, config, threads)
    found: dict[str, list[float]] = {"round": [], "llm": [], "draft": []}
    roots = (prompt_ids[-1], *new_ids)
    for root, following in zip(roots, new_ids, strict=False):
        start = time.perf_counter()
        drafted, llm_ms = _round(verifier, form, root, following, drafted)
        found["round"].append(round((time.perf_counter() - start) * 1000, 4))
        found["llm"].append(round(llm_ms, 4))
        found["draft"].append(round(drafted.ms, 4))
    verifier.close()
    return found


def _round(
    verifier: Verifier, form: Form, root: int, following: int, drafted: Drafted
) -> tuple[Drafted, float]:
    """Verifies what was drafted while the next is: both, and the LLM's milliseconds."""
    taken: list[float] = []
    then = form.beside(following, lambda: taken.append(verifier.verify(root, drafted)))
    return then, taken[0]
