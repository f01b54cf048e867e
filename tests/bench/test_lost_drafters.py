"""A measurement raises EngineError if one of its runs loses a drafter or fails."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from bench.contestants import DecodeCase, decode, decode_joining, ids_by_round, request
from bench.load import closed_loop, open_loop
from bench.prompts import load_prompts
from bench.suites.length import trace_run
from bench.suites.pipeline import run_together
from bench.suites.routing import run_counted
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import EngineError
from core.models.loading.load import LoadedModels

CASE, CONFIG = DecodeCase(load_prompts()[0], 0, 4, 0.0), SpeculationConfig()
LOST = "the device went away.*goes on without it"
MEASURES: dict[str, Callable[[Engine], object]] = {
    "decode": lambda engine: decode(engine, [CASE], CONFIG),
    "decode_joining": lambda engine: decode_joining(engine, [CASE] * 2, CONFIG, 1),
    "ids_by_round": lambda engine: ids_by_round(engine, CASE, CONFIG),
    "trace_run": lambda engine: trace_run(engine, CASE, CONFIG),
    "run_together": lambda engine: run_together(engine, [CASE], CONFIG),
    "run_counted": lambda engine: run_counted(engine, request(CASE, CONFIG)),
    "closed_loop": lambda engine: closed_loop(engine, [request(CASE, CONFIG)] * 2, 1),
    "open_loop": lambda engine: open_loop(engine, [request(CASE, CONFIG)], [0.0], 1),
}


@pytest.mark.loses_drafters
@pytest.mark.parametrize("measure", MEASURES)
def test_a_lost_drafter_is_an_error(
    family: LoadedModels, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    fail = Mock(side_effect=RuntimeError("the device went away"))
    monkeypatch.setattr("core.drafters.ssm.SsmDrafter.fit_context", fail)
    with pytest.raises(EngineError, match=LOST):
        MEASURES[measure](Engine(family))


@pytest.mark.parametrize("measure", ["decode_joining", "closed_loop", "open_loop"])
def test_a_run_that_fails_under_load_is_an_error(
    family: LoadedModels, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    engine = Engine(family)
    monkeypatch.setattr(type(family.llm), "forward", Mock(side_effect=RuntimeError("no memory")))
    with pytest.raises(EngineError, match="no memory"):
        MEASURES[measure](engine)
