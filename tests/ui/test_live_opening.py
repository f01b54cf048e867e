"""Handlers of the recorded run that Live opens with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.progress import Progress
from storage import RunQuery, RunStore
from tests.ui.boards import (
    ALL,
    context,
    live_of,
    notice_of,
    press,
    run,
)
from tests.ui.test_form import form_values
from ui.form.form import request_of
from ui.live.handlers import (
    header_for_form,
    header_now,
    live_values,
    play_opening,
    record_opening,
    run_on_change,
    start_run,
)
from ui.live.layout import Live
from ui.run.opening import MOST_AT_ONCE, ROUNDS_A_SECOND
from ui.run.player import Pace
from ui.server.context import Context
from ui.server.session import TabSession
from ui.shared.board_handlers import move, play_on, select_node
from ui.shared.into_live import form_values_of
from ui.shared.links import fill_linked, linked_run

WAIT_S = 30.0


def wait_until(reached: Callable[[], bool], ctx: Context) -> None:
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end
        ctx.hub.worker.runs[-1].poll(0.01)


def wait_for_opening(ctx: Context) -> None:
    wait_until(lambda: ctx.opening.source() is not None, ctx)


def test_the_page_opens_with_a_run_that_plays_until_one_of_ones_own(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    assert list(play_opening(live, desk)) == [], "nothing is recorded yet"
    record_opening(ctx)
    wait_for_opening(ctx)
    frames = play_opening(live, desk)
    assert "This is a recorded run" in notice_of(next(frames))
    assert desk.shows_opening_run and desk.frame().view.stats.num_rounds == 0
    refused = list(start_run(live, desk, press(prompt="")))[-1]
    notice = notice_of(refused)
    assert "The prompt is empty." in notice and "This is a recorded run" in notice
    assert refused[2]["state"] == "recording"
    assert desk.player is not None
    desk.player.seek(10_000)
    notice = notice_of(live_values(live, desk, live.board.values(desk)))
    assert "A recording, not a run of yours. Finished: " in notice
    last = run(live, desk)
    assert "Finished" in notice_of(last) and "record" not in notice_of(last)
    assert last[2]["state"] == "completed"
    assert list(frames) == [] and not desk.shows_opening_run
    assert store.runs(RunQuery()).total == 1, "the opening run is in no log"
    assert list(play_opening(live, desk)) == [], "a tab that has shown a run keeps it"


def test_a_page_opened_before_the_recording_exists_polls_until_then(store: RunStore) -> None:
    ctx = context(store)
    live, worker = live_of(ctx), ctx.hub.worker
    early, busy = TabSession(), TabSession()

    def polls(desk: TabSession) -> bool:
        return bool(live.board.current_notice(desk).get("again"))

    assert not polls(early), "nothing is recorded"
    worker.slowdown = 1000.0
    record_opening(ctx)
    assert polls(early) and polls(busy) and list(play_opening(live, early)) == []
    list(start_run(live, busy, press(prompt=" ")))
    assert not polls(busy), "a press of Run was refused"
    frames = start_run(live, other := TabSession(), press())
    next(frames)
    assert not polls(other) and polls(early), "the recording is stopped, and made anew later"
    frames.close()  # type: ignore[attr-defined]
    wait_until(lambda: ctx.hub.idle, ctx)
    worker.slowdown = 0.2
    assert list(play_opening(live, early)) == [] and polls(early)
    wait_for_opening(ctx)
    assert list(play_opening(live, busy)) == [], "the refusal stays"
    assert "This is a recorded run" in notice_of(next(iter(play_opening(live, early))))
    assert not polls(early)


def live_with_opening(store: RunStore) -> Live:
    ctx = context(store)
    live = live_of(ctx)
    record_opening(ctx)
    wait_for_opening(ctx)
    return live


def test_the_menu_names_the_speed_of_the_opening_run_while_it_plays(store: RunStore) -> None:
    live, desk = live_with_opening(store), TabSession()
    scrubber = 1 + list(live.board.pictures).index("scrubber")

    def scrubber_values() -> tuple[str, float]:
        value = live.board.values(desk)[scrubber]
        return value["mode"], value["rate"]

    next(play_opening(live, desk))
    assert scrubber_values() == ("slow", ROUNDS_A_SECOND)
    move(live.board, desk, "pause")
    assert scrubber_values() == (desk.pace.mode, desk.pace.rounds_per_second) == ("full", 2.0)
    run(live, desk)
    assert scrubber_values() == ("full", 2.0), "the speed of the visitor's own runs"


def test_a_run_stops_the_recording_which_a_later_visit_starts_again(store: RunStore) -> None:
    """A recording at the same time would slow the visitor's run down."""
    ctx = context(store)
    live, worker = live_of(ctx), ctx.hub.worker
    worker.slowdown = 1000.0
    record_opening(ctx)
    frames = start_run(live, TabSession(), press())
    next(frames)
    recording, own = worker.runs
    assert recording.is_cancelled and not own.is_cancelled
    while not ctx.opening.was_stopped:
        recording.poll(0.01)
    assert list(play_opening(live, TabSession())) == [] and len(worker.runs) == 2, (
        "no recording begins during a run"
    )
    frames.close()  # type: ignore[attr-defined]
    while not ctx.hub.idle:
        own.poll(0.01)
    worker.slowdown = 0.2
    assert list(play_opening(live, TabSession())) == [] and len(worker.runs) == 3
    wait_for_opening(ctx)
    assert "This is a recorded run" in notice_of(next(iter(play_opening(live, TabSession()))))
    assert "Finished" in notice_of(run(live, TabSession())) and not ctx.opening.was_stopped


def test_a_preset_chosen_while_the_opening_run_is_shown_runs(store: RunStore) -> None:
    live, desk = live_with_opening(store), TabSession()
    ctx = live.board.context
    next(play_opening(live, desk))
    same = form_values_of(ctx.hub.worker.requests[-1], ctx)
    assert not header_for_form(live, desk, same)["changed"], "the run shown has the form's settings"
    vote = press(combine="vote")
    assert "Finished" in notice_of(list(run_on_change(live, desk, vote))[-1])
    assert not desk.shows_opening_run and ctx.hub.worker.requests[-1].speculation.combine == "vote"


def test_the_header_reports_that_the_form_differs_from_the_run_shown(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    assert not header_for_form(live, desk, form_values(temperature=0.8))["changed"], (
        "nothing is shown yet"
    )
    run(live, desk)
    for other in ({"temperature": 0.8}, {"prompt": "Another"}, {"combine": "vote"}):
        assert header_for_form(live, desk, form_values(**other))["changed"], other
        assert not header_for_form(live, desk, form_values())["changed"], "restored"
    for wrong in ({"top_p": 7}, {"prompt": "   "}):
        assert not header_for_form(live, desk, form_values(**wrong))["changed"], (
            "the page says why it cannot run"
        )
    assert header_for_form(live, desk, form_values(temperature=0.8))["changed"]
    assert not run(live, desk, temperature=0.8)[0]["changed"], "it was run"


def test_the_header_names_the_study_being_measured_except_during_an_own_run(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(store, rounds=60)
    live, desk = live_of(ctx), TabSession()
    assert header_now(live, desk)["at_work"] == ""
    idle_ms = header_now(live, desk)["ask_ms"]
    for kind, words in (("tune", "Tune"), ("prompts", "Prompts")):
        progress = Progress(kind=kind, state="running", done=3, total=40)
        monkeypatch.setattr(ctx.conductor, "progress", lambda progress=progress: progress)
        value = header_now(live, desk)
        assert value["at_work"] == words and value["ask_ms"] < idle_ms
        assert value["measured"] == "3/40"
    frames = [header for header, *_ in start_run(live, desk, press())]
    at_work = {one["at_work"] for one in frames if one["state"] == "running"}
    assert at_work == {""}, "during its own run the tab names no study"
    monkeypatch.undo()
    assert header_now(live, desk)["at_work"] == ""


def test_chips_of_other_models_with_the_same_names_have_no_counts(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    run(live, desk)

    def scores() -> list[dict[str, int]]:
        return [chip["score"] for chip in header_now(live, desk)["models"].values()]

    assert any(score.get("proposed") for score in scores())
    larger = tuple(replace(model, parameters=2 * model.parameters) for model in ctx.models)
    monkeypatch.setattr(type(ctx), "models", larger)
    assert not any(scores())


def test_beyond_a_number_of_pages_the_opening_run_is_shown_at_its_end(store: RunStore) -> None:
    """Each page that plays a run occupies a thread of the server."""
    ctx = context(store)
    record_opening(ctx)
    wait_for_opening(ctx)
    live, desks = live_of(ctx), [TabSession() for _ in range(MOST_AT_ONCE + 1)]
    *playing, one_more = [play_opening(live, desk) for desk in desks]
    for frames in playing:
        next(frames)
    assert len(list(one_more)) < 10
    assert desks[-1].frame().view.state == "completed"
    assert desks[0].frame().view.state != "completed"
    for frames in playing:
        frames.close()  # type: ignore[attr-defined]
    assert ctx.opening.players.acquire(blocking=False), "a place is free again"


OPENING = {"run": "opening", "round": "3", "stage": "verify", "node": "0"}


def test_a_link_opens_the_opening_run_paused_at_its_place(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    record_opening(ctx)
    values, wrong = linked_run(live, desk, ALL, OPENING)
    assert values[-1] == "" and not wrong and not desk.trouble
    assert "still being made" in notice_of(values, 0) and values[0]["again"]
    wait_for_opening(ctx)
    values, wrong = linked_run(live, desk, ALL, OPENING)
    assert values[-1] == "opening" and not wrong and not desk.is_playing
    frame = desk.frame()
    assert frame.detail is not None and frame.pinned
    assert (frame.selected_round, frame.detail.stage, frame.node) == (2, "verify", 0)
    assert "A recording, not a run of yours." in notice_of(values, 0)
    filled, refused = fill_linked(live, desk, ALL, "opening", False)
    assert not refused and not desk.form_differs
    assert request_of(filled[3:]) == desk.asked
    next(play_on(live.board, desk, False))
    assert "This is a recorded run" in notice_of(live_values(live, desk, live.board.values(desk)))
    assert store.runs(RunQuery()).total == 0


def test_a_link_to_the_opening_run_is_wrong_where_there_is_none(store: RunStore) -> None:
    desk = TabSession()
    values, _ = linked_run(live_of(context(store)), desk, ALL, OPENING)
    assert values[-1] == "" and "this server has no opening run" in desk.trouble


def test_the_opening_run_counts_as_untouched_until_it_is_steered(store: RunStore) -> None:
    live, desk = live_with_opening(store), TabSession()
    scrubber = 1 + list(live.board.pictures).index("scrubber")

    def scrubber_values() -> tuple[str, bool]:
        value = live.board.values(desk)[scrubber]
        return value["run"], value["untouched"]

    next(play_opening(live, desk))
    assert scrubber_values() == ("opening", True)
    assert desk.player is not None
    desk.player.set_pace(Pace("full"))
    desk.player.advance(0.0)
    assert scrubber_values() == ("opening", True), "it has played to its end"
    select_node(live.board, desk, {"round": 2})
    assert scrubber_values() == ("opening", False)
    next(play_on(live.board, desk, True))
    assert scrubber_values() == ("opening", True)
    move(live.board, desk, "pause")
    assert scrubber_values() == ("opening", False)
    run(live, desk)
    assert scrubber_values()[0] != "opening" and not scrubber_values()[1]
