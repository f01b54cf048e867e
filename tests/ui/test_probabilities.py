"""Bars, scores and the p and q of a verdict: said to be what they are, and they are that."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from core.events import Combined, Event, RoundCompleted, Verified
from core.trees.sampling import process_logits, unprocessed_probabilities
from tests.core.engines import engine_of, request, tables
from ui.run.probabilities import probability_words


def told(temperature: float, **fields: Any) -> str:
    config = SpeculationConfig(**fields).resolved(temperature).to_plain()
    plain = {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    return probability_words({"sampling": plain, "speculation": config})


def test_each_rule_is_told_what_its_numbers_are() -> None:
    greedy = told(0.0)
    assert greedy.startswith("Bars: every model at temperature 1; at 0 the LLM takes its longest")
    assert greedy.endswith("is its bar, calibrated on committed tokens.")
    coupled = told(0.8)
    assert coupled.startswith("Bars: the LLM at temperature 0.8; the SSMs at temperature 1, what")
    assert "at temperature 0.8 with this place's noise in it" in coupled and "p / q" not in coupled
    mss = told(0.8, verify="mss")
    assert "(an SSM's at temperature 0.8, with its earlier draws taken out)" in mss
    assert mss.endswith("p is what earlier rejections left of the LLM's bar.")
    branch = told(0.8, verify="traversal", draft="sampled_iid")
    assert "earlier draws" not in branch
    assert branch.endswith("times the chance that the branch up to here has left.")
    assert told(0.8, drafters=()) == "Bars: the LLM at temperature 0.8."
    cut = {"sampling": {"temperature": 0.5, "top_k": 7, "top_p": 0.9}}
    assert "0.5 (top_k 7, top_p 0.9);" in probability_words(
        {**cut, "speculation": {"drafters": ["a"]}}
    )
    assert probability_words({}) == ""


TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def events() -> list[Event]:
    engine = engine_of(*tables(2, context=128))
    config = SpeculationConfig(
        expansion=(2, 1), speculation_length=2, max_tree_nodes=8, verify="mss", record_top_k=50
    )
    sampling = SamplingParams(12, temperature=TEMPERATURE, seed=3)
    return list(engine.generate(request("w1 w2 w1 w2 w1", sampling, config)))


def test_q_is_at_the_request_s_temperature_and_the_bars_are_not(events: list[Event]) -> None:
    """A first draw's q is its SSM's bar sharpened to T, its score the calibrated bar; a first
    trial's p is the LLM's bar."""
    sampling = SamplingParams(1, temperature=TEMPERATURE)
    found, fitted = 0, dict[str, float]()
    ended = [event for event in events if isinstance(event, RoundCompleted)]
    trees = [event for event in events if isinstance(event, Combined)]
    verdicts = [event for event in events if isinstance(event, Verified)]
    for tree, verdict, after in zip(trees, verdicts, ended, strict=True):
        bars = {(top.node, top.source): top for top in verdict.top_k}
        for trial in verdict.trials[:1]:
            node = trial.node
            place, token_id = tree.parents[node], tree.token_ids[node]
            llm, own = bars[place, "llm"], bars[place, trial.drafter]
            assert trial.p == pytest.approx(
                dict(zip(llm.token_ids, llm.probabilities, strict=True))[token_id]
            )
            logits = torch.tensor(own.probabilities).log()
            at_t = unprocessed_probabilities(process_logits(logits, sampling))
            drawn = float(at_t[own.token_ids.index(token_id)])
            assert trial.q == pytest.approx(drawn, rel=1e-3)
            score = unprocessed_probabilities(logits, fitted.get(trial.drafter, 1.0))
            recorded = next(o.score for o in tree.proposals[node] if o.drafter == trial.drafter)
            assert recorded == pytest.approx(float(score[own.token_ids.index(token_id)]), rel=1e-3)
            found += 1
        fitted = after.temperatures
    assert found > 3
