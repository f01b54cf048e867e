"""The `length` suite: its contestants, the choice of the best fixed length, its charts."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.contestants import DecodeCase
from bench.length_chart import length_figure, main
from bench.prompts import load_prompts, take_round_robin
from bench.suites.length import Length, trace_run, with_hopeless_ssm
from bench.suites.length_tables import (
    BEST,
    FIXED,
    GOODPUT,
    OWN,
    PLAIN,
    POLICIES,
    LengthContest,
    contestants,
    hopeless_contestants,
)
from bench.tables import claim_row
from core.config import LENGTHS, SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError
from core.models.loading.load import LoadedModels
from lab.figures import Estimate

PROMPTS = load_prompts()
SUITE = Length(temperatures=(0.0,), hopeless_prompts=2)


def figures(seconds: float, length: int = 2) -> dict[str, Any]:
    """A contestant's figures: ten tokens in five rounds."""
    rounds = dict.fromkeys(("lengths", "depths", "nodes"), [length] * 5)
    return {"tokens": 10, "seconds": seconds, "accepted": 5, **rounds}


def block(prompt: str, **seconds: float) -> dict[str, Any]:
    """A sample: each contestant took one second, except the contestants in `seconds`."""
    defaults = {name: figures(1.0) for name in (*FIXED, *POLICIES)}
    given = {name.replace("_", " "): figures(time) for name, time in seconds.items()}
    key = {"part": "contest", "dtype": "float32", "temperature": 0.0, "repeat": 0}
    return {**key, "prompt": prompt, "load": 0.0, "figures": {**defaults, **given}}


def test_contestants_differ_only_in_their_length_policy() -> None:
    configs = contestants()
    assert set(configs) == {*FIXED, *POLICIES}
    assert set(POLICIES) | {"fixed"} == set(LENGTHS)
    without_length = {
        dataclasses.replace(config, length="fixed", speculation_length=0)
        for config in configs.values()
    }
    assert len(without_length) == 1
    # A measured budget would differ between policies.
    assert isinstance(without_length.pop().max_tree_nodes, int)
    hopeless = hopeless_contestants()
    assert set(hopeless) == {PLAIN, GOODPUT}
    assert {config.drafters for config in hopeless.values()} == {("all",)}


def test_the_best_fixed_length_of_one_half_is_compared_on_the_other() -> None:
    """`fixed 2` is fastest on one half of the prompts, `fixed 5` on the other half."""
    prompts = take_round_robin(PROMPTS, 8)
    probe = LengthContest([block(p.id) for p in prompts], PROMPTS)
    samples = []
    for prompt in prompts:
        fast = {"fixed_2": 0.5} if probe._half[prompt.id] else {"fixed_5": 0.25}
        samples.append(block(prompt.id, **fast))
    contest = LengthContest(samples, PROMPTS)
    assert [contest.best_fixed(half) for half in (0, 1)] == ["fixed 2", "fixed 5"]
    result = contest.against(GOODPUT, BEST)
    assert result is not None
    # 1.0: no length is compared on the half that chose it.
    assert (result.value, result.groups) == (1.0, 8)
    assert contest.against("fixed 5", PLAIN, "stories").value == pytest.approx(2.5)  # type: ignore[union-attr]


def test_a_domain_has_a_best_fixed_length_of_its_own() -> None:
    prompts = take_round_robin(PROMPTS, 8)
    samples = [
        block(p.id, **({"fixed_8": 0.25} if p.domain == "code" else {"fixed_1": 0.5}))
        for p in prompts
    ]
    contest = LengthContest(samples, PROMPTS)
    best, own = (contest.against(PLAIN, rival, "code") for rival in (BEST, OWN))
    # `fixed 1`, best overall, gains nothing in domain `code`.
    assert best is not None and best.value == 1.0
    assert own is not None and own.value == 0.25


def test_lengths_by_round_end_where_half_of_the_runs_do() -> None:
    samples = [block(prompt.id) for prompt in PROMPTS[:4]]
    for sample, rounds in zip(samples, ([1, 1, 1, 1], [3, 3, 3, 3], [2, 2], [2]), strict=True):
        sample["figures"][GOODPUT]["lengths"] = rounds
    assert LengthContest(samples, PROMPTS).lengths(GOODPUT) == [2.0, 2.0, 2.0, 2.0]
    samples[1]["figures"][GOODPUT]["lengths"] = [3]
    assert LengthContest(samples, PROMPTS).lengths(GOODPUT) == [2.0, 1.5]


@pytest.mark.parametrize(
    ("value", "above", "verdict"),
    [(0.97, False, "reached"), (0.9, False, "not reached, by 0.07"), (1.0, True, "reached")],
)
def test_verdicts_of_claims(value: float, above: bool, verdict: str) -> None:
    line = claim_row("a", Estimate(value, 0.5, 1.5, 4), 0.97, above=above)
    assert line[-1] == verdict
    assert claim_row("a", None, 0.97)[-1] == "-"
    assert claim_row("a", Estimate(1.0, 1.0, 1.0, 1), 1.0, above=True)[-1].startswith("not")


def test_tokens_of_a_hopeless_ssm_are_verified_and_never_accepted(family: LoadedModels) -> None:
    models = with_hopeless_ssm(family)
    assert len(models.ssms) == 1 and models.llm is family.llm
    config = SpeculationConfig(expansion=(3,), speculation_length=2, max_tree_nodes="uncut")
    case = DecodeCase(PROMPTS[0], 1, 12, 0.0)
    hopeless, usual = (trace_run(Engine(each), case, config) for each in (models, family))
    assert hopeless["accepted"] == 0 and min(hopeless["nodes"][:-1]) > 0
    assert usual["accepted"] > 0
    assert hopeless["tokens"] == usual["tokens"] == len(hopeless["lengths"]) == 12


def test_one_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="half choose"):
        SUITE.check(dataclasses.replace(SUITE.defaults, prompts=1))


class TestChart:
    def test_each_drawn_policy_has_bars_and_a_line(self, make_context: Any) -> None:
        context = make_context()
        for prompt in take_round_robin(PROMPTS, 8):
            context.results.add(block(prompt.id, goodput=0.5))
        picture = length_figure(context.results, PROMPTS)
        bars, lines = ([t for t in picture.data if t.type == kind] for kind in ("bar", "scatter"))
        assert len(bars) == len(lines) == 3
        # A bar for all prompts, and a bar for each of four domains.
        assert all(len(bar.x) == 5 and bar.base == 1 for bar in bars)
        assert bars[0].name == GOODPUT and set(bars[0].y) == {1.0}
        assert lines[0].y == (2.0,) * 5

    def test_the_command_draws_a_results_file(
        self, make_context: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        context = make_context()
        out = tmp_path / "deep" / "picture.html"
        assert main([str(context.results.path), str(out)]) == 2
        assert "samples" in capsys.readouterr().err
        context.results.add(block(PROMPTS[0].id))
        assert main([str(context.results.path), str(out)]) == 0
        assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert main([str(tmp_path / "none.json"), str(out)]) == 2

    @pytest.mark.browser
    def test_a_path_that_ends_in_svg_gives_an_svg_picture(
        self, make_context: Any, tmp_path: Path
    ) -> None:
        context, out = make_context(), tmp_path / "picture.svg"
        context.results.add(block(PROMPTS[0].id))
        # Playwright's sync API allows one instance per thread, and this thread may have one.
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(main, [str(context.results.path), str(out)]).result() == 0
        text = "".join(ET.parse(out).getroot().itertext())
        assert "Tokens a second / plain decoding, float32, T = 0" in text
