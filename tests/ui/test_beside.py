"""Two runs beside each other under one playback bar: scrubbed, stepped and played together."""

from __future__ import annotations

from typing import Any

import pytest

from storage import RunStore
from tests.synthetic import synthetic_run
from tests.ui.boards import ALL, context, sessions_of
from tests.ui.reports import unpacked
from ui.server.session import TabSession
from ui.sessions.two_runs import Beside, both, compare_runs
from ui.sessions.two_runs_bar import MOVES, moved_both, paced_both, played_both, scrubbed_both

LONG, SHORT = 9, 4
Pair = tuple[Beside, tuple[TabSession, TabSession]]


@pytest.fixture
def pair(store: RunStore) -> Pair:
    """A run of 9 rounds and one of 4, opened beside each other at their ends."""
    for seed, rounds in enumerate((LONG, SHORT)):
        for event in synthetic_run(rounds, seed=seed):
            store.record(event, "a")
    made = context(store)
    beside, desks = sessions_of(made).beside, (TabSession(), TabSession())
    values = compare_runs(beside, made, desks, ALL, ("synthetic-0", "synthetic-1"))
    assert len(values) == len(beside.outputs)
    return beside, desks


def rounds(pair: Pair) -> tuple[int, ...]:
    return tuple(len(desk.frame().view.rounds) for desk in pair[1])


def shown(pair: Pair, values: list[Any]) -> list[dict[str, Any]]:
    """By half, what its pictures show."""
    names = list(pair[0].halves[0].pictures)
    pictures = [unpacked(value) for value in values[1:]]
    return [
        dict(zip(names, pictures[: len(names)], strict=True)),
        dict(zip(names, pictures[len(names) :], strict=True)),
    ]


def press(pair: Pair, name: str) -> list[Any]:
    return both(*pair, lambda: moved_both(pair[1], name))


def test_each_half_has_text_tree_votes_and_times(pair: Pair) -> None:
    for half in pair[0].halves:
        wanted = {"figures", "strip", "tree", "proposals", "lengths", "timeline"}
        assert set(half.pictures) == wanted
    halves = shown(pair, both(*pair, lambda: scrubbed_both(pair[1], 3)))
    assert all(half["tree"]["nodes"] and half["tree"]["round"] == 2 for half in halves)
    assert [half["strip"]["run"] for half in halves] == ["synthetic-0", "synthetic-1"]


def test_one_slider_moves_both_and_the_shorter_stands_at_its_end(pair: Pair) -> None:
    for number, expected in ((0, (0, 0)), (3, (3, 3)), (6, (6, SHORT)), (99, (LONG, SHORT))):
        values = both(*pair, lambda number=number: scrubbed_both(pair[1], number))
        assert rounds(pair) == expected
        assert values[0]["value"] == max(expected) and values[0]["maximum"] == LONG
    scrubbed_both(pair[1], None)
    assert rounds(pair) == (LONG, SHORT), "an emptied box is no move"
    scrubbed_both(pair[1], -3)
    assert rounds(pair) == (0, 0)


def test_steps_go_stage_by_stage_through_the_same_round(pair: Pair) -> None:
    press(pair, "rewind")
    for stage in ("draft", "combine", "verify", "commit"):
        halves = shown(pair, press(pair, "step"))
        assert [half["tree"]["stage"] for half in halves] == [stage, stage]
    assert rounds(pair) == (1, 1)
    press(pair, "step-back")
    assert rounds(pair) == (0, 0)
    press(pair, "round-next")
    assert rounds(pair) == (1, 1)
    for _ in range(SHORT + 1):
        press(pair, "round-next")
    assert rounds(pair) == (SHORT + 2, SHORT)
    press(pair, "step")
    press(pair, "round-previous")
    assert rounds(pair) == (SHORT + 2, SHORT), "from within a round back to its beginning"
    for _ in range(3):
        press(pair, "round-previous")
    assert rounds(pair) == (SHORT - 1, SHORT - 1), "the shorter one leaves its end again"
    press(pair, "end")
    assert rounds(pair) == (LONG, SHORT)
    assert all(desk.frame().at_end for desk in pair[1])
    assert set(MOVES) | {"pause", "rewind", "end", "play"} == set(pair[0].bar.buttons)


def test_both_play_to_the_end_of_the_longer_one(pair: Pair) -> None:
    seen = [rounds(pair) for _ in played_both(pair[1], 40.0)]
    assert seen[0] == (0, 0), "from the start, since both stood at their ends"
    assert seen[-1] == (LONG, SHORT) and len(seen) > 2
    assert all(short == min(long, SHORT) for long, short in seen)


def test_pause_and_a_step_end_the_playing(pair: Pair) -> None:
    for stopping in ("pause", "step"):
        scrubbed_both(pair[1], 2)
        playing = played_both(pair[1], 0.25)
        next(playing)
        press(pair, stopping)
        at = rounds(pair)
        assert list(playing) == [] and rounds(pair) == at
    playing = played_both(pair[1], 0.25)
    next(playing)
    again = played_both(pair[1], 0.25)
    next(again)
    assert list(playing) == [], "whoever plays last plays alone"


def test_the_speed_is_changed_while_they_play(pair: Pair) -> None:
    scrubbed_both(pair[1], 0)
    playing = played_both(pair[1], 0.25)
    next(playing)
    paced_both(pair[1], 5000.0)
    assert len(list(playing)) <= 4 and rounds(pair) == (LONG, SHORT)


def test_without_two_runs_nothing_moves(pair: Pair) -> None:
    none = (pair[0], (TabSession(), TabSession()))
    assert all(value == values[0] for values in [press(none, "step")] for value in values)
    assert list(played_both(none[1], 1.0)) == [None]
