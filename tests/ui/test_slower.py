"""The page's reasons why a run was slower than plain decoding, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.config import SpeculationConfig
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import NGRAM
from core.events import Ahead, RunStats, Scheduled
from lab.figures import Estimate
from tests.synthetic import synthetic_run
from tests.ui.example_run import end_frame, run_events, run_view
from tests.ui.fakes import plain_twin
from ui.run.frame import Baseline, Frame
from ui.run.slower import slower_because
from ui.run.values import figures_value
from ui.run.view import View, reduce_all
from ui.run.what_if import what_if_value
from ui.words.messages import run_lines
from ui.words.spreads import apart_words, is_slower, is_unsure, speed_up_words

COUNTS = {"num_new_tokens": 100, "num_rounds": 50, "num_accepted_tokens": 50}
RATES = {"draft_acceptance_rate": 0.5, "tokens_per_second": 50.0}
HALF_AS_FAST = RunStats(**COUNTS, **RATES, num_draft_tokens=100)
HALF = Estimate(0.5, 0.4, 0.6, 3)


def warnings_of(view: View, plain: float, **stats: float) -> list[str]:
    """`plain`: plain decoding's tokens per second."""
    ended = end_frame(replace(view, stats=replace(view.stats, **stats), state="completed"))
    blocks = ((plain, ended.view.stats.tokens_per_second),) * 2
    lines = run_lines(ended, Baseline(plain, "plain", "note", blocks=blocks))
    return [line.text for line in lines if line.kind == "warn"]


def why(
    preset: str = "specinfer", beside_others_ms: float = 0.0, ratio: Estimate = HALF, **changes: Any
) -> str:
    names = changes.keys() & SpeculationConfig().to_plain().keys()
    fields = {name: changes.pop(name) for name in names}
    plain = {**SpeculationConfig.preset(preset).to_plain(), **fields}
    return slower_because(replace(HALF_AS_FAST, **changes), ratio, plain, beside_others_ms)


def test_a_slower_run_is_reported_with_reason_and_remedy_and_a_faster_one_is_not() -> None:
    slow = replace(run_view(), stats=HALF_AS_FAST, rounds=())
    for changes, words in (
        ({"draft_ms": 1500, "verify_ms": 400}, "fewer drafters"),
        ({"draft_ms": 200, "verify_ms": 1500}, "max_tree_nodes"),
        ({"draft_acceptance_rate": 0.05}, "closer to this text"),
        ({"draft_ms": 10, "verify_ms": 20}, "The rest costs most"),
        ({"draft_ms": 700, "verify_ms": 740}, "gains too little"),
    ):
        (warning,) = warnings_of(slow, 100.0, **changes)
        assert warning.startswith("0.50x: slower than plain decoding") and words in warning
        round_time = "a round takes the time of 4.0 plain tokens (drafting"
        assert round_time in warning and ") and brings 2.0" in warning
    assert warnings_of(slow, 25.0) == [] and slower_because(RunStats(), HALF) == ""
    plain = reduce_all(plain_twin(run_events()))
    assert warnings_of(plain, plain.stats.tokens_per_second * 2) == [], (
        "plain decoding has no warning"
    )


def test_the_largest_part_of_a_round_is_the_one_named_as_costing_most() -> None:
    for draft, llm, words in (
        (15.0, 14.9, "Drafting costs most"),
        (15.5, 16.0, "The LLM pass costs most"),
        (12.0, 12.5, "The rest costs most"),
        (16.5, 14.0, "Drafting costs most"),
    ):
        reason = why(draft_ms=50 * draft, verify_ms=50 * llm)
        # A round takes the time of 4.0 plain tokens.
        printed = [f"{ms / 10:.1f}" for ms in (draft, llm)]
        rest = 4 - sum(map(float, printed))
        parts = f"(drafting {printed[0]}, LLM pass {printed[1]}, the rest {rest:.1f})"
        assert words in reason and parts in reason and reason.count("costs most") == 1
    near = why(draft_ms=50 * 17.0, verify_ms=50 * 17.5, ratio=Estimate(0.3, 0.3, 0.3, 1))
    assert "The LLM pass costs most" in near, "a plain round of 6 ms"
    cheap = why(draft_ms=50 * 17.0, verify_ms=50 * 17.5, ratio=Estimate(0.8, 0.8, 0.8, 1))
    assert "Drafting costs nearly as much as the LLM pass: try fewer drafters" in cheap, (
        "a plain round of 16 ms"
    )


def test_no_difference_is_reported_where_the_range_of_the_blocks_holds_one() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    unsure = Baseline(60.0, "plain", "note", blocks=((60.0, 50.0), (60.0, 48.0), (50.0, 64.0)))
    figures = figures_value(ended, unsure)
    assert figures["speed"] == (
        "0.83x the speed of plain decoding (0.80 to 1.28 in 3 repeats): no difference is shown"
    )
    assert not figures["slower"] and not any(
        "slower" in one.text for one in run_lines(ended, unsure)
    )
    lost = replace(unsure, blocks=((60.0, 50.0), (60.0, 48.0), (50.0, 49.0)))
    assert figures_value(ended, lost)["slower"]
    assert any(one.text.startswith("0.83x: slower") for one in run_lines(ended, lost))


def test_repeats_too_far_apart_are_called_so() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    too_different = "the repeats differ too much to tell"
    for slowest, words in ((30.0, too_different), (31.0, "no difference is shown")):
        blocks = ((60.0, 54.0), (60.0, slowest), (60.0, 61.0))
        speed = figures_value(ended, Baseline(60.0, "plain", "note", blocks=blocks))["speed"]
        assert speed.endswith(f" to 1.02 in 3 repeats): {words}")
    lost = Baseline(60.0, "plain", "note", blocks=((60.0, 6.0), (60.0, 30.0), (60.0, 30.0)))
    value = figures_value(ended, lost)
    assert value["slower"] and value["speed"].endswith(" to 0.50 in 3 repeats)")
    won = Estimate(3.0, 1.01, 4.0, 3)
    assert apart_words(won) == ""
    assert apart_words(replace(won, low=0.99)) == too_different
    prompts = Estimate(1.0, 0.5, 3.0, 6)
    assert apart_words(prompts, "prompt") == "" and apart_words(replace(prompts, groups=1)) == ""


def test_a_run_is_not_called_slower_while_its_blocks_are_still_measured() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    baseline = Baseline(100.0, "plain", "note", blocks=((100.0, 50.0),) * 2)
    warnings = [one.text for one in run_lines(ended, baseline) if one.kind == "warn"]
    assert warnings and "0.50x: slower" in warnings[0]
    assert run_lines(replace(ended, measuring=True), baseline)[-1].kind != "warn"


@pytest.mark.parametrize("blocks", [(), ((100.0, 50.0),)])
def test_a_run_is_not_called_slower_on_one_sample(blocks: tuple[tuple[float, float], ...]) -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    baseline = Baseline(100.0, "plain", "note", blocks=blocks)
    assert not [one for one in run_lines(ended, baseline) if "slower" in one.text]
    figures = figures_value(ended, baseline)
    assert figures["speed"].endswith("one sample") and not figures["slower"]
    assert not figures["offer"]


def test_what_costs_most_is_named_only_beyond_the_spread_of_the_rounds() -> None:
    steady = [(4.0, 26.0, 10.0)] * 5
    stats = replace(HALF_AS_FAST, draft_ms=200.0, verify_ms=1300.0)
    fields = SpeculationConfig.preset("specinfer").to_plain()
    assert "LLM pass costs most" in slower_because(stats, HALF, fields, rounds=steady)
    mixed = [*steady[:2], (4.0, 6.0, 30.0), (4.0, 8.0, 28.0), (4.0, 20.0, 16.0)]
    reason = slower_because(stats, HALF, fields, rounds=mixed)
    assert (
        reason.endswith(" and brings 2.0.") and "costs most" not in reason and "try" not in reason
    )
    few = replace(stats, draft_acceptance_rate=0.05)
    assert "closer to this text" in slower_because(few, HALF, fields, rounds=mixed)


def test_every_part_of_the_page_has_the_same_speed_up() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    baseline = Baseline(50.0, "plain", "note", blocks=((60.0, 50.0), (50.0, 20.0), (50.0, 15.0)))
    figures, predicted = figures_value(ended, baseline), what_if_value(ended, baseline)
    assert figures["speedup"] == predicted["speedup"] == pytest.approx(0.4)
    tokens_a_round = HALF_AS_FAST.num_new_tokens / HALF_AS_FAST.num_rounds
    round_ms = 1000 * tokens_a_round / HALF_AS_FAST.tokens_per_second
    assert predicted["plain_ms"] * tokens_a_round / round_ms == pytest.approx(0.4)
    (slower,) = [one.text for one in run_lines(ended, baseline) if one.kind == "warn"]
    assert slower.startswith("0.40x") and figures["speed"].startswith("0.40x")
    assert "the time of 5.0 plain tokens (" in slower and ") and brings 2.0" in slower, "2.0 / 5.0"


def test_only_controls_that_matter_are_named() -> None:
    few, drafting = {"draft_acceptance_rate": 0.05}, {"draft_ms": 1500.0, "verify_ms": 400.0}
    for changes in (few, drafting):
        best = why("best", **changes)
        assert "speculation_length" not in best.replace("max_speculation_length", "")
        assert "a lower max_speculation_length (goodput adapts below it)" in best
        assert "a shorter speculation_length" in why("specinfer", **changes)
        assert "speculation_length" not in why("specinfer", speculation_length=1, **changes)
    assert "a higher confidence_threshold" in why("specinfer", length="confidence", **few)
    assert "fewer drafters" in why(**drafting)
    assert "fewer drafters" not in why("sequence", drafters=["ssm-code"], **drafting)


def test_a_smaller_tree_is_advised_by_the_settings_that_make_it() -> None:
    verifying = {"draft_ms": 200.0, "verify_ms": 1500.0}
    tree = why(**verifying)
    assert "a lower max_tree_nodes, or a narrower expansion" in tree
    vote = why("minions", **verifying)
    assert "expansion" not in vote and "max_speculation_length" in vote
    assert "vote_nodes" in why(combine="vote_tree", **verifying) and "vote_nodes" not in tree
    rest = {"draft_ms": 10.0, "verify_ms": 20.0}
    assert "record_top_k" not in why(**rest) and "record_top_k 0" in why(record_top_k=5, **rest)
    little = {"draft_ms": 700.0, "verify_ms": 740.0}
    assert "max_tree_nodes" not in why("specinfer-paper", **little), (
        "a limit `uncut` cannot be raised"
    )
    assert "a larger max_tree_nodes than 8" in why(max_tree_nodes=8, **little)


def test_a_length_that_is_not_reached_is_not_advised_to_be_lowered() -> None:
    few, three = {"draft_acceptance_rate": 0.05}, {"drafters": ["a", "b", "c"]}
    rest, little = {"draft_ms": 10.0, "verify_ms": 20.0}, {"draft_ms": 700.0, "verify_ms": 740.0}
    shallow: dict[str, Any] = {**three, "max_tree_nodes": 12, "expansion": [1, 1, 3]}
    assert why(**shallow, **few).endswith("SSMs closer to this text, or a speculation_length of 1.")
    assert "a speculation_length below 5" in why(**{**shallow, "max_tree_nodes": 36}, **few)
    one = why(**{**shallow, "max_tree_nodes": 3}, **few)
    assert "a lower max_tree_nodes" in one and "speculation_length" not in one
    assert why(**{**shallow, "max_tree_nodes": 1}, **few).endswith("try SSMs closer to this text.")
    assert "a lower max_speculation_length" in why("best", **three, max_tree_nodes=64, **few)
    assert "a max_speculation_length of 1" in why("best", **three, max_tree_nodes=2, **few)
    verifying = {"draft_ms": 200.0, "verify_ms": 1500.0}
    assert "expansion" not in why(**shallow, **verifying), (
        "the third step of the expansion is not reached"
    )
    assert "a narrower expansion" in why(**{**shallow, "max_tree_nodes": 60}, **verifying)
    assert "try a larger max_tree_nodes than 12" in why(**shallow, **rest)
    assert "a longer speculation_length" in why(**three, max_tree_nodes=MAX_TREE_NODES, **rest)
    assert "a larger max_tree_nodes than 12" in why(**shallow, **little)
    reached = {**shallow, "speculation_length": 2}
    assert "max_tree_nodes" not in why(**reached, **little), "more nodes would change nothing"


def test_a_run_that_drafted_nothing_is_not_called_slower_for_its_drafts() -> None:
    no_drafts: dict[str, Any] = {"num_draft_tokens": 0, "draft_acceptance_rate": 0.0}
    as_plain: dict[str, Any] = {**no_drafts, "num_new_tokens": 50, "tokens_per_second": 96.0}
    reason = why("best", ratio=Estimate(0.96, 0.96, 0.96, 1), **as_plain, verify_ms=490.0)
    assert reason.startswith(
        "0.96x: slower than plain decoding here, which is within the noise of single runs: with no "
        "tokens drafted in 50 rounds, this run is practically plain decoding."
    )
    assert "means nothing" in reason and "no draft was expected to bring the text faster" in reason
    for remedy in ("max_tree_nodes", "speculation_length", "SSMs closer", "try "):
        assert remedy not in reason
    assert "2 tokens drafted" in why("best", **{**as_plain, "num_draft_tokens": 2})
    few = why("best", **{**as_plain, "num_draft_tokens": 5})
    assert "practically plain decoding" not in few, (
        "one drafted token in ten rounds counts as drafting"
    )
    slow = why("best", **{**as_plain, "tokens_per_second": 50.0})
    assert "A round took the time of 2.0 plain tokens: run it again" in slow and "noise" not in slow
    assert "Lookup found nothing" in why("sequence", drafters=[NGRAM], **as_plain)
    assert "confidence_threshold=0.4" in why("specinfer", length="confidence", **as_plain)


def test_drafting_during_the_llms_passes_is_no_cost_of_the_round() -> None:
    # The 50 rounds take 2000 ms: LLM passes 1250 ms, drafting 1700 ms, both at once 1000 ms.
    reason = why(draft_ms=1700.0, verify_ms=1250.0, overlap_ratio=0.8, pipeline="ahead")
    assert "drafting 1.4 and 2.0 more beside the LLM's passes, LLM pass 2.5" in reason
    assert "Drafting costs most" not in reason and "pipeline=off" in reason
    alone = why(draft_ms=700.0, verify_ms=1250.0)
    assert "drafting 1.4, LLM pass 2.5" in alone and "pipeline=off" not in alone


def test_an_llm_that_served_other_requests_is_reported() -> None:
    reason = why("minions", 500.0, draft_ms=900.0, verify_ms=600.0)
    assert "drafting 0.8 and 1.0 more beside the LLM's passes" in reason
    # The overlap includes drafting during other requests' passes.
    assert why("minions", 500.0, draft_ms=900.0, verify_ms=600.0, overlap_ratio=5 / 6) == reason
    with_own_overlap = why("minions", 500.0, draft_ms=900.0, verify_ms=600.0, overlap_ratio=1.0)
    assert "drafting 0.6 and 1.2 more beside" in with_own_overlap
    assert reason.endswith(
        "The LLM served other requests meanwhile, which plain decoding was measured without: "
        "pipeline=across is for the tokens of all of them together."
    )


def test_a_scheduled_run_among_others_is_not_called_slow_for_its_drafts() -> None:
    scheduled = Scheduled("shared", 2, 2, 0, None, None, 4, 4, 8, 8, 0.5, "", "it pays")
    slow = replace(
        run_view(), stats=replace(HALF_AS_FAST, num_draft_tokens=0, num_accepted_tokens=0)
    )
    words = "schedule=shared is for the tokens of all of them together"
    for num_live in (2, 1):
        of_run = replace(scheduled, num_live=num_live)
        rounds = tuple(replace(line, scheduled=of_run) for line in slow.rounds)
        (warning,) = warnings_of(replace(slow, rounds=rounds), 100.0)
        others = "The LLM served other requests meanwhile" in warning
        assert others == (num_live == 2) and (words in warning) == others, warning


def test_the_page_passes_the_runs_own_configuration_and_overlap() -> None:
    view = reduce_all(synthetic_run(5, seed=5))
    config = {"speculation": SpeculationConfig.preset("best").to_plain()}
    known = Ahead("ssm-code", 0, 1.0, True, 500.0, 0.0)
    rounds = (replace(view.rounds[0], ahead=(known,)), *view.rounds[1:])
    stats = replace(HALF_AS_FAST, draft_ms=1500.0, verify_ms=400.0)
    for lines, words in ((view.rounds, "goodput adapts below it"), (rounds, "other requests")):
        started = replace(view.started, config=config)
        slow_view = replace(view, started=started, rounds=lines, stats=stats, state="completed")
        frame = Frame(view=slow_view, run_id="x", known=9, ended=True, at_end=True)
        baseline = Baseline(100.0, "plain", "note", blocks=((100.0, 50.0),) * 2)
        line = run_lines(frame, baseline)[-1]
        assert line.kind == "warn" and words in line.text


def test_a_speed_up_is_called_slower_by_the_digits_that_are_printed() -> None:
    touching, below = Estimate(0.85, 0.54, 0.9996, 3), Estimate(0.85, 0.54, 0.994, 3)
    assert "(0.54 to 1.00 in" in speed_up_words(replace(touching, ends=True))
    assert not is_slower(touching) and is_unsure(touching)
    assert is_slower(below) and not is_unsure(below)


def test_the_median_block_is_the_one_of_the_speed_up() -> None:
    blocks = ((0.0, 50.0), (50.0, 20.0), (50.0, 15.0), (50.0, 10.0))
    ends = (((1.0,), (1.0,)),) * len(blocks)
    baseline = Baseline(50.0, "plain", "note", blocks=blocks, ends=ends)
    ratio = baseline.speed_up(50.0)
    assert ratio is not None and ratio.value == pytest.approx(0.3)
    assert baseline.median_block == 2
    even = replace(baseline, blocks=blocks[:3], ends=ends[:3])
    assert even.median_block is None, "0.3 and 0.4: no block is the median"
