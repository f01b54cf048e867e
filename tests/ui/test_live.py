"""Handlers of the Live tab and of every board, as plain generators and functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.config import PRESETS, Request
from core.events import Event
from storage import RunQuery, RunStore
from tests.synthetic import synthetic_run
from tests.ui.boards import context, live_of, notice_of, run
from tests.ui.fakes import Script, plain_twin, scripted
from tests.ui.test_form import form_values
from ui.checks import measure_baseline, prove
from ui.pages.board import moved, paced, played, selected
from ui.pages.live import asked, checked, saved, started, stopped
from ui.session import Desk

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
    said, button, _, rules = checked(form_values(verify="mss"))
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
    assert "rounds_per_second" in notice_of(
        list(started(live, desk, "me", ("slow", 0), form_values()))[-1]
    )


def test_the_page_says_that_the_log_is_paused(store: RunStore) -> None:
    live, desk = live_of(context(store)), Desk()
    status = SimpleNamespace(paused=True, reason="disk is full", waiting=7, dropped=0)
    object.__setattr__(live.board.context, "store", SimpleNamespace(status=lambda: status))
    values = live.board.values(desk)
    assert "The log is paused: disk is full" in notice_of(values, 0)
