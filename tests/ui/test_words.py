"""What the page says: verdicts with numbers, a run's state, why it was slow."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ui
from core.config import SpeculationConfig
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import NGRAM
from core.engine.overlap import ALONE as ALONE_NOTE
from core.events import (
    Ahead,
    Event,
    ProposalRecord,
    RoundCompleted,
    RunStats,
    Scheduled,
    Trial,
)
from lab.figures import Estimate
from tests.synthetic import DRAFTERS, HOSTILE_TEXTS, Mechanisms, synthetic_run
from tests.synthetic.run import model_infos
from tests.ui.fakes import plain_twin
from ui.components.pictures import PICTURES, GridLength, GridSpeed
from ui.learn.lessons.measured import COLUMNS
from ui.run.budget import budget_words, nodeless, with_budget_bounds
from ui.run.explain import bars, explain, probability, quote
from ui.run.frame import Baseline, Frame
from ui.run.letters import letter, letters_of, slots_of
from ui.run.pipeline_notes import ALONE
from ui.run.player import Pace
from ui.run.scrubber import scrubber_value
from ui.run.slower import slower_because
from ui.run.trees import picture_words, places
from ui.run.values import figures_value, picture_values, strip_value
from ui.run.view import Detail, View, detail_of, reduce_all
from ui.run.what_if import what_if_value
from ui.sessions.two_runs_tables import FIGURES
from ui.shared.parts import header_value
from ui.words.acceptance import ACCEPTED_OF_DEPTH
from ui.words.messages import Line, ordinal, position_sentence, run_lines
from ui.words.spreads import is_slower, is_unsure, speed_up_words

UI = Path(ui.__file__).parent
OTHER_WORDS = re.compile(
    r"accepted of drafted|draft tokens accepted|of the draft was accepted|an acceptance rate of",
    re.IGNORECASE,
)


@cache
def run_events() -> list[Event]:
    return synthetic_run(30, seed=5)


@cache
def run_view() -> View:
    return reduce_all(run_events())


def end_frame(view: View) -> Frame:
    return Frame(view=view, run_id="x", known=9, ended=True, at_end=True)


def details() -> list[Detail]:
    return [d for d in (detail_of(run_events(), r) for r in range(30)) if d]


def node_with(outcome: str) -> tuple[Detail, int]:
    for detail in details():
        if outcome in detail.verified.outcomes:
            return detail, detail.verified.outcomes.index(outcome)
    raise AssertionError(outcome)


@pytest.mark.parametrize(
    ("outcome", "begins"),
    [("accepted", "Accepted: after"), ("rejected", "Rejected: after"), ("not_reached", "Not reac")],
)
def test_each_outcome_is_reported_with_its_numbers(outcome: str, begins: str) -> None:
    detail, node = node_with(outcome)
    explanation = explain(detail, node, run_view().letters, {})
    assert explanation.outcome == outcome and explanation.sentence.startswith(begins)
    assert detail.combined and quote(detail.combined.texts[node]) in explanation.title
    if outcome != "not_reached":
        assert re.search(r"\(\d\.\d{3}\)", explanation.sentence)


def test_a_title_names_two_proposers_and_gives_the_letters_of_more() -> None:
    detail, letters = detail_of(synthetic_run(12), 1), {"p": "P", "q": "Q", "r": "R"}
    assert detail is not None and detail.combined is not None

    def title(*names: str) -> str:
        offered = tuple(ProposalRecord(name, 0.5, 1.0, 0) for name in names)
        tree = replace(detail.combined, proposals=(offered, *detail.combined.proposals[1:]))
        return explain(replace(detail, combined=tree), 0, letters, {}).title.partition("by ")[2]

    assert title("p") == "P (p)" and title("p", "p") == "P (p) 2 times"
    assert title("p", "q", "p") == "P (p) 2 times, Q (q)"
    assert title("p", "q", "r", "lost") == "P, Q, R, lost" and title() == "no drafter"


def test_the_last_digit_of_a_probability_is_that_of_its_bar() -> None:
    """The bars' values have four digits, of which the picture writes three."""
    for exact, drawn in ((0.77452, "0.774"), (0.77457, "0.775"), (0.00047, "0.001")):
        assert probability(exact) == drawn
    assert probability(0.00044) == "<0.001" and probability(0.999999) == ">0.999"


def test_a_rejection_says_what_was_wanted_instead() -> None:
    for detail in details():
        verdict, tree = detail.verified, detail.combined
        after = verdict.path[-1] if verdict.path else -1
        for node, outcome in enumerate(verdict.outcomes):
            if outcome == "rejected" and tree.parents[node] == after:
                sentence = explain(detail, node, run_view().letters, {}).sentence
                assert quote(verdict.own_text) in sentence
                return
    raise AssertionError("no rejection at the end of a path")


def test_the_own_token_is_reported_by_its_kind() -> None:
    words = {
        "recovered": "so the draft stops here",
        "bonus": "for free",
        "plain": "Nothing was drafted",
    }
    kinds = set()
    for detail in details():
        kind, explanation = detail.verified.own_kind, explain(detail, None, run_view().letters, {})
        assert words[kind] in explanation.sentence and explanation.outcome == "own"
        kinds.add(kind)
    assert kinds == set(words)


def test_a_bonus_that_was_drafted_but_dropped_is_said_so() -> None:
    detail = next(d for d in details() if d.verified.own_kind == "bonus" and d.verified.path)
    assert "dropped before" not in explain(detail, None, run_view().letters, {}).sentence
    last, verdict, tree = detail.verified.path[-1], detail.verified, detail.combined
    name = tree.drafters_of(last)[0]
    draft = next(one for one in detail.drafted.drafts if one.drafter == name)
    parent = next(j for j, node in places(detail, name).items() if node == last)
    longer = replace(
        draft,
        token_ids=(*draft.token_ids, verdict.own_token_id),
        texts=(*draft.texts, verdict.own_text),
        parents=(*draft.parents, parent),
        depths=(*draft.depths, draft.depths[parent] + 1),
        scores=(*draft.scores, 0.5),
        qs=(*draft.qs, 0.5),
        ranks=(*draft.ranks, 0),
    )
    drafts = tuple(longer if one is draft else one for one in detail.drafted.drafts)
    dropped = replace(tree, dropped=(*tree.dropped, (name, len(draft.token_ids))))
    changed = replace(detail, drafted=replace(detail.drafted, drafts=drafts), combined=dropped)
    sentence = explain(changed, None, run_view().letters, {}).sentence
    assert (
        f"drafted too (by {run_view().letters[name]}), but dropped before the LLM's pass"
        in sentence
    )


def test_a_round_whose_drafts_were_all_dropped_is_not_one_without_drafts() -> None:
    detail = next(d for d in details() if d.verified.own_kind == "plain")
    drafted, verdict = next(d for d in details() if d.drafted.drafts).drafted, detail.verified
    draft = replace(drafted.drafts[0], parents=(-1, *drafted.drafts[0].parents[1:]))
    own = replace(verdict, own_token_id=draft.token_ids[0], own_text=draft.texts[0])
    tree = replace(detail.combined, dropped=((draft.drafter, 0), (draft.drafter, 1)))
    changed = replace(
        detail, drafted=replace(drafted, drafts=(draft,)), combined=tree, verified=own
    )
    sentence = explain(changed, None, run_view().letters, {}).sentence
    assert "2 drafted tokens dropped before the LLM's pass" in sentence
    assert f"drafted too (by {run_view().letters[draft.drafter]})" in sentence


def test_what_was_drafted_besides_is_said_with_its_drafters() -> None:
    letters = run_view().letters
    num_seen = 0
    for detail in details():
        verdict, tree = detail.verified, detail.combined
        after = verdict.path[-1] if verdict.path else -1
        here = [node for node, parent in enumerate(tree.parents) if parent == after]
        if verdict.own_kind != "recovered" or len(here) < 2:
            continue
        besides = re.search(
            r"\(besides it .* here, by (.*?)\)", explain(detail, None, letters, {}).sentence
        )
        assert besides
        likeliest = max(here, key=lambda node: verdict.llm_probabilities[node])
        others = {letters[n] for i in here if i != likeliest for n in tree.drafters_of(i)}
        assert set(besides[1].split(", ")) == others
        num_seen += 1
    assert num_seen


def test_a_tree_below_its_budget_dropped_nothing_for_want_of_room() -> None:
    view, tree = run_view(), details()[0].combined
    count = len(tree.token_ids)
    for most, words in ((count + 1, "not worth the time"), (count, "the node budget was full")):
        config = {
            **view.started.config,
            "speculation": {**view.speculation, "max_tree_nodes": most},
        }
        started = replace(view, started=replace(view.started, config=config))
        assert words in picture_words(started, replace(tree, rule="union")).dropped
        assert "weighted score" in picture_words(started, replace(tree, rule="vote_tree")).dropped


def test_a_path_that_ends_the_text_has_no_own_token() -> None:
    detail = details()[0]
    verdict = replace(detail.verified, own_token_id=None, own_kind="none", own_text="")
    ended = replace(detail, verified=verdict)
    explanation = explain(ended, None, run_view().letters, {})
    assert "ends the text" in explanation.sentence
    assert any(top.node == (verdict.path[-1] if verdict.path else -1) for top in verdict.top_k)
    assert bars(ended, explanation, run_view().drafters) == {}, (
        "nothing was chosen after the end of the text"
    )


def test_mss_is_reported_trial_by_trial_and_traversal_by_whole_branches() -> None:
    detail, node = node_with("accepted")
    trials = (Trial(node, "ssm-code", 0.1, 0.4, False), Trial(node, "ssm-stories", 0.3, 0.2, True))
    for rule, words in (
        ("mss", "Accepted: ssm-code's draw was rejected (p / q = 0.1 / 0.4 = 0.25"),
        ("traversal", "with all that hung below it, was rejected (p / q = 0.1 / 0.4 = 0.25)"),
    ):
        verdict = replace(detail.verified, rule=rule, trials=trials)
        sentence = explain(replace(detail, verified=verdict), node, run_view().letters, {}).sentence
        assert words in sentence and "for certain (p / q = 0.3 / 0.2 = 1.5" in sentence


def test_match_is_reported_by_its_seed() -> None:
    for outcome, words in (("accepted", "was in the tree"), ("rejected", "not “")):
        detail, node = node_with(outcome)
        verdict = replace(detail.verified, rule="match")
        explanation = explain(
            replace(detail, verified=verdict), node, run_view().letters, {"seed": 7}
        )
        assert "with seed 7" in explanation.sentence and words in explanation.sentence
        at_zero = {"seed": 7, "temperature": 0.0}
        explanation = explain(replace(detail, verified=verdict), node, run_view().letters, at_zero)
        assert "the LLM's most probable token is" in explanation.sentence


def test_before_the_verdict_nothing_is_claimed() -> None:
    detail, node = node_with("accepted")
    unverified = replace(detail, verified=None, completed=None)
    assert "Waiting" in explain(unverified, node, run_view().letters, {}).sentence
    assert explain(unverified, None, run_view().letters, {}).outcome == "pending"
    assert explain(replace(unverified, combined=None), node, run_view().letters, {}).sentence
    assert explain(None, None, run_view().letters, {}).sentence
    assert explain(detail, 10**6, run_view().letters, {}).outcome == "own", (
        "a node that is not there"
    )
    assert explain(detail, -1, run_view().letters, {}).outcome == "root"


def test_bars_are_what_the_token_was_chosen_from() -> None:
    detail, node = node_with("accepted")
    explanation = explain(detail, node, run_view().letters, {})
    rows = bars(detail, explanation, run_view().drafters)
    assert set(rows) == {"llm", "0", "1", "2"}
    parent = detail.combined.parents[node]
    top = next(t for t in detail.verified.top_k if t.node == parent and t.source == "llm")
    assert [row["t"] for row in rows["llm"].values()] == list(top.texts)
    hits = [row for row in rows["llm"].values() if row["hit"]]
    assert all(row["id"] == explanation.token_id for row in hits)
    # A drafter that drew it from beyond its recorded alternatives is listed all the same.
    proposers = {str(run_view().drafters.index(name)) for name in detail.combined.drafters_of(node)}
    few = replace(
        detail.verified, top_k=tuple(t for t in detail.verified.top_k if t.source == "llm")
    )
    rows = bars(replace(detail, verified=few), explanation, run_view().drafters)
    assert set(rows) == {"llm", *proposers}
    assert all(
        [one["id"] for one in rows[key].values()] == [explanation.token_id] for key in proposers
    )
    assert all(one["p"] is None for key in proposers for one in rows[key].values())


def test_an_unlikely_token_that_was_drawn_is_a_bar_too() -> None:
    detail, _ = node_with("accepted")
    view = run_view()
    drawn = replace(
        explain(detail, None, view.letters, {}), token=" in", token_id=10**6, llm_probability=0.0101
    )
    *likely, last = bars(detail, drawn, view.drafters)["llm"].values()
    assert last == {"t": " in", "id": 10**6, "p": 0.0101, "hit": True}
    assert likely and not any(one["hit"] for one in likely)


def test_a_draw_is_no_preference_and_who_drafted_is_named() -> None:
    detail = next(one for one in details() if one.verified.own_kind == "recovered")
    verdict, tree = detail.verified, detail.combined
    after = verdict.path[-1] if verdict.path else -1
    drafted = [node for node, parent in enumerate(tree.parents) if parent == after]
    first = max(drafted, key=lambda node: verdict.llm_probabilities[node])
    by = ", ".join(run_view().letters[name] for name in tree.drafters_of(first))
    for rule, temperature, verb in (
        *(("greedy", 0.0, "prefers"), ("match", 0.0, "prefers")),
        *(("match", 0.8, "drew"), ("mss", 0.8, "drew")),
    ):
        judged = replace(detail, verified=replace(verdict, rule=rule))
        sentence = explain(judged, None, run_view().letters, {"temperature": temperature}).sentence
        message = f"The drafts said {quote(tree.texts[first])} (by {by})"
        if "," not in by:
            message = f"{by}'s draft said {quote(tree.texts[first])}"
        assert sentence.startswith(message)
        assert f"; the LLM {verb} {quote(verdict.own_text)} (" in sentence


def test_quotes_are_short_and_visible_letters_go_on_after_z_places_are_english() -> None:
    assert (
        quote("a\nb\t") == "“a↵b⇥”"
        and quote(" a b ") == "“␣a b ”"
        and quote("\x1b[31m\u202e\x00") == "“·[31m··”"
    )
    for text in HOSTILE_TEXTS:
        assert len(quote(text)) <= 44 and quote(text).isprintable()
    assert [letter(i) for i in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]
    teens = ["11th", "12th", "13th", "21st", "102nd", "111th"]
    assert [ordinal(n) for n in (11, 12, 13, 21, 102, 111)] == teens
    assert [ordinal(n) for n in (1, 2, 3, 4)] == ["1st", "2nd", "3rd", "4th"]


def test_standing_and_chip_say_where_the_visitor_is() -> None:
    view = reduce_all(run_events()[:30])
    behind = {"view": view, "run_id": "x", "known": 122, "known_rounds": 30}
    for words, chip, frame in (
        ("Press Run", None, Frame()),
        ("Starting.", "", Frame(run_id="x")),
        ("In the queue: 2nd in line.", "queued", Frame(run_id="x", place=2)),
        ("Writing: ", None, Frame(view=view, run_id="x", known=30, at_end=True)),
        ("The engine runs on, you are at round 8 of 30", "running", Frame(**behind, mode="step")),
        (
            "Engine finished, you are at round 8 of 30",
            "playing back",
            Frame(**behind, ended=True, mode="slow"),
        ),
        # The eighth round has begun, seven are complete.
        (
            "The engine runs on, you are at round 8 of 8",
            "running",
            Frame(**(behind | {"known_rounds": 7}), mode="step"),
        ),
        ("Interrupted: ", "interrupted", Frame(**behind, ended=True, at_end=True)),
        ("Finished: ", "completed", end_frame(run_view())),
        ("The engine closed", None, Frame(run_id="x", ended=True)),
    ):
        assert position_sentence(frame).startswith(words), (words, position_sentence(frame))
        assert chip is None or figures_value(frame, None)["state"] == chip
    endings = {"failed": "Failed after", "cancelled": "Stopped: ", "cut": "Interrupted: "}
    for end, words in endings.items():
        frame = end_frame(reduce_all(synthetic_run(4, seed=1, end=end)))
        assert position_sentence(frame).startswith(words)
        assert run_lines(frame)[0].kind == ("error" if end == "failed" else "info")


def test_a_run_is_reported_what_to_do_where_it_is_alone_and_as_long_as_it_is() -> None:
    first, *rest = run_view().rounds
    alone = replace(run_view(), rounds=(replace(first, notes=(ALONE_NOTE,)), *rest))
    frame = end_frame(alone)
    lines = run_lines(frame)
    assert Line("info", ALONE) in lines and "second tab" in ALONE
    assert not [line for line in lines if line.kind == "warn" or "nobody to draft" in line.text]
    assert strip_value(frame)["notes"] == {}, "nothing happened in that round"
    lost = replace(rest[0], notes=("drafter a failed; the run goes on without it",))
    frame = replace(frame, view=replace(alone, rounds=(alone.rounds[0], lost, *rest[1:])))
    warned = [line.text for line in run_lines(frame) if line.kind == "warn"]
    assert warned == ["Round 2: drafter a failed; the run goes on without it."]
    assert list(strip_value(frame)["notes"]) == ["1"]
    first, second, *rest = run_view().rounds
    beside = replace(second, ahead=(Ahead("ssm-code", 0, 1.0, True, 4.0, 0.0),))
    view = replace(run_view(), rounds=(replace(first, notes=(ALONE_NOTE,)), beside, *rest))
    lines = run_lines(end_frame(view))
    assert not [line for line in lines if "alone" in line.text or line.kind == "warn"]


def warnings_of(view: View, plain: float, **stats: float) -> list[str]:
    """What is warned of at the end of a run with these figures, beside plain decoding's speed."""
    ended = end_frame(replace(view, stats=replace(view.stats, **stats), state="completed"))
    lines = run_lines(ended, Baseline(plain, "plain", "note"))
    return [line.text for line in lines if line.kind == "warn"]


def test_a_slower_run_is_reported_with_reason_and_remedy_and_a_faster_one_is_not_excused() -> None:
    slow = replace(run_view(), stats=HALF_AS_FAST, rounds=())  # its rounds have other times
    for changes, words in (
        ({"draft_ms": 1500, "verify_ms": 400}, "fewer drafters"),
        ({"draft_ms": 200, "verify_ms": 1500}, "max_tree_nodes"),
        ({"draft_acceptance_rate": 0.05}, "closer to this text"),
        ({"draft_ms": 10, "verify_ms": 20}, "The rest costs most"),
        ({"draft_ms": 700, "verify_ms": 740}, "gains too little"),
    ):
        (warning,) = warnings_of(slow, 100.0, **changes)
        assert warning.startswith("0.50x: slower than plain decoding") and words in warning
        assert (
            "a round takes the time of 4.0 plain tokens and brings 2.0 (40.0 ms: drafting"
            in warning
        )
        assert warning.endswith("One sample of each: measured again it may be otherwise.")
    assert warnings_of(slow, 25.0) == [] and slower_because(RunStats(), HALF) == ""
    plain = reduce_all(plain_twin(run_events()))
    assert warnings_of(plain, plain.stats.tokens_per_second * 2) == [], "plain decoding is plain"


def test_the_largest_part_of_a_round_is_what_is_said_to_cost_most() -> None:
    """Each beside a plain round of 10 ms, where a round takes 40 ms."""
    for draft, llm, words in (
        (15.0, 14.9, "Drafting costs most"),
        (15.5, 16.0, "The LLM pass costs most"),
        (12.0, 12.5, "The rest costs most"),
        (16.5, 14.0, "Drafting costs most"),
    ):
        reason = why(draft_ms=50 * draft, verify_ms=50 * llm)
        between = f"brings 2.0 (40.0 ms: drafting {draft:.1f} ms, LLM pass {llm:.1f} ms, the rest "
        assert words in reason and between in reason and reason.count("costs most") == 1
    near = why(draft_ms=50 * 17.0, verify_ms=50 * 17.5, ratio=Estimate(0.3, 0.3, 0.3, 1))
    assert "The LLM pass costs most" in near, "a plain round of 6 ms"
    cheap = why(draft_ms=50 * 17.0, verify_ms=50 * 17.5, ratio=Estimate(0.8, 0.8, 0.8, 1))
    assert "Drafting costs nearly as much as the LLM pass: try fewer drafters" in cheap


def test_no_difference_is_reported_where_the_range_of_the_blocks_holds_one() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    unsure = Baseline(60.0, "plain", "note", blocks=((60.0, 50.0), (60.0, 48.0), (50.0, 64.0)))
    figures = figures_value(ended, unsure)
    assert figures["speed"] == (
        "0.83x the speed of plain decoding (0.80 to 1.28 in 3 blocks): no difference is shown"
    )
    assert not figures["slower"] and not any(
        "slower" in one.text for one in run_lines(ended, unsure)
    )
    lost = replace(unsure, blocks=((60.0, 50.0), (60.0, 48.0), (50.0, 49.0)))
    assert figures_value(ended, lost)["slower"]
    assert any(one.text.startswith("0.83x: slower") for one in run_lines(ended, lost))


def test_a_run_is_not_called_slower_while_its_blocks_are_still_measured() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    baseline = Baseline(100.0, "plain", "note", blocks=((100.0, 50.0),))
    warnings = [one.text for one in run_lines(ended, baseline) if one.kind == "warn"]
    assert warnings and "0.50x: slower" in warnings[0]
    assert run_lines(replace(ended, measuring=True), baseline)[-1].kind != "warn"


def test_what_costs_most_is_named_only_beyond_the_spread_of_the_rounds() -> None:
    steady = [(4.0, 26.0, 10.0)] * 5
    stats = replace(HALF_AS_FAST, draft_ms=200.0, verify_ms=1300.0)
    fields = SpeculationConfig.preset("specinfer").to_plain()
    assert "LLM pass costs most" in slower_because(stats, HALF, fields, rounds=steady)
    mixed = [*steady[:2], (4.0, 6.0, 30.0), (4.0, 8.0, 28.0), (4.0, 20.0, 16.0)]
    reason = slower_because(stats, HALF, fields, rounds=mixed)
    assert reason.endswith(" ms).") and "costs most" not in reason and "try" not in reason
    # Accepted tokens are counted, not timed.
    few = replace(stats, draft_acceptance_rate=0.05)
    assert "closer to this text" in slower_because(few, HALF, fields, rounds=mixed)


def test_every_part_of_the_page_has_the_same_speed_up() -> None:
    ended = end_frame(replace(run_view(), stats=HALF_AS_FAST, state="completed"))
    # The run itself is the first block: alone it was 0.83x.
    baseline = Baseline(50.0, "plain", "note", blocks=((60.0, 50.0), (50.0, 20.0), (50.0, 15.0)))
    figures, predicted = figures_value(ended, baseline), what_if_value(ended, baseline)
    assert figures["speedup"] == predicted["speedup"] == pytest.approx(0.4)
    tokens_a_round = HALF_AS_FAST.num_new_tokens / HALF_AS_FAST.num_rounds
    round_ms = 1000 * tokens_a_round / HALF_AS_FAST.tokens_per_second
    assert predicted["plain_ms"] * tokens_a_round / round_ms == pytest.approx(0.4)
    (slower,) = [one.text for one in run_lines(ended, baseline) if one.kind == "warn"]
    assert slower.startswith("0.40x") and figures["speed"].startswith("0.40x")
    assert "the time of 5.0 plain tokens and brings 2.0 (" in slower, "which divide to it"


def test_one_is_one() -> None:
    view = reduce_all(synthetic_run(1, seed=1))
    one = end_frame(view)
    assert " in 1 round;" in position_sentence(one)
    token = replace(view, stats=replace(view.stats, num_new_tokens=1, num_rounds=2))
    assert "1 token in 2 rounds;" in position_sentence(replace(one, view=token))


COUNTS = {"num_new_tokens": 100, "num_rounds": 50, "num_accepted_tokens": 50}
RATES = {"draft_acceptance_rate": 0.5, "tokens_per_second": 50.0}
HALF_AS_FAST = RunStats(**COUNTS, **RATES, num_draft_tokens=100)


HALF = Estimate(0.5, 0.4, 0.6, 3)


def why(
    preset: str = "specinfer", beside_ms: float = 0.0, ratio: Estimate = HALF, **changes: Any
) -> str:
    fields = {k: changes.pop(k) for k in list(changes) if k in SpeculationConfig().to_plain()}
    plain = {**SpeculationConfig.preset(preset).to_plain(), **fields}
    return slower_because(replace(HALF_AS_FAST, **changes), ratio, plain, beside_ms)


def test_only_controls_that_matter_are_named() -> None:
    few, drafting = {"draft_acceptance_rate": 0.05}, {"draft_ms": 1500.0, "verify_ms": 400.0}
    for changes in (few, drafting):
        best = why("best", **changes)
        assert "speculation_length" not in best.replace("max_speculation_length", "")
        assert "a lower max_speculation_length (goodput finds the rest)" in best
        assert "a shorter speculation_length" in why("specinfer", **changes)
        assert "speculation_length" not in why("specinfer", speculation_length=1, **changes)
    assert "a higher confidence_threshold" in why("specinfer", length="confidence", **few)
    assert "fewer drafters" in why(**drafting)
    assert "fewer drafters" not in why("sequence", drafters=["ssm-code"], **drafting)


def test_a_smaller_tree_is_asked_of_what_makes_it() -> None:
    verifying = {"draft_ms": 200.0, "verify_ms": 1500.0}
    tree = why(**verifying)
    assert "a lower max_tree_nodes, or a narrower expansion" in tree
    vote = why("minions", **verifying)
    assert "expansion" not in vote and "max_speculation_length" in vote
    assert "vote_nodes" in why(combine="vote_tree", **verifying) and "vote_nodes" not in tree
    rest = {"draft_ms": 10.0, "verify_ms": 20.0}
    assert "record_top_k" not in why(**rest) and "record_top_k 0" in why(record_top_k=5, **rest)
    little = {"draft_ms": 700.0, "verify_ms": 740.0}
    assert "max_tree_nodes" not in why("specinfer-paper", **little), "uncut is no number"
    assert "a larger max_tree_nodes than 8" in why(max_tree_nodes=8, **little)


def test_a_length_that_is_not_reached_is_not_to_be_lowered() -> None:
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
    assert "expansion" not in why(**shallow, **verifying), "its third step is not reached"
    assert "a narrower expansion" in why(**{**shallow, "max_tree_nodes": 60}, **verifying)
    assert "try a larger max_tree_nodes than 12" in why(**shallow, **rest)
    assert "a longer speculation_length" in why(**three, max_tree_nodes=MAX_TREE_NODES, **rest)
    assert "a larger max_tree_nodes than 12" in why(**shallow, **little)
    reached = {**shallow, "speculation_length": 2}
    assert "max_tree_nodes" not in why(**reached, **little), "more nodes would change nothing"


def test_a_run_that_drafted_nothing_was_no_slower_for_its_drafts() -> None:
    none: dict[str, Any] = {"num_draft_tokens": 0, "draft_acceptance_rate": 0.0}
    same: dict[str, Any] = {**none, "num_new_tokens": 50, "tokens_per_second": 96.0}
    reason = why("best", ratio=Estimate(0.96, 0.96, 0.96, 1), **same, verify_ms=490.0)
    assert reason.startswith(
        "0.96x: slower than plain decoding here, which is within the noise of single runs: with no "
        "tokens drafted in 50 rounds, this run is practically plain decoding."
    )
    assert "means nothing" in reason and "no draft was expected to bring the text faster" in reason
    for remedy in ("max_tree_nodes", "speculation_length", "SSMs closer", "try "):
        assert remedy not in reason
    assert "2 tokens drafted" in why("best", **{**same, "num_draft_tokens": 2})
    few = why("best", **{**same, "num_draft_tokens": 5})
    assert "practically plain decoding" not in few, "a draft every tenth round is drafting"
    slow = why("best", **{**same, "tokens_per_second": 50.0})
    assert "took 20.0 ms, plain ones 10.0 ms: run it again" in slow and "noise" not in slow
    assert "Lookup found nothing" in why("sequence", drafters=[NGRAM], **same)
    assert "confidence_threshold=0.4" in why("specinfer", length="confidence", **same)


def test_drafting_beside_the_llm_is_no_cost_of_the_round() -> None:
    # 2000 ms in 50 rounds: 1700 of drafting, 1000 of them beside 1250 of verifying.
    reason = why(draft_ms=1700.0, verify_ms=1250.0, overlap_ratio=0.8, pipeline="ahead")
    assert "drafting 14.0 ms and 20.0 ms more beside the LLM's passes, LLM pass 25.0 ms" in reason
    assert "Drafting costs most" not in reason and "pipeline=off" in reason
    alone = why(draft_ms=700.0, verify_ms=1250.0)
    assert "drafting 14.0 ms, LLM pass 25.0 ms" in alone and "pipeline=off" not in alone


def test_a_shared_llm_is_said_to_be_shared() -> None:
    reason = why("minions", 500.0, draft_ms=900.0, verify_ms=600.0)
    assert "drafting 8.0 ms and 10.0 ms more beside the LLM's passes" in reason
    # What passed beside others' work is in the overlap too: it is counted once.
    assert why("minions", 500.0, draft_ms=900.0, verify_ms=600.0, overlap_ratio=5 / 6) == reason
    more = why("minions", 500.0, draft_ms=900.0, verify_ms=600.0, overlap_ratio=1.0)
    assert "drafting 6.0 ms and 12.0 ms more beside" in more, "and some beside its own passes"
    assert reason.endswith(
        "The LLM served other requests meanwhile, which plain decoding was measured without: "
        "pipeline=across is for the tokens of all of them together."
    )


def test_a_run_that_a_scheduler_served_beside_others_is_not_called_slow_for_its_drafts() -> None:
    part = Scheduled("shared", 2, 2, 0, None, None, 4, 4, 8, 8, 0.5, "", "it pays")
    slow = replace(
        run_view(), stats=replace(HALF_AS_FAST, num_draft_tokens=0, num_accepted_tokens=0)
    )
    words = "schedule=shared is for the tokens of all of them together"
    for num_live in (2, 1):
        own = replace(part, num_live=num_live)
        rounds = tuple(replace(line, scheduled=own) for line in slow.rounds)
        (warning,) = warnings_of(replace(slow, rounds=rounds), 100.0)
        others = "The LLM served other requests meanwhile" in warning
        assert others == (num_live == 2) and (words in warning) == others, warning


def test_the_page_passes_the_run_s_own_configuration_and_overlap() -> None:
    view = reduce_all(synthetic_run(5, seed=5))
    config = {"speculation": SpeculationConfig.preset("best").to_plain()}
    known = Ahead("ssm-code", 0, 1.0, True, 500.0, 0.0)
    rounds = (replace(view.rounds[0], ahead=(known,)), *view.rounds[1:])
    stats = replace(HALF_AS_FAST, draft_ms=1500.0, verify_ms=400.0)
    for lines, words in ((view.rounds, "goodput finds the rest"), (rounds, "other requests")):
        started = replace(view.started, config=config)
        slow_view = replace(view, started=started, rounds=lines, stats=stats, state="completed")
        frame = Frame(view=slow_view, run_id="x", known=9, ended=True, at_end=True)
        line = run_lines(frame, Baseline(100.0, "plain", "note"))[-1]
        assert line.kind == "warn" and words in line.text


@cache
def view_of_eight() -> View:
    return reduce_all(synthetic_run(8, seed=5))


def with_budget(asked: Any, nodes: Any, view: View | None = None, **fields: Any) -> View:
    """The run as if `max_tree_nodes` had been `asked` and had come to `nodes`."""
    view = view or view_of_eight()
    started, plans = view.started, []
    for plan, most in ((started.asked, asked), (started.config, nodes)):
        spec = {**plan["speculation"], "speculation_length": 8, **fields, "max_tree_nodes": most}
        plans.append({**plan, "speculation": spec})
    return replace(view, started=replace(started, asked=plans[0], config=plans[1]))


def test_what_auto_came_to_is_said_to_be_measured_and_what_it_keeps_from() -> None:
    said = budget_words(with_budget("auto", 2))
    assert said.startswith("max_tree_nodes=auto came to 2 nodes in this run: larger trees took ")
    assert "more than 1.5 times a plain pass when this machine was timed." in said
    assert "2 nodes for 3 drafters let drafts be 1 deep: speculation_length 8 is not " in said
    assert said.endswith(f"{DRAFTERS[2]} gets no node and drafts nothing.")
    one = budget_words(with_budget("auto", 1))
    assert "came to 1 node in" in one
    assert one.endswith(f"{DRAFTERS[1]} and {DRAFTERS[2]} get no node and draft nothing.")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"length": "goodput"},
            "the largest tree that was timed: within it goodput chooses the length.",
        ),
        ({}, "the largest tree that was timed: it took at most 1.5 plain passes."),
    ],
)
def test_sixty_four_is_as_many_as_are_timed(fields: dict[str, Any], words: str) -> None:
    view = with_budget("auto", 64, speculation_length=4, expansion=[1], **fields)
    assert budget_words(view) == f"max_tree_nodes=auto came to 64 nodes in this run, {words}"


def test_a_budget_that_keeps_from_nothing_is_not_talked_of_and_a_vote_shares_none() -> None:
    assert budget_words(with_budget("uncut", "uncut")) == ""
    assert budget_words(with_budget(64, 64, speculation_length=2)) == ""
    assert budget_words(with_budget("auto", 1, length="fixed", speculation_length=0)) == ""
    assert budget_words(View()) == "" and nodeless(View()) == ()
    assert budget_words(with_budget("auto", 8, unheard_of=1)) == "", "of another version"
    view = with_budget(2, 2, combine="vote")
    assert nodeless(view) == ()
    words = budget_words(view)
    assert words == "2 nodes let drafts be 2 deep: speculation_length 8 is not reached."
    assert nodeless(with_budget(2, 2, length="goodput")) == (), "there a rule chooses who drafts"
    assert nodeless(with_budget(2, 2, length="trend")) == (DRAFTERS[2],)


def test_the_line_of_the_lengths_is_what_the_budget_allows() -> None:
    lengths = {"rounds": {"0": {"a": 1, "d": 1, "s": 8}, "1": {"a": 2, "d": 2, "s": 8}}}
    bounds = with_budget_bounds(lengths, with_budget("auto", 2))["rounds"]
    assert bounds["0"]["m"] == 1 and bounds["1"]["m"] == 2, "what was drafted, was allowed"
    assert with_budget_bounds(lengths, with_budget("uncut", "uncut"))["rounds"] == lengths["rounds"]
    shown = picture_values(Frame(view=with_budget("auto", 2)))["lengths"]
    view = with_budget("auto", 2)
    assert shown["deep"] and shown["deep"] in budget_words(view)
    assert shown["budget"] == budget_words(view).replace(f"{shown['deep']} ", "")
    # The dots of the scrubber are the same line.
    strip = scrubber_value(Frame(view=with_budget("auto", 2)), Pace(), False)["rounds"]
    assert {
        number: (one["a"], one.get("m", one["s"])) for number, one in shown["rounds"].items()
    } == {number: (one["a"], one["s"]) for number, one in strip.items()}
    assert all(one["s"] < 8 for one in strip.values())
    result = with_budget_bounds(lengths, with_budget("auto", 2, length="trend"))["rounds"]
    assert result == lengths["rounds"], "what a rule found is recorded as it was cut"


def test_the_lengths_say_the_node_budget_once() -> None:
    bound = "drafts are at most 1 deep (max_tree_nodes is 2, for 3 drafters)"
    events = [
        replace(one, length_reason=bound) if isinstance(one, RoundCompleted) else one
        for one in synthetic_run(8, seed=5)
    ]
    view = with_budget(2, 2, view=reduce_all(events), length="fixed")
    shown = picture_values(Frame(view=view, detail=detail_of(events, 3)))["lengths"]
    assert bound in shown["why"] and (shown["reason"], shown["deep"]) == ("", "")
    assert shown["budget"] == f"{DRAFTERS[2]} gets no node and drafts nothing."
    # Before a round is complete no sentence explains its length.
    early = picture_values(Frame(view=view, detail=detail_of(events[:-3], 7)))["lengths"]
    assert early["why"] == ""
    assert early["deep"].startswith("2 nodes for 3 drafters let drafts be 1 deep")


def test_an_empty_row_says_that_the_budget_has_no_node_for_it() -> None:
    view, detail = with_budget("auto", 2), detail_of(synthetic_run(8, seed=5), 1)
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {}, "here it drafted all the same"
    detail = replace(detail, drafted=replace(detail.drafted, drafts=detail.drafted.drafts[:2]))
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {"2": "no node for it: max_tree_nodes is 2, for 3 drafters"}


def test_an_empty_row_says_that_a_rule_did_not_choose_its_drafter() -> None:
    view, detail = with_budget("auto", 2, length="goodput"), detail_of(synthetic_run(8, seed=5), 1)
    detail = replace(detail, drafted=replace(detail.drafted, drafts=detail.drafted.drafts[:2]))
    proposals = picture_values(Frame(view=view, detail=detail))["proposals"]
    assert proposals["nodeless"] == {"2": "not chosen to draft"}


def test_a_speed_up_is_called_slower_by_the_digits_that_are_printed() -> None:
    touching, below = Estimate(0.85, 0.54, 0.9996, 3), Estimate(0.85, 0.54, 0.994, 3)
    assert "(0.54 to 1.00 in" in speed_up_words(replace(touching, ends=True))
    assert not is_slower(touching) and is_unsure(touching)
    assert is_slower(below) and not is_unsure(below)


def test_a_drafter_without_a_model_has_a_chip_in_a_run_that_it_drafts_in() -> None:
    """Its letter is in the tree and the text; SSMs that drafted nothing are told apart from it."""
    infos = model_infos()
    ssms = [info.name for info in infos if info.role == "ssm"]
    assert len(header_value(infos)["models"]) == len(infos)
    chips = list(header_value(infos, scores={"ngram": (3, 8), ssms[1]: (0, 5)})["models"].values())
    assert [chip["score"] for chip in chips[1:]] == [
        {"accepted": 0, "proposed": 0},
        {"accepted": 0, "proposed": 5},
        *({"accepted": 0, "proposed": 0} for _ in ssms[2:]),
        {"accepted": 3, "proposed": 8},
    ]
    assert chips[-1]["letter"] == letters_of(slots_of(["ngram"], infos))["ngram"]
    # An SSM of the shown run that is loaded no more has none.
    assert len(header_value(infos, scores={"ssm-gone": (3, 8)})["models"]) == len(infos)


def test_where_routing_chooses_the_budget_is_that_of_as_many_ssms() -> None:
    view = with_budget(2, 2, routing="credit", routed_drafters=1)
    assert nodeless(view) == ()
    words = "2 nodes let drafts be 2 deep: speculation_length 8 is not reached."
    assert budget_words(view) == words
    two = with_budget(2, 2, routing="cosine", routed_drafters=2)
    assert budget_words(two).startswith("2 nodes for 2 drafters let drafts be 1 deep")
    assert nodeless(with_budget(2, 2, draft="fused")) == (), "the SSMs draft one trunk of them all"
    events = synthetic_run(9, seed=5, mechanisms=Mechanisms(routing="cosine"))
    detail = detail_of(events, 1)
    assert detail is not None and detail.completed is not None
    waiting = [one.drafter for one in detail.completed.routing if one.role == "waiting"]
    shown = picture_values(Frame(view=reduce_all(events), detail=detail))["proposals"]["nodeless"]
    assert shown == {str(DRAFTERS.index(n)): "left out by routing" for n in waiting} != {}


def test_the_share_of_the_drafts_depth_has_one_word_on_every_tab() -> None:
    """Of a wide tree the share of nodes is another one, so no place calls it a share of tokens."""
    assert [name for name, figure, _ in FIGURES if figure == "draft_acceptance_rate"] == [
        ACCEPTED_OF_DEPTH.capitalize()
    ]
    shown = {}
    for path in (*UI.rglob("*.py"), *UI.rglob("*.js")):
        source = path.read_text(encoding="utf-8")
        assert not OTHER_WORDS.findall(source), path
        shown["/".join(path.parts[-2:])] = (
            ACCEPTED_OF_DEPTH in source or "ACCEPTED_OF_DEPTH" in source
        )
    tabs = ("assets/figures.js", "assets/compared.js", "assets/prompt_row.js")
    assert all(shown[name] for name in (*tabs, "tune/values.py", "tune/words.py"))
    assert shown["report/document.py"]


# A quantity in words, where labels, heads and captions have a slash.
IN_WORDS = re.compile(
    r"\b(tokens/s\b|(tokens|accepted|drafted|checked|exchanges|nodes verified|ms)"
    r" (a|per) (second|pass|round)\b)",
    re.IGNORECASE,
)
LITERAL = re.compile(r'"([^"\n]*)"|`([^`\n]*)`')
UNIT = "tokens/s"
"""A grid's unit as it is sent, shown by UNIT_WORDS."""


def labels_of(script: str) -> list[str]:
    """The strings of a script, without whole sentences, which may use words."""
    found = [one or other for one, other in LITERAL.findall(script)]
    return [label for label in found if label != UNIT and not re.search(r"\.($| )", label)]


def test_labels_heads_and_captions_have_one_form_of_a_quantity() -> None:
    labels = [
        (path.name, label)
        for path in sorted(UI.rglob("*.js"))
        for label in labels_of(path.read_text(encoding="utf-8"))
    ]
    labels += [("measured", title) for title, _, _ in COLUMNS.values()]
    labels += [(make.name, make.label) for make in (*PICTURES, GridSpeed, GridLength)]
    assert any("tokens / s" in label for _, label in labels)
    wrong = [(name, label) for name, label in labels if IN_WORDS.search(label)]
    assert not wrong, wrong
    assert labels_of('x("Tokens per second")') == ["Tokens per second"], "control"
    assert IN_WORDS.search("Tokens per second"), "control"
