"""Slower than plain decoding: where the time went, and only what can change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.config import SpeculationConfig
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import NGRAM
from core.events import Ahead, RunStats
from tests.synthetic import synthetic_run
from ui.run.frame import Baseline, Frame
from ui.run.slower import slower_because
from ui.run.view import reduce_all
from ui.words.messages import run_lines

STATS = RunStats(
    num_new_tokens=100,
    num_rounds=50,
    num_draft_tokens=100,
    draft_acceptance_rate=0.5,
    tokens_per_second=50.0,
)


def said(preset: str = "specinfer", beside_ms: float = 0.0, **changes: Any) -> str:
    fields = {k: changes.pop(k) for k in list(changes) if k in SpeculationConfig().to_plain()}
    plain = {**SpeculationConfig.preset(preset).to_plain(), **fields}
    return slower_because(replace(STATS, **changes), 100.0, plain, beside_ms)


def test_only_controls_that_matter_are_named() -> None:
    few, drafting = {"draft_acceptance_rate": 0.05}, {"draft_ms": 1500.0, "verify_ms": 400.0}
    for changes in (few, drafting):
        best = said("best", **changes)
        assert "speculation_length" not in best.replace("max_speculation_length", "")
        assert "a lower max_speculation_length (goodput finds the rest)" in best
        assert "a shorter speculation_length" in said("specinfer", **changes)
        assert "speculation_length" not in said("specinfer", speculation_length=1, **changes)
    unsure = said("specinfer", length="confidence", **few)
    assert "a higher confidence_threshold" in unsure
    assert "fewer drafters" in said(**drafting)
    assert "fewer drafters" not in said("sequence", drafters=["ssm-code"], **drafting)


def test_a_smaller_tree_is_asked_of_what_makes_it() -> None:
    verifying = {"draft_ms": 200.0, "verify_ms": 1500.0}
    tree = said(**verifying)
    assert "a lower max_tree_nodes, or a narrower expansion" in tree
    vote = said("minions", **verifying)
    assert "expansion" not in vote and "max_speculation_length" in vote
    assert "vote_nodes" in said(combine="vote_tree", **verifying) and "vote_nodes" not in tree
    rest = {"draft_ms": 10.0, "verify_ms": 20.0}
    assert "record_top_k" not in said(**rest) and "record_top_k 0" in said(record_top_k=5, **rest)
    little = {"draft_ms": 700.0, "verify_ms": 740.0}
    assert "max_tree_nodes" not in said("specinfer-paper", **little), "uncut is no number"
    assert "a larger max_tree_nodes than 8" in said(max_tree_nodes=8, **little)


def test_a_length_that_is_not_reached_is_not_to_be_lowered() -> None:
    few, three = {"draft_acceptance_rate": 0.05}, {"drafters": ["a", "b", "c"]}
    rest, little = {"draft_ms": 10.0, "verify_ms": 20.0}, {"draft_ms": 700.0, "verify_ms": 740.0}
    shallow: dict[str, Any] = {**three, "max_tree_nodes": 12, "expansion": [1, 1, 3]}
    told = said(**shallow, **few)
    assert told.endswith("SSMs closer to this text, or a speculation_length of 1.")
    assert "a speculation_length below 5" in said(**{**shallow, "max_tree_nodes": 36}, **few)
    one = said(**{**shallow, "max_tree_nodes": 3}, **few)
    assert "a lower max_tree_nodes" in one and "speculation_length" not in one
    alone = said(**{**shallow, "max_tree_nodes": 1}, **few)
    assert alone.endswith("try SSMs closer to this text.")
    assert "a lower max_speculation_length" in said("best", **three, max_tree_nodes=64, **few)
    assert "a max_speculation_length of 1" in said("best", **three, max_tree_nodes=2, **few)
    verifying = {"draft_ms": 200.0, "verify_ms": 1500.0}
    assert "expansion" not in said(**shallow, **verifying), "its third step is not reached"
    assert "a narrower expansion" in said(**{**shallow, "max_tree_nodes": 60}, **verifying)
    assert "try a larger max_tree_nodes than 12" in said(**shallow, **rest)
    assert "a longer speculation_length" in said(**three, max_tree_nodes=MAX_TREE_NODES, **rest)
    assert "a larger max_tree_nodes than 12" in said(**shallow, **little)
    reached = {**shallow, "speculation_length": 2}
    assert "max_tree_nodes" not in said(**reached, **little), "more nodes would change nothing"


def test_a_run_that_drafted_nothing_was_no_slower_for_its_drafts() -> None:
    none: dict[str, Any] = {"num_draft_tokens": 0, "draft_acceptance_rate": 0.0}
    same: dict[str, Any] = {**none, "num_new_tokens": 50, "tokens_per_second": 96.0}
    told = said("best", **same, verify_ms=490.0)
    assert told.startswith("of the noise of single runs: no tokens drafted in 50 rounds is plain")
    assert "means nothing" in told and "no draft was expected to bring the text faster" in told
    for remedy in ("max_tree_nodes", "speculation_length", "SSMs closer", "try "):
        assert remedy not in told
    assert "2 tokens drafted" in said("best", **{**same, "num_draft_tokens": 2})
    few = said("best", **{**same, "num_draft_tokens": 5})
    assert "plain decoding in all but name" not in few, "a draft every tenth round is drafting"
    slow = said("best", **{**same, "tokens_per_second": 50.0})
    assert "took 20.0 ms, plain ones 10.0 ms: run it again" in slow and "noise" not in slow
    assert "n-gram lookup found nothing" in said("sequence", drafters=[NGRAM], **same)
    assert "confidence_threshold=0.4" in said("specinfer", length="confidence", **same)


def test_drafting_beside_the_llm_is_no_cost_of_the_round() -> None:
    # 2000 ms in 50 rounds: 1700 of drafting, 1000 of them beside 1250 of verifying.
    told = said(draft_ms=1700.0, verify_ms=1250.0, overlap_ratio=0.8, pipeline="ahead")
    assert "drafting 14.0 ms and 20.0 ms more beside the LLM's passes, verifying 25.0 ms" in told
    assert "Drafting costs most" not in told and "pipeline=off" in told
    alone = said(draft_ms=700.0, verify_ms=1250.0)
    assert "drafting 14.0 ms, verifying 25.0 ms" in alone and "pipeline=off" not in alone


def test_a_shared_llm_is_said_to_be_shared() -> None:
    told = said("minions", 500.0, draft_ms=900.0, verify_ms=600.0)
    assert "drafting 8.0 ms and 10.0 ms more beside the LLM's passes" in told
    # What passed beside others' work is in the overlap too: it is told once.
    same = said("minions", 500.0, draft_ms=900.0, verify_ms=600.0, overlap_ratio=5 / 6)
    assert same == told
    more = said("minions", 500.0, draft_ms=900.0, verify_ms=600.0, overlap_ratio=1.0)
    assert "drafting 6.0 ms and 12.0 ms more beside" in more, "and some beside its own passes"
    assert told.endswith(
        "The LLM served other requests meanwhile, which plain decoding was measured without: "
        "pipeline=across is for the tokens of all of them together."
    )


def test_the_page_passes_the_run_s_own_configuration_and_overlap() -> None:
    view = reduce_all(synthetic_run(5, seed=5))
    assert view.started
    config = {"speculation": SpeculationConfig.preset("best").to_plain()}
    known = Ahead("ssm-code", 0, 1.0, True, 500.0, 0.0)
    rounds = (replace(view.rounds[0], ahead=(known,)), *view.rounds[1:])
    stats = replace(STATS, draft_ms=1500.0, verify_ms=400.0)
    for lines, words in ((view.rounds, "goodput finds the rest"), (rounds, "other requests")):
        started = replace(view.started, config=config)
        made = replace(view, started=started, rounds=lines, stats=stats, state="completed")
        frame = Frame(view=made, run_id="x", known=9, ended=True, at_end=True)
        told = run_lines(frame, Baseline(100.0, "plain", "note"))[-1]
        assert told.kind == "warn" and words in told.text
