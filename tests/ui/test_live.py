"""Handlers of the Live tab and of every board, as plain generators and functions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from core.config import PRESETS, Request
from core.events import Event
from storage import RunQuery, RunStore
from tests.synthetic import synthetic_run
from tests.ui.boards import context, live_of, notice_of, run
from tests.ui.fakes import Script, plain_twin, scripted
from tests.ui.test_form import form_values
from ui.checks import measure_baseline, prove
from ui.components import pack
from ui.pages.board import moved, paced, played, selected, told_again
from ui.pages.live import asked, changed, checked, mended, started, stopped
from ui.pages.presets import saved
from ui.session import Desk


def unpacked(packed: dict[str, str]) -> dict[str, Any]:
    return {key: value for text in packed.values() for key, value in json.loads(text).items()}


# -- live --


def test_run_streams_every_picture_and_keeps_the_run(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    frames = list(started(live, desk, "me", ("full", 2.0), form_values()))
    assert all(len(values) == len(live.outputs) for values in frames)
    assert "Finished: " in notice_of(frames[-1])
    page = store.runs(RunQuery(owner="me"))
    assert page.total == 1 and page.rows[0].status == "completed"
    assert page.rows[0].prompt == form_values()[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": " "}, "prompt is ' '"),
        ({"verify": "mss"}, "verify is 'mss'"),
        ({"max_new_tokens": None}, "max_new_tokens is None"),
    ],
)
def test_a_bad_request_is_told_and_nothing_runs(
    store: RunStore, changes: dict[str, Any], words: str
) -> None:
    made = context(store)
    live, desk = live_of(made), Desk()
    assert words in notice_of(run(live, desk, **changes))
    assert made.hub.worker.requests == []  # type: ignore[attr-defined]
    assert "Finished" in notice_of(run(live, desk)), "the next one runs"
    assert words not in notice_of(run(live, desk))


def test_a_bug_is_told_in_a_line(store: RunStore, caplog: pytest.LogCaptureFixture) -> None:
    made = context(store)
    made.hub.worker.script = None  # type: ignore[attr-defined]
    made.hub.worker.submit = lambda *_: 1 / 0  # type: ignore[attr-defined]
    live, desk = live_of(made), Desk()
    assert "internal error (ZeroDivisionError)" in notice_of(run(live, desk))
    assert "Traceback" in caplog.text


def test_stop_shows_what_there_was(store: RunStore) -> None:
    made = context(store, rounds=400)
    live, desk = live_of(made), Desk()
    frames = started(live, desk, "me", ("full", 2.0), form_values())
    for values in frames:
        if "Writing" in notice_of(values):
            break
    values = stopped(live, desk)
    assert "Stopped: " in notice_of(values)
    frames.close()
    assert store.runs(RunQuery()).rows[0].status == "cancelled"


def test_a_stop_that_overtakes_its_run_stops_it_and_no_later_one(store: RunStore) -> None:
    made = context(store, rounds=60)
    made.hub.worker.speed = 1.0  # type: ignore[attr-defined]
    live, desk = live_of(made), Desk()
    values = form_values()
    late = started(live, desk, "me", ("full", 2.0), values, stops=0)
    stopped(live, desk, 1)
    assert "Stopped: " in notice_of(list(late)[-1])
    again = changed(live, desk, "me", ("full", 2.0), form_values(top_k=3), 0)
    assert "Stopped: " in notice_of(list(again)[-1])
    made.hub.worker.speed = 0.01  # type: ignore[attr-defined]
    next_one = started(live, desk, "me", ("full", 2.0), values, stops=1)
    assert "Finished: " in notice_of(list(next_one)[-1])


def test_measure_gives_a_measured_speed_up(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    figures = 3
    assert run(live, desk)[figures]["speedup"] is None
    frames = list(asked(live, desk, "me", measure_baseline))
    assert any("Plain decoding of the same request" in notice_of(values) for values in frames)
    assert frames[-1][figures]["speedup"] > 0
    assert "measured now" in frames[-1][figures]["baseline_note"]
    again = run(live, desk)
    assert again[figures]["speedup"] is not None, "same request, same baseline"
    other = run(live, desk, prompt="Another")
    assert other[figures]["speedup"] is None, "another request, none"


def differing(margin: float, change: int | None) -> Script:
    """Plain decoding comes out differently at token `change`, by `margin`."""
    straight = scripted(rounds=8)

    def script(request: Request, run_id: str) -> list[Event]:
        if request.speculation.drafters:
            return straight(request, run_id)
        return plain_twin(synthetic_run(8, run_id=run_id), margin, change)

    return script


def test_prove_it_answers_identical_tie_and_bug(store: RunStore) -> None:
    for margin, change, words in (
        (3.0, None, "Identical: "),
        (0.00001, 5, "a rounding tie"),
        (2.0, 5, "a bug"),
    ):
        made = context(store)
        made.hub.worker.script = differing(margin, change)  # type: ignore[attr-defined]
        live, desk = live_of(made), Desk()
        run(live, desk)
        last = list(asked(live, desk, "me", prove))[-1]
        assert words in notice_of(last)
        asked_for = made.hub.worker.requests  # type: ignore[attr-defined]
        assert len(asked_for) == (2 if change is None else 3), "one plain run unless they differ"
        assert asked_for[0].speculation.drafters and not asked_for[1].speculation.drafters


def test_measure_and_prove_share_one_plain_run(store: RunStore) -> None:
    made = context(store)
    live, desk = live_of(made), Desk()
    run(live, desk)
    list(asked(live, desk, "me", measure_baseline))
    assert "Identical" in notice_of(list(asked(live, desk, "me", prove))[-1])
    assert len(made.hub.worker.requests) == 2  # type: ignore[attr-defined]


def test_questions_before_there_is_an_answer_are_refused_in_words(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    for question in (measure_baseline, prove):
        assert "no run yet" in notice_of(list(asked(live, desk, "me", question))[-1])


def test_leaving_during_a_proof_stops_it(store: RunStore) -> None:
    made = context(store, rounds=300)
    made.hub.worker.speed = 0.01  # type: ignore[attr-defined]
    live, desk = live_of(made), Desk()
    run(live, desk)
    made.hub.worker.speed = 1.0  # type: ignore[attr-defined]
    frames = asked(live, desk, "me", prove)
    next(frames)
    frames.close()
    side = made.hub.worker.runs[-1]  # type: ignore[attr-defined]
    assert side.cancelled and desk.doing == "" and desk.answer is None


def test_another_run_during_a_proof_is_left_alone(store: RunStore) -> None:
    made = context(store, rounds=100)
    made.hub.worker.speed = 0.01  # type: ignore[attr-defined]
    live, desk = live_of(made), Desk()
    run(live, desk)
    made.hub.worker.speed = 1.0  # type: ignore[attr-defined]
    proof = asked(live, desk, "me", prove)
    next(proof)
    assert "is going on" in notice_of(list(asked(live, desk, "me", measure_baseline))[-1])
    made.hub.worker.speed = 0.01  # type: ignore[attr-defined]
    run(live, desk, prompt="Another")
    list(proof)
    assert desk.answer is None and desk.baseline is None and desk.trouble == desk.doing == ""


def test_settings_that_would_not_be_lossless_grey_run_with_the_reason() -> None:
    said, button, _, rules, *_ = checked(form_values(verify="mss"))
    assert "lossless choices are" in said["lines"]["0"]["text"] and button.interactive is False
    assert any("mss (not lossless" in label for label, _ in rules.choices)
    said, button, *_ = checked(form_values(verify="mss", temperature=0.8, draft="sampled"))
    assert said == {"lines": {}} and button.interactive is True


def test_presets_of_ones_own_are_checked_and_kept() -> None:
    own, menu, said = saved(" mine ", None, form_values())
    assert list(own) == ["mine"] and menu.value == "mine" and "Saved" in said["lines"]["0"]["text"]
    assert [value for _, value in menu.choices][: len(PRESETS)] == list(PRESETS)
    for name in ("", "  ", "specinfer"):
        kept, _, said = saved(name, own, form_values())
        assert kept == own and "preset name is" in said["lines"]["0"]["text"]
    kept, _, said = saved("bad", own, form_values(expansion="x"))
    assert kept == own and "expansion" in said["lines"]["0"]["text"]


# -- run on change --


def test_a_changed_control_runs_anew_and_the_run_before_stays_to_compare(store: RunStore) -> None:
    made = context(store)
    live, desk = live_of(made), Desk()
    first = list(changed(live, desk, "me", ("full", 2.0), form_values()))[-1]
    lengths, figures = 1 + len(live.board.pictures) - 1, 3
    assert "Finished" in notice_of(first) and first[figures]["before"] == pack({"x": {}})["x"]
    ran = desk.frame().view
    again = list(changed(live, desk, "me", ("full", 2.0), form_values(top_k=3)))[-1]
    before = unpacked(again[figures]["before"])
    assert before["mean_acceptance_length"] == round(ran.stats.mean_acceptance_length, 4)
    line = unpacked(again[lengths]["before"])
    assert line == {str(i): row.accepted for i, row in enumerate(ran.rounds)}
    assert len(made.hub.worker.requests) == 2  # type: ignore[attr-defined]
    assert "before" not in str(run(live, desk)[figures]["before"]), "off: nothing is compared"


def test_nothing_runs_where_nothing_changed_or_the_settings_are_wrong(store: RunStore) -> None:
    made = context(store)
    live, desk = live_of(made), Desk()
    run(live, desk)
    skipped = [gr.skip() for _ in live.outputs]
    for values in (form_values(), form_values(top_p=7), form_values(verify="mss")):
        assert list(changed(live, desk, "me", ("full", 2.0), values)) == [skipped]
    assert len(made.hub.worker.requests) == 1  # type: ignore[attr-defined]
    last = list(changed(live, desk, "me", ("full", 2.0), form_values(prompt=" ")))[-1]
    assert "prompt is ' '" in notice_of(last)
    assert len(made.hub.worker.requests) == 1  # type: ignore[attr-defined]


def test_a_run_cut_short_by_a_change_is_stopped_and_is_no_measure(store: RunStore) -> None:
    made = context(store)
    worker: Any = made.hub.worker
    live, desk = live_of(made), Desk()
    run(live, desk)
    whole = desk.frame().run_id
    worker.script, worker.speed = scripted(400), 1.0
    cut = changed(live, desk, "me", ("full", 2.0), form_values(top_k=3))
    for values in cut:
        if "Writing" in notice_of(values):
            break
    worker.script, worker.speed = scripted(8), 0.2
    list(changed(live, desk, "me", ("full", 2.0), form_values(top_k=4)))
    assert worker.runs[1].cancelled and not worker.runs[2].cancelled
    assert desk.before is not None and desk.before.run_id == whole
    assert list(cut) == [], "the run that was cut short is no longer shown"


# -- what went wrong is said as long as it is so --


def test_a_refusal_goes_when_the_form_is_mended(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    assert "prompt is ' '" in notice_of(run(live, desk, prompt=" "))
    assert "prompt is" not in str(mended(live, desk)) and desk.trouble == ""
    assert mended(live, desk) == gr.skip(), "nothing to take back"


def test_a_refusal_goes_with_the_next_press_of_any_button(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    run(live, desk)
    run(live, desk, prompt=" ")
    assert "prompt is" not in notice_of(moved(live.board, desk, "round-previous"), 0)
    run(live, desk, prompt=" ")
    assert "prompt is" not in notice_of(list(paced(live.board, desk, "slow", 2.0))[-1], 0)


def test_the_run_goes_on_is_no_trouble_once_it_has_ended(store: RunStore) -> None:
    made = context(store, rounds=30)
    made.hub.worker.speed = 1.0  # type: ignore[attr-defined]
    live, desk = live_of(made), Desk()
    frames = started(live, desk, "me", ("full", 2.0), form_values())
    for values in frames:
        if "Writing" in notice_of(values):
            break
    for question in (prove, measure_baseline):
        assert "the run goes on" in notice_of(list(asked(live, desk, "me", question))[-1])
    assert "the run goes on" not in notice_of(list(frames)[-1])


def test_stop_ends_a_proof_and_says_so(store: RunStore) -> None:
    made = context(store, rounds=300)
    worker: Any = made.hub.worker
    worker.speed = 0.01
    live, desk = live_of(made), Desk()
    run(live, desk)
    worker.speed = 1.0
    proof = asked(live, desk, "me", prove)
    next(proof)
    stopped(live, desk)
    last = list(proof)[-1]
    assert worker.runs[-1].cancelled and desk.side is None and desk.answer is None
    assert "Plain decoding did not finish" in notice_of(last)
    assert "Plain decoding of the same request" not in notice_of(last)
    worker.speed = 0.001
    assert "did not finish" not in notice_of(list(asked(live, desk, "me", prove))[-1])


# -- the board --


def test_every_button_answers_before_there_is_a_run(store: RunStore) -> None:
    board = live_of(context(store)).board
    for name in ("step-back", "step", "round-previous", "round-next", "follow"):
        assert len(moved(board, Desk(), name)) == len(board.outputs)
    assert len(list(played(board, Desk(), "full", 2.0, True))) == 1
    assert len(list(paced(board, Desk(), "slow", 2.0))) == 1


@pytest.mark.parametrize(
    "data", [{}, {"round": "3"}, {"round": 10**9}, {"round": 1, "node": "x"}, {"round": None}]
)
def test_selections_from_a_browser_are_not_trusted(store: RunStore, data: Any) -> None:
    made = context(store)
    live, desk = live_of(made), Desk()
    run(live, desk)
    values = selected(live.board, desk, data)
    assert "error" not in notice_of(values, 0)
    good = selected(live.board, desk, {"round": 2, "node": 1})
    names = list(live.board.pictures)
    tree = good[1 + names.index("tree")]
    assert tree["round"] == 2 and tree["node"] == 1
    for name in ("strip", "lengths", "timeline"):
        assert good[1 + names.index(name)]["sel"] == 2


def test_from_the_start_plays_a_finished_run_again_slowly(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    run(live, desk)
    frames = list(played(live.board, desk, "full", 20.0, True))
    assert len(frames) > 4 and "Finished" in notice_of(frames[-1], 0)
    assert "Engine finished, you are at round" in notice_of(frames[1], 0)


def test_a_bad_pace_is_told(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    words = "rounds_per_second is 0: a number from 0.05 to 100"
    assert words in notice_of(list(started(live, desk, "me", ("slow", 0), form_values()))[-1])
    assert words in notice_of(list(paced(live.board, desk, "slow", 0))[-1], 0)
    assert words in notice_of(list(played(live.board, desk, "slow", 0, True))[-1], 0)


def test_the_page_says_that_the_log_is_paused(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    status = SimpleNamespace(paused=True, reason="disk is full", waiting=7, dropped=0)
    object.__setattr__(live.board.context, "store", SimpleNamespace(status=lambda: status))
    values = live.board.values(desk)
    assert "The log is paused: disk is full" in notice_of(values, 0) and values[0]["again"]
    status.paused = False
    assert "paused" not in str(told_again(live.board, desk)), "it is told only while it is so"
