"""Presses in quick succession (ui/shared/last_click.py)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import gradio as gr

from ui.shared.last_click import Presses


def made() -> Presses:
    return Presses(threading.RLock())


def answer(said: list[str], word: str) -> Callable[[], str]:
    def work() -> str:
        said.append(word)
        return word

    return work


def test_what_arrives_late_changes_nothing() -> None:
    presses, said = made(), list[str]()
    assert presses.last("run", {"press": 20.5}, answer(said, "second")) == "second"
    assert presses.last("run", {"press": 10.5}, answer(said, "first")) == gr.skip()
    assert presses.last("run", {"press": 30.5}, answer(said, "third")) == "third"
    assert said == ["second", "third"]


def test_kinds_do_not_overtake_each_other_and_a_press_without_a_time_is_answered() -> None:
    presses, said = made(), list[str]()
    presses.last("run", {"press": 20}, answer(said, "run"))
    for told in ({"press": 10}, {}, {"press": "soon"}, {"press": 10}):
        assert presses.last("point", told, answer(said, "point")) == "point"
    assert said == ["run", *["point"] * 4]


def test_of_those_that_wait_for_their_turn_only_the_last_is_worked_on() -> None:
    presses, said = made(), list[str]()

    def press(at: float) -> threading.Thread:
        def work() -> None:
            presses.last("run", {"press": at}, answer(said, str(at)))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    with presses.drawing:
        threads = [press(at) for at in (1.0, 3.0, 2.0)]
        while presses._newest.get("run") != 3.0:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert said == ["3.0"]
