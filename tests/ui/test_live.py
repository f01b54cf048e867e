"""Handlers of the Live tab."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import gradio as gr
import pytest

from storage import RunQuery, RunStore
from tests.ui.boards import (
    ALL,
    context,
    live_of,
    notice_of,
    press,
    run,
    sessions_of,
    until_writing,
)
from tests.ui.fakes import script_of
from tests.ui.test_compare import differing
from tests.ui.test_form import form_values
from ui.components import pack
from ui.live.handlers import (
    Press,
    Question,
    check_form,
    clear_trouble,
    left_notice,
    run_on_change,
    run_question,
    start_run,
    stop_run,
)
from ui.live.layout import Live
from ui.run.baselines import baseline_of, round_ends_ms
from ui.run.frame import Baseline
from ui.run.plain_run import BLOCKS, race_plain
from ui.run.proof import Answer
from ui.run.race import race_value
from ui.run.values import figures_value
from ui.server.session import TabSession
from ui.sessions.tab import opened_run
from ui.shared.board_handlers import move, set_pace

ME = Press("me")


def unpack(packed: dict[str, str]) -> dict[str, Any]:
    return {key: value for text in packed.values() for key, value in json.loads(text).items()}


def test_run_streams_every_picture_and_keeps_the_run(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    frames = list(start_run(live, desk, press()))
    assert all(len(values) == len(live.outputs) for values in frames)
    assert "Finished: " in notice_of(frames[-1])
    page = store.runs(RunQuery(owner="me"))
    assert page.total == 1 and page.rows[0].status == "completed"
    assert page.rows[0].prompt == form_values()[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": " "}, "The prompt is empty."),
        ({"verify": "mss"}, "verify is 'mss'"),
        ({"max_new_tokens": None}, "max_new_tokens is empty"),
    ],
)
def test_a_bad_request_is_refused(store: RunStore, changes: dict[str, Any], words: str) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    assert words in notice_of(run(live, desk, **changes))
    assert ctx.hub.worker.requests == []
    assert "Finished" in notice_of(run(live, desk)), "the next request runs"
    assert words not in notice_of(run(live, desk))


def test_a_bug_is_reported_in_a_line(store: RunStore, caplog: pytest.LogCaptureFixture) -> None:
    ctx = context(store)
    ctx.hub.worker.script = None
    ctx.hub.worker.submit = lambda *_: 1 / 0
    live, desk = live_of(ctx), TabSession()
    assert "internal error (ZeroDivisionError)" in notice_of(run(live, desk))
    assert "Traceback" in caplog.text


def test_stop_cancels_the_run_and_reports_it(store: RunStore) -> None:
    ctx = context(store)
    ctx.hub.worker.slowdown = 100.0  # a run takes 14 seconds
    live, desk = live_of(ctx), TabSession()
    frames = start_run(live, desk, press())
    until_writing(frames)
    assert "Stopped: " in notice_of(stop_run(live, desk))
    frames.close()
    assert store.runs(RunQuery()).rows[0].status == "cancelled"


def test_a_stop_that_overtakes_its_run_stops_it_and_no_later_one(store: RunStore) -> None:
    ctx = context(store, rounds=60)
    ctx.hub.worker.slowdown = 1.0
    live, desk = live_of(ctx), TabSession()
    overtaken = start_run(live, desk, press(stops=0))
    stop_run(live, desk, 1)
    assert "Stopped: " in notice_of(list(overtaken)[-1])
    assert "Stopped: " in notice_of(list(run_on_change(live, desk, press(True, 0, top_k=3)))[-1])
    ctx.hub.worker.slowdown = 0.01
    assert "Finished: " in notice_of(list(start_run(live, desk, press(stops=1)))[-1])


def test_a_race_answers_speed_and_text_by_one_plain_run(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    figures = 2
    assert run(live, desk)[figures]["speedup"] is None
    frames = list(run_question(live, desk, ME, race_plain))
    assert any("Plain decoding of the same request" in notice_of(values) for values in frames)
    assert frames[-1][figures]["speedup"] > 0 and frames[-1][figures]["text"] == "same text ✔"
    assert "plain decoding of the same request" in frames[-1][figures]["speed"]
    assert "Identical" in notice_of(frames[-1])
    assert len(live.board.context.hub.worker.requests) == 2
    speed = frames[-1][figures]["speed"]
    assert "one sample" in speed


def test_a_race_in_blocks_measures_both_in_turns_and_lists_none_of_them(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    list(start_run(live, desk, replace(press(), race=True)))
    requests = live.board.context.hub.worker.requests
    drafting = [bool(one.speculation.drafters) for one in requests]
    assert drafting == [True, False, False, True, False, True]
    assert desk.baseline is not None and len(desk.baseline.blocks) == BLOCKS
    ratios = [ours / plain for plain, ours in desk.baseline.blocks]
    value = figures_value(desk.frame(), desk.baseline)
    assert value["speedup"] == median(ratios)
    assert f"{min(ratios):.2f} to {max(ratios):.2f} in 3 repeats)" in value["speed"]
    stats = desk.frame().view.stats
    plain = len(value["plain_ms"])
    assert value["verdict"] == (
        f"The same {stats.num_new_tokens} tokens in {stats.num_rounds} LLM passes instead of "
        f"{plain}"
    )
    assert plain == stats.num_new_tokens, "plain decoding writes one token a pass"
    number = ratios.index(median(ratios))
    assert value["repeat"] == {"number": number + 1, "of": BLOCKS, "median": True}
    assert lane_ends(value) == block_ends(desk.baseline, number), "as the sentence says"
    early = figures_value(replace(desk.frame(), measuring=True), desk.baseline)
    assert early["repeat"] == {} and lane_ends(early) == block_ends(desk.baseline, 0)
    assert store.runs(RunQuery()).total == 1, "runs of a comparison are not listed"
    stored = baseline_of(store, store.run(desk.frame().run_id))
    replayed = figures_value(desk.frame(), stored)
    names = ("speedup", "speed", "slower")
    assert [replayed[name] for name in names] == [value[name] for name in names]
    past = TabSession()
    opened_run(sessions_of(live.board.context), past, ALL, desk.frame().run_id)
    assert past.answer == desk.answer and past.answer.kind == "identical", (
        "Sessions has the answer too"
    )


def lane_ends(value: dict[str, Any]) -> list[float]:
    return [list(value["plain_ms"].values())[-1], list(value["rounds"].values())[-1]["ms"]]


def block_ends(baseline: Baseline, number: int) -> list[float]:
    return [round(ends[-1], 2) for ends in baseline.ends[number]]


def test_lanes_are_of_the_first_block_where_none_has_the_median(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    frame = replace(desk.frame(), answer=Answer("identical", ""))
    own = round_ends_ms(frame.view)
    later = tuple(2 * ms for ms in own)
    ends = ((3.0, 6.0), own), ((4.0, 8.0), later), ((5.0, 10.0), ())
    for speeds, shown in (
        (((1.0, 2.0), (1.0, 3.0), (1.0, 4.0)), 1),
        (((1.0, 2.0), (1.0, 4.0), (1.0, 3.0)), 0),  # the third has the median, but no round times
        (((1.0, 2.0), (1.0, 3.0)), 0),  # neither has the median
    ):
        baseline = Baseline(1.0, "plain", "", blocks=speeds, ends=ends[: len(speeds)])
        value = race_value(frame, baseline)
        assert lane_ends(value) == block_ends(baseline, shown)
        repeat = {"number": shown + 1, "of": len(speeds), "median": shown == 1}
        assert value["repeat"] == repeat
    early = replace(frame, view=replace(frame.view, rounds=frame.view.rounds[:2]))
    median_of_three = Baseline(1.0, "plain", "", blocks=((1.0, 1.0),) * 3, ends=(ends[1],) * 3)
    assert len(race_value(early, median_of_three)["rounds"]) == 2, "a visitor stepped back"


def test_no_speed_up_is_shown_before_all_blocks_are_measured(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    list(run_question(live, desk, ME, race_plain))  # a baseline that holds for the next run too
    frames = list(start_run(live, desk, replace(press(), race=True)))
    shown = [values[2]["speedup"] for values in frames]
    assert shown[-1] and not any(shown[:-1])
    desk.player = None
    stopped = start_run(live, desk, replace(press(stops=0), race=True))
    stop_run(live, desk, 1)
    list(stopped)
    assert not desk.measuring, "after a run that was stopped nothing is measured"


def test_a_speed_up_that_passes_cannot_explain_is_called_noise(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    frame = replace(desk.frame(), answer=None)
    rate = frame.view.stats.tokens_per_second
    per_pass = frame.view.stats.num_new_tokens / frame.view.stats.num_rounds
    for factor, is_noise in ((0.9, False), (1.2, True)):
        baseline = Baseline(rate / (factor * per_pass), "plain", "")
        assert ("noise" in figures_value(frame, baseline)["speed"]) == is_noise
    blocks = tuple((rate, rate * per_pass * factor) for factor in (0.9, 0.9, 1.5))
    speed = figures_value(frame, Baseline(rate, "plain", "", blocks=blocks))["speed"]
    assert speed.endswith(f": above {per_pass:.2f}x, the tokens per pass, is noise")
    blocks = tuple((rate, rate * factor) for factor in (0.8, 0.9, 1.5 * per_pass))
    speed = figures_value(frame, Baseline(rate, "plain", "", blocks=blocks))["speed"]
    assert speed.endswith(f"in 3 repeats): no difference is shown; above {per_pass:.2f}x is noise")


def test_no_race_follows_a_run_without_drafts_or_one_that_was_stopped(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    list(start_run(live, desk, replace(press(drafters=[]), race=True)))
    assert len(ctx.hub.worker.requests) == 1
    ctx.hub.worker.slowdown = 100.0  # a run takes 14 seconds
    frames = start_run(live, desk, replace(press(), race=True))
    until_writing(frames)
    stop_run(live, desk)
    list(frames)
    assert len(ctx.hub.worker.requests) == 2


def test_prove_it_answers_identical_tie_and_bug(store: RunStore) -> None:
    for margin, change, words in (
        (3.0, None, "Identical: "),
        (0.00001, 5, "a rounding tie"),
        (2.0, 5, "a bug"),
    ):
        ctx = context(store)
        ctx.hub.worker.script = differing(margin, change)
        live, desk = live_of(ctx), TabSession()
        run(live, desk)
        assert words in notice_of(list(run_question(live, desk, ME, race_plain))[-1])
        requests = ctx.hub.worker.requests
        assert len(requests) == (2 if change is None else 3), "one plain run unless they differ"
        assert requests[0].speculation.drafters and not requests[1].speculation.drafters


def before_a_proof(store: RunStore) -> tuple[Live, TabSession, Any]:
    ctx = context(store, rounds=30)
    worker: Any = ctx.hub.worker
    worker.slowdown = 0.01
    live, desk = live_of(ctx), TabSession()
    run(live, desk)
    worker.slowdown = 10.0  # long enough to be stopped or left
    return live, desk, worker


def test_leaving_during_a_proof_stops_it(store: RunStore) -> None:
    live, desk, worker = before_a_proof(store)
    frames = run_question(live, desk, ME, race_plain)
    next(frames)
    frames.close()
    assert worker.runs[-1].is_cancelled and desk.doing == "" and desk.answer is None


def test_a_run_started_during_a_proof_gets_none_of_its_results(store: RunStore) -> None:
    live, desk, worker = before_a_proof(store)
    proof = run_question(live, desk, ME, race_plain)
    next(proof)
    assert "is going on" in notice_of(list(run_question(live, desk, ME, race_plain))[-1])
    worker.slowdown = 0.01
    run(live, desk, prompt="Another")
    list(proof)
    assert desk.answer is None and desk.baseline is None and desk.trouble == desk.doing == ""


def test_stop_ends_a_proof_and_says_so(store: RunStore) -> None:
    live, desk, worker = before_a_proof(store)
    proof = run_question(live, desk, ME, race_plain)
    next(proof)
    stop_run(live, desk)
    last = list(proof)[-1]
    assert worker.runs[-1].is_cancelled and desk.side is None and desk.answer is None
    assert "Plain decoding did not finish" in notice_of(last)
    assert "Plain decoding of the same request" not in notice_of(last)
    worker.slowdown = 0.001
    assert "did not finish" not in notice_of(list(run_question(live, desk, ME, race_plain))[-1])


def test_an_early_stop_ends_its_question_and_no_other(store: RunStore) -> None:
    question: Question = partial(race_plain, blocks=2)
    live, desk, worker = before_a_proof(store)
    overtaken = run_question(live, desk, replace(ME, stops=0), question)
    stop_run(live, desk, 1)
    assert "Plain decoding did not finish" in notice_of(list(overtaken)[-1])
    assert len(worker.runs) == 2 and worker.runs[-1].is_cancelled
    worker.slowdown = 0.001
    later = list(run_question(live, desk, replace(ME, stops=1), question))[-1]
    assert "did not finish" not in notice_of(later)
    assert not worker.runs[-1].is_cancelled


def test_settings_that_are_not_lossless_disable_run_with_the_reason() -> None:
    notice, button, _, rules, *_ = check_form(form_values(verify="mss"))
    assert "lossless choices are" in notice["lines"]["0"]["text"] and button.interactive is False
    assert any("mss (not lossless" in label for label, _ in rules.choices)
    notice, button, *_ = check_form(form_values(verify="mss", temperature=0.8, draft="sampled"))
    assert notice == {"lines": {}} and button.interactive is True


def test_a_changed_control_runs_anew_and_the_run_before_stays_to_compare(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    first = list(run_on_change(live, desk, press(True)))[-1]
    lengths, figures = 2 + list(live.board.pictures).index("lengths"), 2
    assert "Finished" in notice_of(first) and first[figures]["before"] == pack({"x": {}})["x"]
    first_view = desk.frame().view
    second = list(run_on_change(live, desk, press(True, top_k=3)))[-1]
    before = unpack(second[figures]["before"])
    assert before["mean_acceptance_length"] == round(first_view.stats.mean_acceptance_length, 4)
    line = unpack(second[lengths]["before"])
    assert line == {str(i): row.accepted for i, row in enumerate(first_view.rounds)}
    assert len(ctx.hub.worker.requests) == 2
    assert "before" not in str(run(live, desk)[figures]["before"]), "off: nothing is compared"


def test_nothing_runs_where_nothing_changed_or_the_settings_are_wrong(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    run(live, desk)
    skipped = [gr.skip() for _ in live.outputs]
    for change in ({}, {"top_p": 7}, {"verify": "mss"}):
        assert list(run_on_change(live, desk, press(True, **change))) == [skipped]
    off = list(run_on_change(live, desk, press(top_k=3)))
    assert off == [skipped], "Run on change is off"
    assert len(ctx.hub.worker.requests) == 1
    last = list(run_on_change(live, desk, press(True, prompt=" ")))[-1]
    assert "The prompt is empty." in notice_of(last)
    assert len(ctx.hub.worker.requests) == 1


def test_a_preset_runs_only_where_a_finished_run_of_the_same_prompt_is_shown(
    store: RunStore,
) -> None:
    ctx = context(store)
    worker: Any = ctx.hub.worker
    live, desk = live_of(ctx), TabSession()
    skipped = [gr.skip() for _ in live.outputs]
    vote: dict[str, Any] = {"combine": "vote"}
    assert list(run_on_change(live, desk, press(**vote))) == [skipped], "nothing was run yet"
    run(live, desk)
    for other in ({"prompt": "typed since"}, {"prompt": ""}, {"temperature": 0.8}, {}):
        assert list(run_on_change(live, desk, press(**{**vote, **other} if other else {}))) == [
            skipped
        ], other
    assert len(worker.requests) == 1
    assert "Finished" in notice_of(list(run_on_change(live, desk, press(**vote)))[-1])
    assert worker.requests[-1].speculation.combine == "vote"
    assert list(run_on_change(live, desk, press(**vote))) == [skipped], "it is the run shown"
    worker.script, worker.slowdown = script_of(400), 1.0
    until_writing(running := start_run(live, desk, press()))
    assert list(run_on_change(live, desk, press(**vote))) == [skipped], "another run is under way"
    stop_run(live, desk, 1)
    list(running)
    assert list(run_on_change(live, desk, press(**vote))) == [skipped], "it was stopped"


def test_a_run_cut_short_by_a_change_is_stopped_and_not_compared_with(store: RunStore) -> None:
    ctx = context(store)
    worker: Any = ctx.hub.worker
    live, desk = live_of(ctx), TabSession()
    run(live, desk)
    finished_id = desk.frame().run_id
    worker.script, worker.slowdown = script_of(400), 1.0
    cut = run_on_change(live, desk, press(True, top_k=3))
    until_writing(cut)
    worker.script, worker.slowdown = script_of(8), 0.2
    list(run_on_change(live, desk, press(True, top_k=4)))
    assert worker.runs[1].is_cancelled and not worker.runs[2].is_cancelled
    assert desk.before is not None and desk.before.run_id == finished_id
    assert list(cut) == [], "the run that was cut short is no longer shown"


def test_a_tab_that_is_reloaded_during_a_run_reports_where_the_run_is(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    for left in ("", None, "ready"):
        assert left_notice(live, desk, left) == gr.skip()
    assert "out of the queue" in notice_of([left_notice(live, desk, "queued")], 0)
    assert "it is in Sessions" in notice_of([left_notice(live, desk, "running")], 0)
    assert "it is in Sessions" not in notice_of(run(live, desk)), "the next run replaces the notice"
    assert left_notice(live, desk, "running", "another run") == gr.skip()
    desk.doing = "The form has its request."
    opened = left_notice(live, desk, "running", desk.frame().run_id)
    assert "it is in Sessions. The form has its request." in notice_of([opened], 0)


def test_a_refusal_disappears_when_the_form_is_corrected_or_at_the_next_press(
    store: RunStore,
) -> None:
    live, desk = live_of(context(store)), TabSession()
    assert "The prompt is empty." in notice_of(run(live, desk, prompt=" "))
    # The check of this prompt may arrive after Run has refused the prompt.
    assert clear_trouble(live, desk, form_values(prompt=" ")) == gr.skip() and desk.trouble
    corrected = form_values(prompt="w1")
    assert "prompt is" not in str(clear_trouble(live, desk, corrected)) and desk.trouble == ""
    assert clear_trouble(live, desk, corrected) == gr.skip(), "there is no refusal left"
    run(live, desk)
    run(live, desk, prompt=" ")
    assert "prompt is" not in notice_of(move(live.board, desk, "round-previous"), 0)
    run(live, desk, prompt=" ")
    assert "prompt is" not in notice_of(list(set_pace(live.board, desk, "slow", 2.0))[-1], 0)


def test_a_race_before_the_end_of_a_run_is_refused(store: RunStore) -> None:
    ctx = context(store, rounds=30)
    ctx.hub.worker.slowdown = 1.0
    live, desk = live_of(ctx), TabSession()
    frames = start_run(live, desk, press())
    until_writing(frames)
    assert "the run goes on" in notice_of(list(run_question(live, desk, ME, race_plain))[-1])
    assert "the run goes on" not in notice_of(list(frames)[-1])
    live, desk = live_of(context(store)), TabSession()
    assert "no run yet" in notice_of(list(run_question(live, desk, ME, race_plain))[-1])
