"""The time outside model passes, by stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.contestants import DecodeCase, decode, ids_by_round
from bench.prompts import load_prompts
from bench.suites.overhead import STAGES, Overhead, _outside
from bench.table_model import table_family
from bench.timing import PassClock, time_call, timing_passes
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted, Span
from core.models.loading.load import LoadedModels
from tests.synthetic import DRAFTERS, synthetic_run


class TestOverhead:
    def test_grown_models_have_a_table_of_their_own(
        self, make_context: Any, monkeypatch: pytest.MonkeyPatch, family: LoadedModels
    ) -> None:
        monkeypatch.setattr("bench.suites.overhead.grown_models", lambda context, dtype: family)
        suite = Overhead(families=())
        context = replace(make_context(prompts=1, tokens=4), grown=Path("unused"))
        suite.measure(context)
        assert {sample["family"] for sample in context.results.samples} == {"grown"}
        greedy, _, fits = suite.report(replace(context, grown=None)).tables
        assert "Outside model passes: grown, T = 0" in greedy and "2 % of a round" in greedy
        assert "| grown | 0.8 |" in fits

    def test_a_batched_pass_of_several_ssms_is_subtracted_once(self) -> None:
        """10 ms of drafting, with 9 ms in passes of three SSMs together; 5 ms in the LLM's pass; 5
        ms in no span."""
        last_round = [event for event in synthetic_run(2) if isinstance(event, RoundCompleted)][-1]
        drafting = tuple(Span(name, "draft", 0.0, 10.0, 1 / 3) for name in DRAFTERS)
        event = replace(last_round, spans=(*drafting, Span("llm", "forward", 10.0, 15.0)))
        outside, *stages, round_ms = _outside(event, 20.0, {"ssm": 9.0, "llm": 5.0})
        assert (outside, round_ms) == (pytest.approx(20 - 9 - 5), 20.0)
        expected = {"draft": 1.0, "events": 5.0}
        assert stages == pytest.approx([expected.get(stage, 0.0) for stage in STAGES])

    # A `topk` draft is one compiled call, a `best_first` draft is a series of passes.
    @pytest.mark.parametrize("draft", ["topk", "best_first"])
    def test_the_clock_counts_every_pass_and_nothing_else(
        self, family: LoadedModels, draft: str
    ) -> None:
        clock, case = PassClock(), DecodeCase(load_prompts()[0], 1, 6, 0.0)
        chains = SpeculationConfig(draft=draft, expansion=(1,), speculation_length=2)
        chains = replace(chains, max_tree_nodes="uncut")
        with timing_passes(family, clock) as models:
            engine = Engine(models)
            ids_by_round(engine, case, SpeculationConfig.preset("autoregressive"))
            plain_ms = clock.take()
            assert plain_ms["llm"] > 0 and plain_ms["ssm"] == 0
            assert clock.take() == {"llm": 0.0, "ssm": 0.0}
            _, seconds = time_call(lambda: ids_by_round(engine, case, chains))
            pass_ms = clock.take()
            counted_once = 0 < pass_ms["ssm"] < 1000 * seconds - pass_ms["llm"]
            assert counted_once, "a pass of several SSMs counts once"
        ids_by_round(engine, case, chains)
        assert clock.take() == {"llm": 0.0, "ssm": 0.0}

    def test_a_synthetic_family_accepts_some_drafts_and_writes_known_tokens(
        self, family: LoadedModels
    ) -> None:
        """The family's vocabulary has 6000 tokens, more than the tokenizer's 4096."""
        engine = Engine(table_family(family, 6000))
        config = SpeculationConfig(expansion=(2, 1, 1), max_tree_nodes="uncut")
        for temperature in (0.0, 0.8):
            case = DecodeCase(load_prompts()[0], 5, 48, temperature, ignore_eos=True)
            plain, tree = (
                decode(engine, [case], each)[0]
                for each in (SpeculationConfig.preset("autoregressive"), config)
            )
            assert tree["token_ids"] == plain["token_ids"]
            assert 1.05 < tree["summary"]["mean_acceptance_length"] < 3.95
            assert len(tree["token_ids"]) == 48 and max(tree["token_ids"]) < 4096
