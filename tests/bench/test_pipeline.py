"""The `pipeline` suite: its contestants and its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench.contestants import DecodeCase
from bench.prompts import load_prompts, take_round_robin
from bench.suites.pipeline import Pipeline, _RoundSums, groups, run_together
from bench.suites.pipeline_tables import BEST, USEFUL_MODES, WORKS, Contender, pipeline_rows
from bench.tables import Group
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import Ahead, RoundCompleted, Span
from core.models.loading.load import LoadedModels
from tests.synthetic import synthetic_run

PROMPTS = load_prompts()


def test_a_new_pipeline_mode_competes_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    all_modes = ("off", "across", "ahead", "auto")
    for module in ("core.config", "bench.suites.pipeline_tables"):
        monkeypatch.setattr(f"{module}.PIPELINES", all_modes)
    modes = {row.live: tuple(row.contestants) for row in pipeline_rows()}
    expected = {1: ("off", "ahead", "auto"), 8: ("off", "across", "auto")}
    assert modes == expected == dict(USEFUL_MODES)
    for module in ("core.config", "bench.suites.pipeline_tables"):
        monkeypatch.setattr(f"{module}.PIPELINES", ("off", "across"))
    assert {row.live: tuple(row.contestants) for row in pipeline_rows()} == {8: ("off", "across")}


def test_contestants_differ_only_in_their_pipeline_mode() -> None:
    rows = pipeline_rows()
    assert {row.work for row in rows} == set(WORKS)
    assert len({json.dumps(row.key) for row in rows}) == len(rows)
    for row in rows:
        plain = [{**c.to_plain(), "pipeline": ""} for c in row.contestants.values()]
        assert all(each == plain[0] for each in plain)
        assert [c.pipeline for c in row.contestants.values()] == list(row.contestants)
        if row.work == BEST:
            preset = SpeculationConfig.preset(BEST).to_plain()
            changed = {name for name, value in plain[0].items() if value != preset[name]}
            assert changed <= {"pipeline", "max_tree_nodes"}


def test_a_text_that_differs_from_serial_decoding_is_a_failure(make_context: Any) -> None:
    row = next(row for row in pipeline_rows() if row.live == 8)
    context, suite = make_context(repeats=2), Pipeline(only=(row,))
    sums = {"draft_ms": 1.0, "round_ms": 2.0, "rounds": 9, "hits": 1, "drafts": 2, "notes": []}
    sums |= {"tokens": 9, "seconds": 1.0, "saved_ms": 1.0, "wasted_ms": 0.0, "on_ms": 1.0}
    for repeat, digest in enumerate(("same", "another")):
        figures = {"off": {**sums, "digest": "same"}, "across": {**sums, "digest": digest}}
        key = {"dtype": "float32", **row.key, "prompt": "p", "repeat": repeat}
        context.results.add({**key, "figures": figures})
    report = suite.report(context)
    assert "1 of 2" in report.tables[0]
    (message,) = report.failures
    assert message.endswith(", across: other text than serial for p")


def test_groups_have_all_domains_and_the_requested_size() -> None:
    prompts = take_round_robin(PROMPTS, 16)
    result = groups(prompts, 8)
    assert [len(group) for group in result.values()] == [8, 8]
    assert {p.id for group in result.values() for p in group} == {p.id for p in prompts}
    assert all(len({p.domain for p in group}) == 4 for group in result.values())
    (repeated,) = groups(take_round_robin(PROMPTS, 3), 8).values()
    assert len(repeated) == 8 and len(set(repeated)) == 3
    assert len(groups(prompts, 1)) == 16


def round_event(number: int, at_ms: float, *ahead: Ahead, notes: tuple[str, ...] = ()) -> Any:
    """A round with 3 ms of drafting, 1 ms of prefill and 4 ms in the LLM's pass."""
    spans = (
        Span("ssm", "prefill", 0.0, 1.0),
        Span("ssm", "catch_up", 1.0, 2.0),
        Span("ssm", "draft", 2.0, 4.0),
        Span("llm", "forward", 4.0, 8.0),
    )
    completed_round = next(event for event in synthetic_run(1) if isinstance(event, RoundCompleted))
    fields = {"round": number, "at_ms": at_ms, "token_ids": (7,), "spans": spans}
    return replace(completed_round, ahead=ahead, notes=notes, **fields)


def test_rounds_except_the_first_are_summed() -> None:
    sums_of_run = _RoundSums(drafts=2)
    hit = Ahead("a", 2, 0.7, hit=True, saved_ms=2.0, wasted_ms=0.5)
    miss = Ahead("b", 2, 0.7, hit=False, saved_ms=0.0, wasted_ms=1.5)
    sums_of_run.add_round(round_event(0, 20.0))
    sums_of_run.add_round(round_event(1, 30.0, hit, miss))
    # A draft for a round that never came only adds wasted time.
    last = Ahead("a", 2, 0.7, hit=False, saved_ms=0.0, wasted_ms=4.0, reason="ended")
    sums_of_run.add_round(round_event(2, 45.0, last, notes=("off: it did not pay",)))
    sums = {"rounds": 2, "round_ms": 25.0, "draft_ms": 6.0, "drafts": 4, "hits": 1}
    assert sums_of_run.sums == {**sums, "saved_ms": 2.0, "wasted_ms": 6.0, "on_ms": 10.0}
    assert sums_of_run.notes == [(2, "off: it did not pay")]
    assert sums_of_run.token_ids == [7, 7, 7]


def test_drafting_share_hit_rate_and_bound() -> None:
    """The gain is at most 1 / (1 - h f), with drafting share f = 1 / 2 and hit rate h = 4 / 5."""
    serial = {"tokens": 10, "seconds": 1.0, "digest": "a", "draft_ms": 50.0, "round_ms": 100.0}
    ahead = {"tokens": 10, "seconds": 0.8, "digest": "a", "hits": 4, "drafts": 5, "draft_ms": 999.0}
    rows = [
        {"prompt": "p", "repeat": repeat, "contestant": name, **figures}
        for repeat in range(3)
        for name, figures in (("off", serial), ("ahead", ahead))
    ]
    one = Contender(*(Group(rows).of(contestant=name) for name in ("ahead", "off")))
    assert (one.draft_share, one.hit_rate) == (0.5, 0.8)
    assert one.upper_bound == pytest.approx(1 / 0.6)
    assert one.gain is not None and one.gain.value == pytest.approx(1.25)
    assert one.other_texts == []


def test_drafting_is_a_part_of_a_serial_round(family: LoadedModels) -> None:
    case = DecodeCase(PROMPTS[0], 1, 9, 0.0)  # with 9 tokens, every round drafts
    config = SpeculationConfig(expansion=(1,), speculation_length=3, max_tree_nodes=9)
    result = run_together(Engine(family), [case, case], config)
    assert 0 < result["draft_ms"] < result["round_ms"]
    assert result["drafts"] == len(family.ssms) * result["rounds"]
    assert result["on_ms"] == result["hits"] == 0
    assert result["round_ms"] <= 2 * 1000 * result["seconds"]
