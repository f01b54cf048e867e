"""Every suite measures, continues and reports; tiny runs, whose figures mean nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.clocked import PassClock, timing_passes
from bench.context import Context
from bench.ours import DecodeCase, count_tokens, decode
from bench.prompts import load_prompts
from bench.suites.acceptance import Acceptance, distinct_share
from bench.suites.acceptance_rows import PAPER, WIDTHS, acceptance_rows, most_nodes
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.cpu_tables import best_variant
from bench.suites.cpu_variants import (
    ASSISTED,
    LOOKUP,
    Variant,
    all_variants,
    fastest_of_each_drafter,
)
from bench.suites.overhead import STAGES, Overhead, _outside, overhead_configs
from bench.table_model import table_family
from core.config import PRESETS, SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted, Span
from core.models.fastest import compiled_of
from core.models.hf_model import HfModel
from core.models.loading.load import LoadedModels
from core.models.stacking import Stack
from tests.family import SSMS
from tests.synthetic import DRAFTERS, synthetic_run

MakeContext = Callable[..., Context]
VARIANTS = (Variant(ASSISTED, 3, "ssm-code", "constant"), Variant(LOOKUP, 3))


def sample(accepted: int, nodes: int, name: str = "p0", distinct: float = 0.9) -> dict[str, Any]:
    """A continuation of ten rounds as the `acceptance` suite keeps it."""
    return {
        "id": name,
        "domain": "stories",
        "seed": 1,
        "rounds": 10,
        "accepted": accepted,
        "nodes": nodes,
        "distinct_4_grams": distinct,
    }


class TestAcceptance:
    @pytest.mark.nightly
    def test_is_deterministic_keeps_what_it_has_and_reports(
        self, make_context: MakeContext
    ) -> None:
        def interrupt(message: str) -> None:
            if message.startswith("3 of"):
                raise KeyboardInterrupt

        suite = Acceptance(parts=("same", "more"))
        with pytest.raises(KeyboardInterrupt):
            suite.measure(make_context(interrupt, tokens=5))
        context = make_context(tokens=5)
        assert context.results.found == 3
        kept = context.results.samples.pop(1)  # measured anew below
        suite.measure(context)
        assert len(context.results.samples) == len(suite.rows(context))
        again = next(context.results.where(config=kept["config"], temperature=kept["temperature"]))
        assert again == kept
        report = suite.report(context)
        assert report.failures == ()
        by_row, comparisons = report.tables[:2]
        assert by_row.count("| union of 5 |") == 5
        assert by_row.count("| ssm-stories |") == 5
        assert "coupled / plain top-k, union of 5" in comparisons
        assert "union of 5 / best single SSM" in comparisons

    @pytest.mark.nightly
    def test_processes_share_the_rows(self, make_context: MakeContext) -> None:
        def loads_nothing(dtype: str) -> LoadedModels:
            raise AssertionError("processes load their own")

        suite, few = Acceptance(parts=("length",)), {"prompts": 2, "tokens": 3}
        alone, together = make_context(**few), make_context(processes=2, **few)
        alone.results.path = alone.results.path.with_name("alone.json")
        suite.measure(alone)
        suite.measure(replace(together, load=loads_nothing))
        for row in suite.rows(alone):
            one, other = (next(each.results.where(**row.key)) for each in (alone, together))
            assert one == other
        assert len(alone.results.samples) == len(together.results.samples)

    def test_rows_are_what_the_figures_ask_for(self) -> None:
        rows = acceptance_rows(("a", "b", "c"))
        for row in rows:
            assert row.speculation.max_tree_nodes != "auto"  # measured, so never twice the same
        greedy = [row for row in rows if row.kind.verify == "greedy"]
        same = {row.name: row.speculation for row in greedy if row.part == "same"}
        assert set(same) == {"a", "b", "c", "union of 3"}
        assert {config.expansion for config in same.values()} == {PAPER}
        widths = [row.speculation.expansion for row in greedy if row.part == "width"]
        assert widths == [(width, 1, 1, 1, 1, 1, 1, 1) for width in WIDTHS]

    def test_chains_of_all_ssms_by_length(self, make_context: MakeContext) -> None:
        suite = Acceptance(parts=("length",))
        context = make_context()
        for row in suite.rows(context):
            one = sample(5 * len(row.speculation.expansion), 10 * most_nodes(row.speculation))
            context.results.add({**row.key, "prompts": [one]})
        lines = suite.report(context).tables[4].splitlines()
        of_12 = [line for line in lines if "| 12 | 60.0 | 7.00 (7.00 to 7.00) |" in line]
        assert [line.split(" | ")[0] for line in of_12] == [
            "| topk, greedy, T = 0", "| coupled, match, T = 0.8"
        ]  # fmt: skip

    def test_only_trees_of_at_most_64_nodes_are_called_the_best(
        self, make_context: MakeContext
    ) -> None:
        """Width 5 would be."""
        suite = Acceptance(parts=("chain", "width"))
        context = make_context()
        for row in suite.rows(context):
            one = sample(most_nodes(row.speculation), 10)
            context.results.add({**row.key, "prompts": [one]})
        comparisons = suite.report(context).tables[1]
        assert "best tree (union, width 1 <1,1,1,1,1,1,1,1>) / best single chain" in comparisons
        assert "width 2" not in comparisons.split("best tree")[1].split("\n")[0]

    def test_combine_rules_stand_beside_unions_of_as_many_nodes(
        self, make_context: MakeContext
    ) -> None:
        suite = Acceptance(parts=("combine",))
        context = make_context()
        sizes = {"union": 40, "vote": 8, "vote_tree": 38, "log_pool": 41}
        for row in suite.rows(context):
            config = row.speculation
            one = sample(30 if config.combine == "log_pool" else 20, 10 * sizes[config.combine])
            context.results.add({**row.key, "prompts": [one]})
        table = suite.report(context).tables[5]
        lines = [line for line in table.splitlines() if "log_pool" in line]
        assert lines and all("1.33x (1.33 to 1.33) (40.0 nodes)" in line for line in lines)
        unions = [line for line in table.splitlines() if "| union" in line]
        assert unions and all(line.endswith("| - |") for line in unions)

    def test_traversal_is_held_against_mss(self, make_context: MakeContext) -> None:
        """In the single SSMs' rows it accepts a half more, in the union's a half less."""
        suite = Acceptance(parts=("same",))
        context = make_context()
        for row in suite.rows(context):
            accepted = 20
            if row.kind.verify == "traversal":
                accepted = 10 if "union" in row.name else 30
            prompts = [sample(accepted, 80, f"p{i}") for i in range(3)]
            context.results.add({**row.key, "prompts": prompts})
        lines = [x for x in suite.report(context).tables[-1].splitlines() if "traversal / mss" in x]
        assert sum("1.33x (1.33 to 1.33) | reached" in line for line in lines) == len(SSMS)
        assert sum("0.67x (0.67 to 0.67) | not reached, by 0.33" in line for line in lines) == 1
        # 1 + (5 x 30 + 10) / 60 over 1 + 20 / 10: rows are pooled, not merged.
        assert "all of these rows" in lines[-1] and "1.22x (1.22 to 1.22) | reached" in lines[-1]

    def test_distinct_share(self) -> None:
        assert distinct_share([1, 2, 3, 4, 5, 6]) == 1.0
        assert distinct_share([1, 1, 1, 1, 1, 1, 1]) == 0.25
        assert distinct_share([1, 2, 1, 2, 1, 2, 1, 2]) == pytest.approx(2 / 5)
        assert distinct_share([1, 2]) == 1.0

    def test_tables_of_known_samples(self, make_context: MakeContext) -> None:
        """Width w accepts w tokens a round, but for plain top-k, which falls; one prompt loops."""
        suite = Acceptance(parts=("width",))
        context = make_context()
        for row in suite.rows(context):
            width = row.speculation.expansion[0]
            length = 9 - width if (row.kind.draft, row.kind.verify) == ("topk", "match") else width
            prompts = [
                sample(10 * length if i else 700, 80, f"p{i}", distinct=0.9 if i else 0.2)
                for i in range(3)
            ]
            context.results.add({**row.key, "prompts": prompts})
        widths = suite.report(context).tables[2].splitlines()
        coupled = next(line for line in widths if line.startswith("| coupled"))
        assert "2.00 (2.00 to 2.00)" in coupled and "6.00 (6.00 to 6.00)" in coupled
        assert coupled.endswith("| yes | yes |")
        falling = next(line for line in widths if line.startswith("| topk, match"))
        assert falling.endswith("| NO | NO |")


class TestCpuBundled:
    def test_measures_continues_and_reports(self, make_context: MakeContext) -> None:
        suite = CpuBundled(temperatures=(0.8,), variants=VARIANTS)

        def interrupt(message: str) -> None:
            if message.startswith("block"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            suite.measure(make_context(interrupt, tokens=4))
        context = make_context(tokens=4)
        found = context.results.found
        assert found == 4 + 1  # the sweep on four prompts, one block
        before = json.dumps(context.results.samples)
        suite.measure(context)
        assert json.dumps(context.results.samples[:found]) == before
        block = context.results.samples[-1]
        names = [*PRESETS, "transformers generate", ASSISTED, LOOKUP]
        assert list(block["figures"]) == names
        for figures in block["figures"].values():
            assert figures["tokens"] == 4 and figures["seconds"] > 0
        swept = {s["prompt"] for s in context.results.where(kind="sweep")}
        assert len(swept) == 4
        assert swept.isdisjoint(prompt.id for prompt in context.prompts)
        (table,) = suite.report(context).tables
        assert all(f"| {name} |" in table for name in names)
        assert "1.00x (1.00 to 1.00)" in table

    def test_an_assistant_is_a_copy_with_its_schedule(self) -> None:
        variants = all_variants()
        assert len(variants) == len(set(map(str, variants))) == len(SSMS) * 3 * 3 + 3
        assert {v.schedule for v in variants if v.family == ASSISTED} == {
            "constant",
            "heuristic",
            "heuristic_transient",
        }

    def test_the_fastest_of_the_sweep_competes(self, make_context: MakeContext) -> None:
        context = make_context()
        speeds = {f"{LOOKUP} 3": (1.0, 4.0), f"{LOOKUP} 5": (2.0, 1.0), f"{ASSISTED} x": (0.1, 0.1)}
        for i in range(2):
            figures = {name: {"tokens": 4, "seconds": s[i]} for name, s in speeds.items()}
            context.results.add(
                {"kind": "sweep", "dtype": "float32", "temperature": 0.0, "figures": figures}
            )
        assert best_variant(context.results, "float32", 0.0, LOOKUP) == f"{LOOKUP} 5"
        assert best_variant(context.results, "float32", 0.8, LOOKUP) == ""

    def test_what_was_not_swept_on_every_prompt_does_not_compete(
        self, make_context: MakeContext
    ) -> None:
        context = make_context()
        fast, slow = {"tokens": 4, "seconds": 0.1}, {"tokens": 4, "seconds": 1.0}
        for figures in ({f"{LOOKUP} 3": fast, f"{LOOKUP} 5": slow}, {f"{LOOKUP} 5": slow}):
            context.results.add(
                {"kind": "sweep", "dtype": "float32", "temperature": 0.0, "figures": figures}
            )
        assert best_variant(context.results, "float32", 0.0, LOOKUP) == f"{LOOKUP} 5"

    def test_each_drafter_keeps_its_fastest_settings(self, make_context: MakeContext) -> None:
        variants = [Variant(ASSISTED, n, ssm, "constant") for ssm in "ab" for n in (3, 5, 8)]
        variants += [Variant(LOOKUP, 3), Variant(LOOKUP, 5)]
        seconds = (3.0, 1.0, 2.0, 9.0, 8.0, 7.0, 0.2, 0.1)
        figures = {
            str(v): {"tokens": 2, "seconds": s} for v, s in zip(variants, seconds, strict=True)
        }
        kept = fastest_of_each_drafter(variants, figures, 1)
        assert [(v.family, v.ssm, v.count) for v in kept] == [
            (ASSISTED, "a", 5), (ASSISTED, "b", 8), (LOOKUP, "", 5)
        ]  # fmt: skip

    def test_who_was_not_installed_on_the_first_prompts_competes_by_the_others(
        self, make_context: MakeContext
    ) -> None:
        fast, slow = {"tokens": 4, "seconds": 0.1}, {"tokens": 4, "seconds": 1.0}
        late = [Variant(LOOKUP, 3), Variant(LOOKUP, 5)]
        kept = fastest_of_each_drafter([*VARIANTS[:1], *late], {str(VARIANTS[0]): fast}, 1)
        assert [str(one) for one in kept[1:]] == [f"{LOOKUP} 3", f"{LOOKUP} 5"]
        context = make_context()
        for figures in ({f"{ASSISTED} x": fast}, {f"{ASSISTED} x": fast, f"{LOOKUP} 5": slow}):
            context.results.add(
                {"kind": "sweep", "dtype": "float32", "temperature": 0.0, "figures": figures}
            )
        assert best_variant(context.results, "float32", 0.0, LOOKUP) == f"{LOOKUP} 5"
        assert best_variant(context.results, "float32", 0.0, ASSISTED) == f"{ASSISTED} x"

    def test_only_settings_that_are_kept_are_swept_on(self, make_context: MakeContext) -> None:
        lookups = (Variant(LOOKUP, 3), Variant(LOOKUP, 5))
        suite = CpuBundled(temperatures=(0.0,), variants=lookups, settings_kept=1)
        context = make_context(prompts=1, tokens=4)
        suite.measure(context)
        first, *others = [set(s["figures"]) for s in context.results.where(kind="sweep")]
        assert first == set(map(str, lookups)) and len(others) == 3
        assert len(set.union(*others)) == 1


class TestOverhead:
    def test_measures_and_reports(self, make_context: MakeContext) -> None:
        suite = Overhead(families=("bundled",))
        context = make_context(prompts=1, tokens=8)
        suite.measure(context)
        assert len(context.results.samples) == 2
        for sample in context.results.samples:
            assert set(sample["rounds"]) == set(overhead_configs())
            for rounds in sample["rounds"].values():
                for _, outside, *stages, whole in rounds:
                    assert 0 < outside < whole
                    # Stages and passes make up the round: what is outside adds up to the whole.
                    assert sum(stages) == pytest.approx(outside, abs=1e-3)
        assert {nodes for nodes, *_ in sample["rounds"]["plain"]} == {0.0}
        suite.measure(context)
        assert len(context.results.samples) == 2
        *by_size, fits = suite.report(context).tables
        assert len(by_size) == 2 and all("| of the round |" in one for one in by_size)
        assert "0.8 ms + 15 us" in fits and "2 % of a round" not in "".join(by_size)

    def test_grown_models_have_a_table_of_their_own(
        self, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, family: LoadedModels
    ) -> None:
        monkeypatch.setattr("bench.suites.overhead.grown_models", lambda context, dtype: family)
        suite = Overhead(families=())
        context = replace(make_context(prompts=1, tokens=4), grown=Path("unused"))
        suite.measure(context)
        assert {sample["family"] for sample in context.results.samples} == {"grown"}
        greedy, _, fits = suite.report(replace(context, grown=None)).tables
        assert "Outside model passes: grown, T = 0" in greedy and "2 % of a round" in greedy
        assert "| grown | 0.8 |" in fits

    def test_passes_made_together_are_taken_off_once(self) -> None:
        """A round of 20 ms, in it passes of 9 ms for three SSMs at once, and 1 ms of drafting."""
        done = [event for event in synthetic_run(2) if isinstance(event, RoundCompleted)][-1]
        drafting = tuple(Span(name, "draft", 0.0, 10.0, 1 / 3) for name in DRAFTERS)
        event = replace(done, spans=(*drafting, Span("llm", "forward", 10.0, 15.0)))
        outside, *stages, whole = _outside(event, 20.0, {"ssm": 9.0, "llm": 5.0})
        assert (outside, whole) == (pytest.approx(20 - 9 - 5), 20.0)
        expected = {"draft": 1.0, "events": 5.0}
        assert stages == pytest.approx([expected.get(stage, 0.0) for stage in STAGES])

    def test_the_clock_counts_every_pass_and_nothing_else(self, family: LoadedModels) -> None:
        clock = PassClock()
        case = DecodeCase(load_prompts()[0], 1, 6, 0.0)
        all_three = SpeculationConfig(expansion=(1,), speculation_length=2, max_tree_nodes="uncut")
        with timing_passes(family, clock) as models:
            engine = Engine(models)
            count_tokens(engine, case, SpeculationConfig.preset("autoregressive"))
            taken = clock.take()
            assert taken["llm"] > 0 and taken["ssm"] == 0
            assert clock.take() == {"llm": 0.0, "ssm": 0.0}
            start = time.perf_counter()
            count_tokens(engine, case, all_three)
            took = (time.perf_counter() - start) * 1000
            together = clock.take()
            assert 0 < together["ssm"] < took - together["llm"], "a pass for three counts once"
        count_tokens(engine, case, all_three)
        assert clock.take() == {"llm": 0.0, "ssm": 0.0}

    def test_passes_of_stacked_ssms_are_on_the_clock(
        self, family: LoadedModels, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those over feeds, and those of compiled drafts."""
        made: list[None] = []

        def slowed(pass_by: Callable[..., Any]) -> Callable[..., Any]:
            def slow(*asked: Any) -> Any:
                made.append(time.sleep(0.02))
                return pass_by(*asked)

            return slow

        monkeypatch.setattr(Stack, "forward", slowed(Stack.forward))
        ssms = list(family.ssms.values())
        assert isinstance(ssms[0], HfModel) and isinstance(ssms[0].stack, Stack)
        forward = compiled_of(ssms[0].stack._forward)
        assert forward is not None
        for draft in ("topk", "best_first"):
            case = DecodeCase(load_prompts()[0], 1, 6, 0.0)
            chains = SpeculationConfig(
                draft=draft, expansion=(1,), speculation_length=3, max_tree_nodes="uncut"
            )
            made.clear()
            clock = PassClock()
            with monkeypatch.context() as patch, timing_passes(family, clock) as models:
                if draft == "topk":
                    patch.setattr(forward._pool, "run", slowed(forward._pool.run))
                count_tokens(Engine(models), case, chains)
            assert clock.take()["ssm"] > 20 * len(made) > 0

    def test_a_synthetic_family_runs_as_a_real_one(self, family: LoadedModels) -> None:
        """Any vocabulary; drafts are accepted now and then; every token has a text."""
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
