"""What the page says: verdicts with numbers, where a run stands, whether it told the truth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.engine.overlap import ALONE as ALONE_NOTE
from core.events import Ahead, RunStats, Trial
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.fakes import plain_twin
from ui.run.explain import bars, explain, letter, quote
from ui.run.frame import Baseline, Frame
from ui.run.slower import slower_because
from ui.run.switching import ALONE
from ui.run.values import figures_value, strip_value
from ui.run.view import Detail, detail_of, reduce_all
from ui.words.messages import Line, ordinal, run_lines, standing

EVENTS = synthetic_run(30, seed=5)
VIEW = reduce_all(EVENTS)
NAMES = VIEW.drafters


def details() -> list[Detail]:
    return [d for d in (detail_of(EVENTS, r) for r in range(30)) if d]


def node_with(outcome: str) -> tuple[Detail, int]:
    for detail in details():
        assert detail.verified
        if outcome in detail.verified.outcomes:
            return detail, detail.verified.outcomes.index(outcome)
    raise AssertionError(outcome)


@pytest.mark.parametrize(
    ("outcome", "begins"),
    [("accepted", "Accepted: after"), ("rejected", "Rejected: after"), ("not_reached", "Not reac")],
)
def test_each_outcome_is_told_with_its_numbers(outcome: str, begins: str) -> None:
    detail, node = node_with(outcome)
    told = explain(detail, node, NAMES, {})
    assert told.outcome == outcome and told.sentence.startswith(begins)
    assert detail.combined and quote(detail.combined.texts[node]) in told.title
    if outcome != "not_reached":
        assert "%" in told.sentence


def test_a_rejection_says_what_was_wanted_instead() -> None:
    for detail in details():
        verdict, tree = detail.verified, detail.combined
        assert verdict and tree
        after = verdict.path[-1] if verdict.path else -1
        for node, outcome in enumerate(verdict.outcomes):
            if outcome == "rejected" and tree.parents[node] == after:
                sentence = explain(detail, node, NAMES, {}).sentence
                assert quote(verdict.own_text) in sentence
                return
    raise AssertionError("no rejection at the end of a path")


def test_the_own_token_is_told_by_its_kind() -> None:
    words = {"recovered": "its own token", "bonus": "for free", "plain": "Nothing was drafted"}
    seen = set()
    for detail in details():
        assert detail.verified
        kind = detail.verified.own_kind
        told = explain(detail, None, NAMES, {})
        assert words[kind] in told.sentence and told.outcome == "own"
        seen.add(kind)
    assert seen == set(words)


def test_a_path_that_ends_the_text_has_no_own_token() -> None:
    detail = details()[0]
    assert detail.verified
    verdict = replace(detail.verified, own_token_id=None, own_kind="none", own_text="")
    ended = replace(detail, verified=verdict)
    told = explain(ended, None, NAMES, {})
    assert "ends the text" in told.sentence
    assert any(top.node == (verdict.path[-1] if verdict.path else -1) for top in verdict.top_k)
    assert bars(ended, told, NAMES) == {}, "nothing was chosen after the end of the text"


def test_mss_is_told_trial_by_trial() -> None:
    detail, node = node_with("accepted")
    assert detail.verified
    trials = (Trial(node, "ssm-code", 0.1, 0.4, False), Trial(node, "ssm-stories", 0.3, 0.2, True))
    verdict = replace(detail.verified, rule="mss", trials=trials)
    sentence = explain(replace(detail, verified=verdict), node, NAMES, {}).sentence
    assert sentence.startswith("Accepted: ssm-code's draw was rejected (p / q = 0.1 / 0.4 = 0.25")
    assert "for certain (p / q = 0.3 / 0.2 = 1.5" in sentence


def test_traversal_is_told_as_a_judgement_of_the_whole_branch() -> None:
    detail, node = node_with("accepted")
    assert detail.verified
    trials = (Trial(node, "ssm-code", 0.1, 0.4, False), Trial(node, "ssm-stories", 0.3, 0.2, True))
    verdict = replace(detail.verified, rule="traversal", trials=trials)
    sentence = explain(replace(detail, verified=verdict), node, NAMES, {}).sentence
    assert "with all that hung below it, was rejected (p / q = 0.1 / 0.4 = 0.25)" in sentence
    assert "for certain (p / q = 0.3 / 0.2 = 1.5" in sentence


def test_match_is_told_by_its_seed() -> None:
    for outcome, words in (("accepted", "was in the tree"), ("rejected", "not “")):
        detail, node = node_with(outcome)
        assert detail.verified
        verdict = replace(detail.verified, rule="match")
        told = explain(replace(detail, verified=verdict), node, NAMES, {"seed": 7})
        assert "with seed 7" in told.sentence and words in told.sentence


def test_before_the_verdict_nothing_is_claimed() -> None:
    detail, node = node_with("accepted")
    unverified = replace(detail, verified=None, completed=None)
    assert "Waiting" in explain(unverified, node, NAMES, {}).sentence
    assert explain(unverified, None, NAMES, {}).outcome == "pending"
    assert explain(replace(unverified, combined=None), node, NAMES, {}).sentence
    assert explain(None, None, NAMES, {}).sentence
    assert explain(detail, 10**6, NAMES, {}).outcome == "own", "a node that is not there"
    assert explain(detail, -1, NAMES, {}).outcome == "root"


def test_bars_are_what_the_token_was_chosen_from() -> None:
    detail, node = node_with("accepted")
    assert detail.combined and detail.verified
    told = explain(detail, node, NAMES, {})
    rows = bars(detail, told, NAMES)
    assert set(rows) == {"llm", "0", "1", "2"}
    parent = detail.combined.parents[node]
    top = next(t for t in detail.verified.top_k if t.node == parent and t.source == "llm")
    assert [row["t"] for row in rows["llm"].values()] == list(top.texts)
    hits = [row for row in rows["llm"].values() if row["hit"]]
    assert all(row["id"] == told.token_id for row in hits)


def test_quoted_texts_are_short_and_visible() -> None:
    assert quote("a\nb\t") == "“a⏎b⇥”"
    assert quote("\x1b[31m\u202e\x00") == "“·[31m··”"
    for text in HOSTILE_TEXTS:
        assert len(quote(text)) <= 44 and quote(text).isprintable()


def test_letters_go_on_after_z() -> None:
    assert [letter(i) for i in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]


def test_standing_says_where_the_visitor_is() -> None:
    running = reduce_all(EVENTS[:30])
    cases = {
        "Press Run": Frame(),
        "Starting.": Frame(run_id="x"),
        "In the queue: 2nd in line.": Frame(run_id="x", place=2),
        "Writing: ": Frame(view=running, run_id="x", known=30, at_end=True),
        "Engine finished, you are at round 8 of 30": Frame(
            view=running, run_id="x", known=122, known_rounds=30, ended=True, mode="slow"
        ),
        "The engine runs on, you are at round 8 of 9": Frame(
            view=running, run_id="x", known=40, known_rounds=9, mode="step"
        ),
        "Finished: ": Frame(view=VIEW, run_id="x", known=122, ended=True, at_end=True),
        "The engine closed": Frame(run_id="x", ended=True),
    }
    for words, frame in cases.items():
        assert standing(frame).startswith(words), (words, standing(frame))


def test_the_chip_says_how_the_run_stands_as_the_sentence_does() -> None:
    view = reduce_all(EVENTS[:30])
    behind = {"view": view, "run_id": "x", "known": 122, "known_rounds": 30}
    chips = {
        "running": Frame(**behind, mode="step"),
        "playing back": Frame(**behind, mode="slow", ended=True),
        "interrupted": Frame(**behind, ended=True, at_end=True),
        "completed": Frame(view=VIEW, run_id="x", known=122, ended=True, at_end=True),
        "queued": Frame(run_id="x", place=2),
        "": Frame(run_id="x"),
    }
    for chip, frame in chips.items():
        assert figures_value(frame, None)["state"] == chip


@pytest.mark.parametrize(
    ("end", "words"),
    [("failed", "Failed after"), ("cancelled", "Stopped: "), ("cut", "Interrupted: ")],
)
def test_standing_tells_every_ending(end: str, words: str) -> None:
    view = reduce_all(synthetic_run(4, seed=1, end=end))
    frame = Frame(view=view, run_id="x", known=9, ended=True, at_end=True)
    assert standing(frame).startswith(words)
    assert run_lines(frame)[0].kind == ("error" if end == "failed" else "info")


def test_places_are_counted_in_english() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]
    )


def test_a_run_that_is_alone_is_told_what_to_do_and_no_warning_is_left_of_it() -> None:
    first, *rest = VIEW.rounds
    alone = replace(VIEW, rounds=(replace(first, notes=(ALONE_NOTE,)), *rest))
    frame = Frame(view=alone, run_id="x", known=9, ended=True, at_end=True)
    lines = run_lines(frame)
    assert Line("info", ALONE) in lines and "second tab" in ALONE
    assert not [line for line in lines if line.kind == "warn" or "nobody to draft" in line.text]
    assert strip_value(frame)["notes"] == {}, "nothing happened in that round"
    lost = replace(rest[0], notes=("drafter a failed; the run goes on without it",))
    both = replace(alone, rounds=(alone.rounds[0], lost, *rest[1:]))
    frame = replace(frame, view=both)
    assert [line.text for line in run_lines(frame) if line.kind == "warn"] == [
        "Round 2: drafter a failed; the run goes on without it."
    ]
    assert list(strip_value(frame)["notes"]) == ["1"]


def test_once_drafts_were_made_beside_another_request_nobody_is_alone() -> None:
    first, second, *rest = VIEW.rounds
    beside = replace(second, ahead=(Ahead("ssm-code", 0, 1.0, True, 4.0, 0.0),))
    view = replace(VIEW, rounds=(replace(first, notes=(ALONE_NOTE,)), beside, *rest))
    lines = run_lines(Frame(view=view, run_id="x", known=9, ended=True, at_end=True))
    assert not [line for line in lines if "alone" in line.text or line.kind == "warn"]


def stats(**changes: float) -> RunStats:
    base = {
        "num_new_tokens": 100,
        "num_rounds": 50,
        "num_accepted_tokens": 50,
        "num_draft_tokens": 100,
        "draft_acceptance_rate": 0.5,
        "tokens_per_second": 50.0,
    }
    return RunStats(**{**base, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"draft_ms": 1500, "verify_ms": 400}, "fewer drafters"),
        ({"draft_ms": 200, "verify_ms": 1500}, "max_tree_nodes"),
        ({"draft_acceptance_rate": 0.05}, "closer to this text"),
        ({"draft_ms": 10, "verify_ms": 20}, "take the rest"),
        ({"draft_ms": 700, "verify_ms": 740}, "gains too little"),
    ],
)
def test_a_slower_run_is_told_with_reason_and_remedy(changes: dict[str, float], words: str) -> None:
    view = replace(VIEW, stats=stats(**changes), state="completed")
    frame = Frame(view=view, run_id="x", known=9, ended=True, at_end=True)
    lines = run_lines(frame, Baseline(100.0, "plain", "note"))
    slower = [line for line in lines if line.kind == "warn"]
    assert len(slower) == 1 and slower[0].text.startswith("0.50x: slower than plain decoding")
    assert words in slower[0].text and "a round took 40.0 ms (4.0 plain tokens" in slower[0].text


def test_a_faster_run_is_not_excused() -> None:
    view = replace(VIEW, stats=stats(), state="completed")
    frame = Frame(view=view, run_id="x", known=9, ended=True, at_end=True)
    assert not [x for x in run_lines(frame, Baseline(25.0, "p", "n")) if x.kind == "warn"]
    assert slower_because(RunStats(), 10.0) == ""
    plain = reduce_all(plain_twin(EVENTS))
    slow = Baseline(plain.stats.tokens_per_second * 2, "p", "n")
    frame = Frame(view=plain, run_id="x", known=9, ended=True, at_end=True)
    assert not [x for x in run_lines(frame, slow) if x.kind == "warn"], "plain decoding is plain"


def test_one_is_one() -> None:
    events = synthetic_run(1, seed=1)
    view = reduce_all(events)
    one = Frame(view=view, known=len(events), ended=True, at_end=True, run_id="x")
    assert " in 1 round;" in standing(one)
    token = replace(view, stats=replace(view.stats, num_new_tokens=1, num_rounds=2))
    assert "1 token in 2 rounds;" in standing(replace(one, view=token))
