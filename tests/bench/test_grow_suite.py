"""Suites of bench.suites.grown, with models that are enlarged only a little; speeds are not
checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.suites.cpu_tables import ASSISTED, LOOKUP, LoadedContestants, Variant
from bench.suites.grown import CPU_GROWN, GrownContestants
from core.config import PRESETS, SpeculationConfig
from core.speculation_length.cost_model import ledger
from core.speculation_length.cost_model.verify_costs import VerifyCosts
from tests.family import SSMS

SLIGHTLY_GROWN = replace(
    CPU_GROWN,
    load_contestants=GrownContestants(16_000_000, 1_100_000),
    variants=(
        Variant(ASSISTED, 3, "ssm-code", "constant"),
        Variant(ASSISTED, 3, "ssm-code-grown-1.1M", "constant"),
        Variant(LOOKUP, 3),
    ),
)


@pytest.mark.nightly
def test_this_engine_competes_with_ssms_as_they_are_and_grown(make_context: Any) -> None:
    context = make_context(prompts=1, tokens=4)
    SLIGHTLY_GROWN.measure(context)
    block = context.results.samples[-1]
    speculating = [p for p in PRESETS if SpeculationConfig.preset(p, 0.0).drafters]
    grown = next(name for name in block["figures"] if "grown to" in name).partition(", ")[2]
    assert grown.startswith("SSMs grown to 1.")
    ours = {f"{p}, {ssms}" for p in speculating for ssms in ("SSMs as they are", grown)}
    theirs = {"autoregressive", "transformers generate", ASSISTED, LOOKUP}
    assert set(block["figures"]) == ours | theirs
    assert all(figure["tokens"] == 4 for figure in block["figures"].values())
    (table,) = SLIGHTLY_GROWN.report(context).tables
    assert table.startswith("### grown models, float32, T = 0")
    assert "grown" in table and "no such pair was trained" in table
    swept = [set(sample["figures"]) for sample in context.results.where(kind="sweep")]
    assert swept == [set(map(str, SLIGHTLY_GROWN.variants or ()))] * 4


@pytest.mark.nightly
def test_models_in_a_folder_are_grown_once(make_context: Any, tmp_path: Path) -> None:
    messages: list[str] = []
    context = replace(make_context(messages.append, prompts=1, tokens=4), grown=tmp_path / "kept")
    first = SLIGHTLY_GROWN.load_contestants(context, "float32")
    assert sum(line.startswith("growing") for line in messages) == 1 + len(SSMS)
    messages.clear()
    again = SLIGHTLY_GROWN.load_contestants(context, "float32")
    assert sum("already" in line for line in messages) == len(messages) == 1 + len(SSMS)
    for result in (first, again):
        assert len(result.engines) == 2
        assert set(result.assistants) >= {"ssm-code", "ssm-code-grown-1.1M"}
        assert sum(p.numel() for p in result.transformers.module.parameters()) > 8_000_000


@pytest.fixture
def timed_llms(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """LLMs whose passes were timed during the test."""
    llms: list[object] = []

    def measure(llm: object) -> VerifyCosts:
        llms.append(llm)
        return VerifyCosts({0: 1.0, 8: 2.0}, 64)

    monkeypatch.setattr(ledger, "measure_verify_costs", measure)
    return llms


@pytest.fixture
def grown_contestants(make_context: Any, timed_llms: list[object]) -> LoadedContestants:
    """A fixture, so that enlarging the models does not count as the test's time."""
    return SLIGHTLY_GROWN.load_contestants(make_context(), "float32")


def test_pass_times_are_measured_once_for_both_engines(
    grown_contestants: LoadedContestants, timed_llms: list[object]
) -> None:
    small, large = grown_contestants.engines.values()
    assert small.costs is not large.costs and small.costs.verify is large.costs.verify
    assert timed_llms == [small.models.llm] == [large.models.llm]
