"""Modes of `pipeline` in complete runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.ahead import AheadDrafting
from core.events import RoundCompleted
from core.models.loading.load import LoadedModels
from core.speculation_length.base import Choice
from core.speculation_length.fixed import Fixed
from tests.core.engines import texts_of
from tests.fakes import loaded_modules, perturb, tiny_module
from tests.lanes import PunctualLane

PROMPTS = ("w3 w9 w27 w17", "w5 w25", "w8")
TREE: dict[str, Any] = {"expansion": (2, 1), "speculation_length": 3, "max_tree_nodes": 24}


@cache
def models() -> LoadedModels:
    llm = tiny_module("llama", seed=1, dtype=torch.float32)
    return loaded_modules(llm, [perturb(llm, 0.05, seed=3), tiny_module("llama", 2, torch.float32)])


def requests(temperature: float = 0.0, tokens: int = 24, **fields: Any) -> list[Request]:
    sampling = SamplingParams(tokens, temperature, seed=4, ignore_eos=True)
    return [Request(p, sampling, SpeculationConfig(**{**TREE, **fields})) for p in PROMPTS]


@cache
def plain(temperature: float, tokens: int = 24) -> list[list[int]]:
    return texts_of(Engine(models()).generate_many(requests(temperature, tokens, drafters=())))


def open_rows(engine: Engine) -> list[object]:
    every = (engine.models.llm, *engine.models.ssms.values())
    return [row for model in every for row in model._rows if row is not None]  # type: ignore[attr-defined]


def modes_by_round(monkeypatch: pytest.MonkeyPatch, mode: Callable[[int], str]) -> None:
    monkeypatch.setattr(
        "core.engine.engine.pipeline_modes",
        lambda live, _: {one.sequence.run_id: mode(one.sequence.round) for one in live},
    )


@pytest.mark.parametrize("pipeline", ["ahead", "across"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_mode_may_change_after_any_round(temperature: float, pipeline: str, monkeypatch):
    modes_by_round(monkeypatch, lambda number: "off" if number % 3 else pipeline)
    engine = Engine(models())
    events = list(engine.generate_many(requests(temperature, pipeline=pipeline)))
    assert texts_of(events) == plain(temperature)
    assert not open_rows(engine) and not engine.busy.locked()
    assert not [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]


@pytest.mark.parametrize("combine", ["union", "vote", "log_pool"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_requests_of_all_modes_may_run_together(temperature: float, combine: str) -> None:
    several = [
        requests(temperature, combine=combine, pipeline=pipeline)[i]
        for i, pipeline in enumerate(("ahead", "off", "across"))
    ]
    assert texts_of(list(Engine(models()).generate_many(several))) == plain(temperature)


def test_where_no_ssm_drafts_none_drafts_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[AheadDrafting] = []
    monkeypatch.setattr(AheadDrafting, "run", lambda self, _: ran.append(self))
    monkeypatch.setattr(Fixed, "choose", lambda _: Choice(3, "", frozenset({"ngram"})))
    engine = Engine(models())
    engine._draft_thread = PunctualLane()
    events = list(engine.generate_many(requests(pipeline="ahead", drafters=("all", "ngram"))))
    assert texts_of(events) == plain(0.0) and not ran
    assert any(e.num_accepted for e in events if isinstance(e, RoundCompleted))
