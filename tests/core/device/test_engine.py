"""Runs whose drafts and verdicts are computed where the tensors lie tell the same events."""

from __future__ import annotations

from collections.abc import Sequence as Many
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.events import Event, RoundCompleted
from core.models.loading import LoadedModels
from core.models.stack import stack_alike
from tests.fakes import loaded, perturbed, tiny_module

TIMES = ("start_ms", "end_ms", "share", "run_id", "created_utc", "tokens_per_second")
COLD = SamplingParams(40, seed=2)
WARM = SamplingParams(40, temperature=0.9, seed=2)
EDGED = SamplingParams(30, temperature=1.2, top_k=20, top_p=0.9, seed=4)
FIXED = SpeculationConfig(expansion=(2, 2, 1), speculation_length=3, max_tree_nodes="uncut")
PROMPTS = ("w3 w5 w7 w9", "w11 w2 w4 w4 w8 w1 w6", "w1")


def models(count: int = 3, eos: tuple[int, ...] = (), **changes: Any) -> LoadedModels:
    """An LLM and SSMs that are right some of the time."""
    llm = tiny_module("llama", seed=5, dtype=torch.float32, **changes)
    ssms = [perturbed(llm, 0.15 + 0.1 * seed, seed) for seed in range(count)]
    found = loaded(llm, ssms, eos)
    stack_alike(list(found.ssms.values()))
    return found


def events(made: LoadedModels, requests: Many[Request], *, on_device: bool) -> list[Event]:
    with closing(Engine(made, "thread", on_device=on_device)) as engine:
        return list(engine.generate_many(requests))


def requests(sampling: SamplingParams, config: SpeculationConfig, many: int = 1) -> list[Request]:
    return [Request(prompt, sampling, config) for prompt in PROMPTS[:many]]


def same(one: object, other: object, where: str = "") -> None:
    """Everything but times; real numbers as close as passes of other shapes are."""
    assert type(one) is type(other), where
    if is_dataclass(one):
        for field in fields(one):
            if not (field.name in TIMES or field.name.endswith("_ms")):
                path = f"{where}.{field.name}"
                same(getattr(one, field.name), getattr(other, field.name), path)
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), where  # type: ignore[arg-type]
        for i, pair in enumerate(zip(one, other, strict=True)):  # type: ignore[call-overload]
            same(*pair, f"{where}[{i}]")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where  # type: ignore[attr-defined]
        for key in one:
            same(one[key], other[key], f"{where}[{key}]")  # type: ignore[index]
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=2e-5), where
    else:
        assert one == other, where


def texts_of(told: Many[Event]) -> list[list[int]]:
    """The new tokens of each run."""
    found: dict[str, list[int]] = {}
    for event in told:
        if isinstance(event, RoundCompleted):
            found.setdefault(event.run_id, []).extend(event.token_ids)
    return list(found.values())


def compared(
    sampling: SamplingParams, config: SpeculationConfig, many: int = 1, **changes: Any
) -> list[Event]:
    """The same runs in both ways; the events of the first."""
    told = [
        events(models(**changes), requests(sampling, config, many), on_device=on_device)
        for on_device in (True, False)
    ]
    ids = [list(dict.fromkeys(event.run_id for event in each)) for each in told]
    renamed = dict(zip(*ids, strict=True))
    for i, (one, other) in enumerate(zip(*told, strict=True)):
        assert renamed[one.run_id] == other.run_id
        same(one, other, f"{i} {type(one).__name__}")
    return told[0]


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("sampling", [COLD, WARM, EDGED], ids=["greedy", "match", "edged"])
def test_fixed_lengths(sampling: SamplingParams, many: int) -> None:
    compared(sampling, FIXED, many)


@pytest.mark.parametrize(
    "config",
    [
        replace(FIXED, drafters=("first",)),
        replace(FIXED, drafters=("all", "ngram"), max_tree_nodes=20),
        replace(FIXED, length="confidence"),
        replace(FIXED, combine="vote", weights="paper"),
        replace(FIXED, combine="vote_tree"),
        replace(FIXED, combine="log_pool"),
        replace(FIXED, draft="best_first"),
        replace(FIXED, draft="sampled", verify="mss"),
        replace(FIXED, record_top_k=3),
        replace(FIXED, carry_over=True),
        SpeculationConfig.preset("autoregressive"),
        SpeculationConfig(max_tree_nodes=13),
    ],
    ids=lambda config: f"{config.combine}-{config.length}-{config.draft}-{config.pipeline}",
)
def test_other_rules(config: SpeculationConfig) -> None:
    compared(WARM, config)


@pytest.mark.parametrize("pipeline", ["ahead", "across"])
def test_pipelined_runs(pipeline: str) -> None:
    """How far it gets beside a pass is a matter of time: the text is not."""
    config = replace(FIXED, pipeline=pipeline)
    found = [
        texts_of(events(models(), requests(WARM, config, 3), on_device=on_device))
        for on_device in (True, False)
    ]
    assert found[0] == found[1] and all(len(ids) == 40 for ids in found[0])


def test_texts_that_end() -> None:
    compared(WARM, FIXED, 3, eos=(3, 17, 40, 52))
    compared(replace(COLD, stop=("w9", "w1 w")), FIXED, 3)
    compared(replace(WARM, max_new_tokens=3), FIXED, 2)
    compared(replace(WARM, max_new_tokens=1), FIXED, 1)


def test_a_context_that_ends() -> None:
    compared(replace(WARM, max_new_tokens=500), FIXED, 2)
