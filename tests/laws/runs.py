"""Runs of requests, and token ids that transformers writes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.events import Event, RoundCompleted, RunCompleted
from core.events.outcome import Outcome

PROMPTS = Path(__file__).resolve().parents[2] / "bench" / "prompts.jsonl"
PLAIN = SpeculationConfig.preset("autoregressive")


@cache
def bundled_engine() -> Engine:
    return Engine(load_models(dtype="float32"))


def prompts(count: int) -> tuple[str, ...]:
    texts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    return tuple(texts[i * len(texts) // count] for i in range(count))


def some(texts: tuple[str, ...], index: int, count: int = 2) -> tuple[str, ...]:
    return tuple(texts[(index + i) % len(texts)] for i in range(count))


@contextmanager
def use_schedule(engine: Engine, name: str) -> Iterator[None]:
    """The schedule is new: after some time a schedule finds that drafts do not pay on these
    models."""
    engine._schedules.pop(name, None)
    engine.schedule = name
    try:
        yield
    finally:
        engine.schedule = "each"


def outcomes(events: Iterable[Event]) -> dict[str, Outcome]:
    """Outcomes by run id, in the order of the runs' first events."""
    runs: dict[str, Outcome] = {}
    for event in events:
        runs.setdefault(event.run_id, Outcome()).observe(event)
    return runs


def ids_of(engine: Engine, request: Request) -> list[int]:
    return ids_of_many(engine, [request])[0]


def ids_of_many(engine: Engine, requests: Sequence[Request]) -> list[list[int]]:
    return [run.token_ids for run in outcomes(engine.generate_many(requests)).values()]


def rounds_and_end(events: Iterable[Event]) -> tuple[list[RoundCompleted], RunCompleted]:
    every = list(events)
    last = every[-1]
    assert isinstance(last, RunCompleted)
    return [event for event in every if isinstance(event, RoundCompleted)], last


def transformers_ids(
    module: Any,
    prompt_ids: Sequence[int],
    sampling: SamplingParams,
    eos_ids: Sequence[int] = (),
    **options: Any,
) -> list[int]:
    return transformers_ids_of_many(module, [prompt_ids], sampling, eos_ids, **options)[0]


@torch.inference_mode()
def transformers_ids_of_many(
    module: Any,
    prompts_ids: Sequence[Sequence[int]],
    sampling: SamplingParams,
    eos_ids: Sequence[int] = (),
    **options: Any,
) -> list[list[int]]:
    """Cuts each text after its first end token."""
    padding = [max(map(len, prompts_ids)) - len(one) for one in prompts_ids]
    padded = zip(padding, prompts_ids, strict=True)
    ids = torch.tensor([[0] * count + [*one] for count, one in padded])
    mask = (torch.arange(ids.shape[1]) >= torch.tensor(padding)[:, None]).long()
    out = module.generate(
        ids, attention_mask=mask, do_sample=False,
        max_new_tokens=sampling.max_new_tokens, eos_token_id=list(eos_ids) or None, pad_token_id=0,
        **options,
    )  # fmt: skip
    rows = out[:, ids.shape[1] :].tolist()
    ends = [next((i + 1 for i, one in enumerate(row) if one in eos_ids), None) for row in rows]
    return [row[:end] for row, end in zip(rows, ends, strict=True)]


def module_of(models: LoadedModels) -> Any:
    return models.llm._module
