"""What-if predictions."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import SpeculationConfig
from core.config.budget import max_draft_depth
from tests.synthetic import Mechanisms, synthetic_run
from tests.ui.predicted import RoundCost, expected_tokens, predicted_speedup
from ui.run.frame import Baseline, Frame
from ui.run.times import stage_times
from ui.run.view import reduce_all
from ui.run.what_if import what_if_value


@pytest.mark.parametrize(("acceptance", "length"), [(0.3, 2), (0.8, 6), (1.0, 4), (0.0, 5)])
def test_expected_tokens_are_those_of_a_simulation(acceptance: float, length: int) -> None:
    rng = random.Random(7)

    def tokens() -> int:
        accepted = 0
        while accepted < length and rng.random() < acceptance:
            accepted += 1
        return accepted + 1

    mean = sum(tokens() for _ in range(20_000)) / 20_000
    assert mean == pytest.approx(expected_tokens(acceptance, length), abs=0.05)


def test_a_bigger_llm_gains_and_a_slow_connection_loses() -> None:
    cost = RoundCost(step_ms=1.0, pass_ms=4.0, plain_ms=4.0, other_ms=0.5)
    local = predicted_speedup(cost, 0.7, 4)
    assert local == pytest.approx(expected_tokens(0.7, 4) * 4.0 / 8.5)
    assert predicted_speedup(cost, 0.7, 4, llm_size=8) > local
    assert predicted_speedup(cost, 0.7, 4, llm_size=1e9) == pytest.approx(expected_tokens(0.7, 4))
    remote = RoundCost(step_ms=1.0, pass_ms=4.0, plain_ms=4.0, other_ms=0.5, trip_ms=50.0)
    assert predicted_speedup(remote, 0.7, 4) < 1 < local
    assert predicted_speedup(remote, 0.7, 0) == 1.0
    # A round counts as at least a plain pass, even if its measured times add up to less.
    quick = RoundCost(step_ms=0.1, pass_ms=1.0, plain_ms=9.0)
    assert predicted_speedup(quick, 0.9, 8) == pytest.approx(expected_tokens(0.9, 8))


def test_the_sliders_start_at_what_the_run_measured() -> None:
    view = reduce_all(synthetic_run(8))
    stats = view.stats
    frame = Frame(view=view, ended=True, at_end=True)
    baseline = Baseline(stats.tokens_per_second / 2, "plain", "measured")
    measuring = what_if_value(replace(frame, measuring=True), baseline)
    assert measuring["measuring"] and (measuring["speedup"], measuring["blocks"]) == (None, 0)
    value = what_if_value(frame, baseline)
    assert value["speedup"] == pytest.approx(2.0)
    assert value["tokens"] == stats.num_new_tokens / stats.num_rounds
    rejected = sum(line.accepted < line.depth for line in view.rounds)
    accepted = stats.num_accepted_tokens
    assert value["acceptance"] == pytest.approx(accepted / (accepted + rejected))
    times = value["length"] * value["step_ms"] + value["pass_ms"] + value["other_ms"]
    assert times * stats.num_rounds <= 1000 * stats.num_new_tokens / stats.tokens_per_second * 1.5
    assert what_if_value(frame, None)["speedup"] is None
    blocks = replace(baseline, blocks=((1.0, 0.9), (1.0, 1.2), (1.0, 1.5)))
    value = what_if_value(frame, blocks)
    assert [value[name] for name in ("speedup", "low", "high", "blocks")] == [1.2, 0.9, 1.5, 3]
    assert what_if_value(Frame(), None) == {}


def test_a_prediction_has_the_spread_of_the_runs_rounds_and_blocks() -> None:
    view = reduce_all(synthetic_run(20))
    frame = Frame(view=view, ended=True, at_end=True)
    speed = view.stats.tokens_per_second
    steady = Baseline(speed, "plain", "measured", blocks=((speed, speed),) * 3)
    unsteady = replace(steady, blocks=((speed, speed), (speed, 0.5 * speed), (speed, 2 * speed)))

    def spread(name: str, baseline: Baseline | None) -> float:
        samples = what_if_value(frame, baseline)["samples"].values()
        return max(one[name] for one in samples) - min(one[name] for one in samples)

    assert spread("l", steady) == 0 and spread("l", unsteady) == pytest.approx(1.5)
    assert all(spread(name, steady) > 0 for name in "ado"), "the run's rounds differ"
    assert what_if_value(replace(frame, at_end=False), steady)["samples"] == {}, (
        "only a complete run has samples"
    )
    line = view.rounds[3]
    alike = replace(frame, view=replace(view, rounds=(line,) * 20))
    for one in what_if_value(alike, steady)["samples"].values():
        assert one == {"a": 0.0, "d": 1.0, "p": 1.0, "o": 1.0, "l": 1.0}


def test_the_node_budget_bounds_the_depths_that_are_recommended() -> None:
    view = reduce_all(synthetic_run(8))
    config = SpeculationConfig.from_plain(view.started.config["speculation"])
    for nodes in (12, 40):
        narrow = replace(config, max_tree_nodes=nodes)
        started = replace(
            view.started, config={**view.started.config, "speculation": narrow.to_plain()}
        )
        frame = Frame(view=replace(view, started=started), ended=True, at_end=True)
        value = what_if_value(frame, None)
        assert value["most"] == max_draft_depth(narrow, view.drafters, 16) < 16
        assert list(value["takes"]) == [str(k) for k in range(value["most"] + 1, 17)]
        for depth, least in value["takes"].items():
            for budget, reached in ((least, True), (least - 1, False)):
                wider = replace(narrow, max_tree_nodes=budget)
                assert (max_draft_depth(wider, view.drafters, 16) >= int(depth)) == reached


def test_drafting_ahead_and_the_prefill_are_no_drafting_of_the_round() -> None:
    view = reduce_all(synthetic_run(12, mechanisms=Mechanisms("union", "fixed", "ahead")))
    ahead = [line for line in view.rounds if any(span.name == "ahead" for span in line.spans)]
    assert ahead
    for line in view.rounds:
        draft_ms, llm_ms, other_ms = stage_times(line.spans, line.time.whole_ms)
        own = [span for span in line.spans if span.name not in ("prefill", "ahead")]
        drafting = [span.ms for span in own if span.lane.startswith("ssm")]
        assert draft_ms == pytest.approx(sum(drafting))
        assert draft_ms + llm_ms + other_ms == pytest.approx(line.time.whole_ms)


ROOT = Path(__file__).resolve().parents[2]
SPEEDUP = r"([\d.]+)x \(([\d.]+) to ([\d.]+)\)"


def test_the_figures_of_a_gpu_are_those_of_the_results() -> None:
    source = (ROOT / "ui/components/assets/what_if.js").read_text(encoding="utf-8")
    (literals,) = re.findall(r"const ON_A_GPU = (.*?);\n", source, re.DOTALL)
    sentence = "".join(re.findall(r'"([^"]*)"', literals))
    results = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert "preset best on an H200, temperature 0" in sentence
    llms = (("the bundled LLM", "bundled"), ("one of 7 billion parameters", "grown 7 B"))
    for llm, row in llms:
        (figures,) = re.findall(rf"{SPEEDUP} with {llm} \((\d+) prompts\)", sentence)
        (line,) = re.findall(rf"(?m)^\| H200, {row}, bfloat16.*`best` / plain.*$", results)
        name, _, measured, _ = line.strip("|").split(" | ")
        assert "greedy" in name and figures[-1] == re.findall(r"(\d+) prompts", name)[0]
        assert figures[:-1] == re.findall(SPEEDUP, measured)[-1], "the last figure in the row"
        assert float(figures[1]) < 1 < float(figures[2]), "both ranges contain 1"
    assert sentence.endswith("both ranges contain 1.")
    assert len(re.findall(SPEEDUP, sentence)) == 2, "no other figure"
