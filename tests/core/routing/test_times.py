"""The times by which a router compares SSMs."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest

from core.config import LENGTHS, Request, SamplingParams, SpeculationConfig
from core.engine import round as round_module
from core.engine.engine import Engine
from core.routing import Route, within_grant
from core.speculation_length.base import RoundOutcome
from tests.core.engines import engine_of, request, rounds_of, tables
from tests.fakes import TableModel, loaded_tables, random_table
from tests.golden.record import PassClock, TimedTable


def test_ssms_of_one_shape_take_equally_long_whatever_noise_was_measured(bundled: Engine) -> None:
    engine = Engine(bundled.models)
    names = list(engine.models.ssms)
    for place, name in enumerate(names[:2]):
        engine.costs.draft_costs(name).start.add(1.0 + 3.0 * place)
    times = [engine._time_of_round(names, name) for name in names]
    assert times == [times[0]] * len(names)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_an_ssm_of_another_shape_has_its_own_time(factor: float) -> None:
    models = [TableModel(name, 8, random_table(8, 1), 64) for name in ("llm", "a", "b")]
    engine = Engine(loaded_tables(models[0], models[1:]))
    for name, ms in (("a", 1.0), ("b", factor)):
        engine.costs.draft_costs(name).start.add(ms)
    a, b = (engine._time_of_round(["a", "b"], name) for name in ("a", "b"))
    assert (a == b) == (factor == 1.0)


def test_requests_that_share_a_pass_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each of N requests counted the whole pass, auditions would take N times as long."""
    outcomes: list[RoundOutcome] = []
    counted_ms: list[float] = []
    make_outcome = round_module.round_outcome

    def record(*arguments: Any) -> RoundOutcome:
        outcomes.append(make_outcome(*arguments))
        return outcomes[-1]

    monkeypatch.setattr(round_module, "round_outcome", record)
    monkeypatch.setattr(
        round_module, "observe_route", lambda state, ids, share_ms, _: counted_ms.append(share_ms)
    )
    engine = engine_of(*tables())
    config = SpeculationConfig(routing="credit", routed_drafters=1)
    lives = [engine.admit(engine.prepare(request("w1", config=config))) for _ in range(4)]
    list(engine.round(lives))
    for live in lives:
        engine.release(live)
    expected = [one.round_ms - 3 / 4 * one.verify_ms for one in outcomes]
    assert len(counted_ms) == 4 and counted_ms == pytest.approx(expected)


def test_a_grant_keeps_half_of_its_places_for_ssms_that_are_explored() -> None:
    scores = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2}
    route = Route(("a", "b", "c", "d"), frozenset({"a", "d"}), "why")
    assert within_grant(route, scores, 4) is route
    kept = {granted: within_grant(route, scores, granted) for granted in (1, 2, 3)}
    assert [kept[granted].drafters for granted in (1, 2, 3)] == [
        ("a",),
        ("a", "b"),
        ("a", "b", "d"),
    ]
    assert kept[1].explored == {"a"} and kept[1].reason == "why; the batch grants 1"
    plain = Route(("a", "b", "c"), frozenset(), "")
    assert within_grant(plain, scores, 2).drafters == ("b", "c")


@pytest.mark.parametrize("order", [("cheap", "costly"), ("costly", "cheap")], ids=" ".join)
@pytest.mark.parametrize("length", LENGTHS)
def test_of_two_equal_ssms_the_cheaper_one_is_routed(length: str, order: tuple[str, str]) -> None:
    """Only model passes advance the clock."""
    clock = PassClock()
    ms = {"llm": (4.0, 0.1), "cheap": (0.5, 0.0), "costly": (4.0, 0.0)}
    llm, *ssms = (TimedTable(name, 1, clock, ms[name]) for name in ("llm", *order))
    config = SpeculationConfig(
        routing="credit",
        routed_drafters=1,
        length=length,
        expansion=(1,),
        speculation_length=3,
        max_speculation_length=3,
        max_tree_nodes=8,
    )
    with mock.patch.object(time, "perf_counter", clock):
        engine = engine_of(llm, ssms)
        text = " ".join(["w1 w2 w3 w4"] * 4)
        one = Request(text, SamplingParams(100, ignore_eos=True), config)
        runs = [rounds_of(engine.generate(one)) for _ in range(2)]
    routed = [[[d.drafter for d in r.routing if d.role == "routed"] for r in run] for run in runs]
    assert routed[0][-1] == ["cheap"]
    assert routed[1] == [["cheap"]] * len(routed[1]), "what was measured outlasts the run"
    if order[0] == "costly":
        reason = next(one.routing_reason for one in runs[0] if "for costly" in one.routing_reason)
        assert reason == "cheap for costly: it drafts faster"
