"""Handlers of every board: buttons, selections, speeds, the notice."""

from __future__ import annotations

import threading
from dataclasses import replace
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from storage import RunStore
from tests.ui.boards import context, live_of, notice_of, press, run
from ui.live.handlers import start_run
from ui.server.session import TabSession
from ui.shared.steering import move, play_on, select_node, set_pace, told_again


def test_every_button_answers_before_there_is_a_run(store: RunStore) -> None:
    board = live_of(context(store)).board
    for name in ("step-back", "step", "round-previous", "round-next", "follow"):
        assert len(move(board, TabSession(), name)) == len(board.outputs)
    assert len(list(play_on(board, TabSession(), "full", 2.0, True))) == 1
    assert len(list(set_pace(board, TabSession(), "slow", 2.0))) == 1


def test_quick_steps_are_answered_in_their_order(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    assert desk.player is not None
    desk.player.seek(1)
    slow, made = [0.3, 0.0, 0.0], desk.pictures.values
    monkeypatch.setattr(
        desk, "pictures", SimpleNamespace(values=lambda *a: (sleep(slow.pop(0)), made(*a))[1])
    )
    answers: list[str] = []
    pressed = threading.Event()

    def press_step() -> None:
        pressed.set()
        answers.append(notice_of(move(live.board, desk, "step"), 0).splitlines()[0])

    threads = [threading.Thread(target=press_step) for _ in range(3)]
    for thread in threads:
        pressed.clear()
        thread.start()
        pressed.wait()
        sleep(0.02)
    for thread in threads:
        thread.join()
    stages = [f"you are at round 2 of 8, {s}." for s in ("drafted", "combined", "verified")]
    assert [stage in answer for stage, answer in zip(stages, answers, strict=True)] == [True] * 3


def test_what_is_shown_is_numbered_and_what_stays_keeps_its_number(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    assert desk.player is not None
    desk.player.seek(3)
    before, same = live.board.values(desk), live.board.values(desk)
    assert before == same
    (after, names) = (move(live.board, desk, "step"), ["notice", *live.board.pictures])
    for name, old, new in zip(names, before, after, strict=True):
        unchanged = {**old, "n": 0} == {**new, "n": 0}
        assert (new["n"] == old["n"]) if unchanged else (new["n"] > old["n"]), name
    legend = names.index("legend")
    assert after[0]["n"] > before[0]["n"] and after[legend] == before[legend]


@pytest.mark.parametrize(
    "data", [{}, {"round": "3"}, {"round": 10**9}, {"round": 1, "node": "x"}, {"round": None}]
)
def test_selections_from_a_browser_are_not_trusted(store: RunStore, data: Any) -> None:
    made = context(store)
    live, desk = live_of(made), TabSession()
    run(live, desk)
    values = select_node(live.board, desk, data)
    assert "error" not in notice_of(values, 0)
    good = select_node(live.board, desk, {"round": 2, "node": 1})
    names = list(live.board.pictures)
    tree = good[1 + names.index("tree")]
    assert tree["round"] == 2 and tree["node"] == 1
    for name in ("strip", "lengths", "timeline"):
        assert good[1 + names.index(name)]["sel"] == 2


def test_from_the_start_plays_a_finished_run_again_slowly(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    frames = list(play_on(live.board, desk, "full", 20.0, True))
    assert len(frames) > 4 and "Finished" in notice_of(frames[-1], 0)
    assert "Engine finished, you are at round" in notice_of(frames[1], 0)


def test_from_the_start_waits_there_for_who_steps(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    frames = list(play_on(live.board, desk, "step", 20.0, True))
    assert "Engine finished, you are at round 0 of" in notice_of(frames[-1], 0)
    assert desk.player and desk.player.pace.mode == "step"
    move(live.board, desk, "step")
    assert list(play_on(live.board, desk, "step", 20.0, False))
    assert "Finished" in notice_of(live.board.values(desk), 0), "Play on plays"


def test_a_bad_pace_is_told(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    words = "rounds_per_second is 0: a number from 0.05 to 100"
    assert words in notice_of(list(start_run(live, desk, replace(press(), pace=("slow", 0))))[-1])
    assert words in notice_of(list(set_pace(live.board, desk, "slow", 0))[-1], 0)
    assert words in notice_of(list(play_on(live.board, desk, "slow", 0, True))[-1], 0)


def test_the_page_says_that_the_log_is_paused(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    status = SimpleNamespace(paused=True, reason="disk is full", waiting=7, dropped=0)
    object.__setattr__(live.board.context, "store", SimpleNamespace(status=lambda: status))
    values = live.board.values(desk)
    assert "The log is paused: disk is full" in notice_of(values, 0) and values[0]["again"]
    status.paused = False
    assert "paused" not in str(told_again(live.board, desk)), "it is told only while it is so"
