"""Runs in the session of a browser tab."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from bench.page.gaps import measure
from core.errors import ConfigError
from core.events import Event, RunCancelled, RunCompleted
from tests.ui.api.sites import wait
from tests.ui.fakes import FakeStore, FakeWorker, request, script_of
from ui.run.frame import Frame
from ui.run.player import Pace, Player
from ui.run.source import last_event
from ui.server.session import Hub, TabSession, TabSessions, guard, guard_once, play, run_to_end

WAIT_S = 5.0


def hub_of(rounds: int = 12, max_live: int = 4) -> Hub:
    return Hub(FakeWorker(script_of(rounds), max_live=max_live), FakeStore())


def desk_with(hub: Hub, pace: Pace | None = None) -> TabSession:
    desk = TabSession()
    desk.look_at(Player(hub.start(request()), pace))
    return desk


def events_of(hub: Hub, run_id: str) -> list[Event]:
    return hub.store.recorded[run_id]


def test_a_run_is_played_to_its_end_and_recorded() -> None:
    server_hub = hub_of()
    frames = list(play(desk_with(server_hub)))
    assert frames[-1].is_complete and frames[-1].view.state == "completed"
    stories = [line.story for line in frames[-1].view.rounds]
    assert stories[frames[-1].selected_round] == max(stories), "the highest story score is shown"
    assert events_of(server_hub, frames[-1].run_id)[-1].seq == frames[-1].view.seq
    lengths = [len(frame.view.tokens) for frame in frames]
    assert lengths == sorted(lengths)


def test_frames_come_10_to_20_times_a_second_whatever_the_engine_does() -> None:
    for rounds, slowdown in ((60, 1.0), (300, 0.2)):
        desk = desk_with(Hub(FakeWorker(script_of(rounds), slowdown), FakeStore()))
        times = [time.monotonic() for _ in play(desk)]
        gaps = sorted(after - before for before, after in pairwise(times))
        # The median, since a busy machine may delay single frames.
        assert 0.045 <= gaps[len(gaps) // 2] <= 0.11, gaps


class TimedStore(FakeStore):
    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def record(self, event: Event, owner: str = "") -> None:
        super().record(event, owner)
        self.times.append(time.monotonic())


def test_most_tokens_are_shown_within_100_ms_of_their_round() -> None:
    store = TimedStore()
    desk = desk_with(Hub(FakeWorker(script_of(60)), store))
    delays: list[float] = []
    for frame in play(desk):
        now = time.monotonic()
        delays += [now - store.times[seq] for seq in range(len(delays), frame.view.seq + 1)]
    delays.sort()
    assert len(delays) > 200
    assert delays[len(delays) // 2] < 0.06 and delays[int(0.8 * len(delays))] < 0.1


def test_a_closed_tab_stops_the_engine_and_the_run_is_still_recorded() -> None:
    server_hub = hub_of(rounds=400)
    desk = desk_with(server_hub)
    frames = play(desk)
    next(frames)
    wait(lambda: desk.player and desk.player.source.count > 10)
    frames.close()
    desk.player.source.wait_done(WAIT_S)
    events = events_of(server_hub, desk.player.source.run_id)
    assert isinstance(events[-1], RunCancelled)
    assert [event.seq for event in events] == list(range(len(events)))


def test_slow_motion_records_at_the_engines_pace_not_the_visitors() -> None:
    server_hub = hub_of(rounds=20)
    desk = desk_with(server_hub, Pace("slow", 0.25))
    frames = play(desk)
    next(frames)
    desk.player.source.wait_done(WAIT_S)
    frame = next(frames)
    assert isinstance(events_of(server_hub, frame.run_id)[-1], RunCompleted)
    assert frame.ended and not frame.at_end and len(frame.view.rounds) < 3
    frames.close()


def test_in_step_mode_the_generator_ends_when_the_engine_is_done() -> None:
    desk = desk_with(hub_of(rounds=5), Pace("step"))
    frames = list(play(desk))
    assert desk.player is not None and desk.player.is_paused
    assert frames[-1].ended and len(frames[-1].view.rounds) == 0
    desk.player.step(1)
    assert desk.player.frame().detail is not None


def test_a_second_generator_ends_the_one_that_played_before() -> None:
    desk = desk_with(hub_of(rounds=300))
    first, second = play(desk), play(desk)
    next(first)
    next(second)
    assert list(first) == []
    assert desk.player is not None and not desk.player.source.is_done
    next(second)
    second.close()


def test_another_run_ends_the_generator_of_the_first_and_stops_its_engine() -> None:
    server_hub = hub_of(rounds=300)
    desk = desk_with(server_hub)
    first = play(desk)
    frame: Frame = next(first)
    old = desk.player
    desk.look_at(Player(server_hub.start(request())))
    assert list(first) == []
    old.source.wait_done(WAIT_S)
    assert isinstance(events_of(server_hub, frame.run_id)[-1], RunCancelled)
    assert desk.player is not None and not desk.player.source.is_done
    desk.cancel()


def test_the_next_run_stops_every_background_run() -> None:
    hub = hub_of(rounds=300)
    background = [hub.start(request(), log=False, background=True) for _ in range(2)]
    ordinary = hub.start(request())
    for source in background:
        source.wait_done(WAIT_S)
        assert isinstance(last_event(source), RunCancelled)
    hub.start(request()).cancel()
    assert not ordinary.is_done, "only background runs are stopped"
    ordinary.cancel()


def test_each_session_has_its_place_in_the_queue() -> None:
    server_hub = hub_of(rounds=200, max_live=1)
    desks = [desk_with(server_hub) for _ in range(3)]
    wait(lambda: desks[0].player.source.count)
    assert [desk.frame().place for desk in desks] == [0, 1, 2]
    for desk in desks:
        desk.cancel()


def test_no_lock_is_held_between_frames() -> None:
    desk = desk_with(hub_of(rounds=200))
    frames = play(desk)
    next(frames)
    taken: list[int] = []

    def other_handler() -> None:
        desk.player.step(1)
        taken.append(desk.player.frame().known)

    thread = threading.Thread(target=other_handler)
    thread.start()
    thread.join(WAIT_S)
    assert taken
    frames.close()


def test_a_generator_may_change_threads_between_frames() -> None:
    frames = play(desk_with(hub_of(rounds=40)))
    taken: list[Frame] = []

    def take_frame() -> None:
        try:
            taken.append(next(frames))
        except StopIteration:
            taken.append(Frame())

    while not taken or taken[-1].run_id:
        thread = threading.Thread(target=take_frame)
        thread.start()
        thread.join(WAIT_S)
    assert taken[-2].is_complete


def test_sessions_belong_to_tabs_and_pages_and_of_too_many_the_oldest_stops() -> None:
    desks = TabSessions()
    assert desks.of("a", "live") is desks.of("a", "live")
    assert desks.of("a", "live") is not desks.of("b", "live")
    assert desks.of("a", "live") is not desks.of("a", "sessions")
    server_hub, desk = hub_of(rounds=300), desks.of("a", "live")
    desk.look_at(Player(server_hub.start(request())))
    desks.leave("a")
    desk.player.source.wait_done(WAIT_S)
    assert desk.player.source.is_done and len(desks) == 1
    desks, server_hub = TabSessions(limit=3), hub_of(rounds=300)
    first = desks.of("0", "live")
    first.look_at(Player(server_hub.start(request())))
    for i in range(1, 5):
        desks.of(str(i), "live")
    assert len(desks) == 3 and first.player is not None
    first.player.source.wait_done(WAIT_S)
    assert first.player.source.is_done


def test_a_side_run_ends_with_its_generator() -> None:
    server_hub, desk = hub_of(rounds=60), TabSession()
    side = run_to_end(server_hub, desk, request(preset="autoregressive"), "me")
    source = next(side)
    side.close()
    source.wait_done(WAIT_S)
    assert source.is_done and desk.side is None


def test_errors_are_reported_in_their_words_bugs_in_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_later(error: Exception) -> Iterator[str]:
        yield "first"
        raise error

    def same(message: str) -> str:
        return message

    refusal = ConfigError.must_be("top_p", 2, "at most 1")
    refused = list(guard(fail_later(refusal), same))
    assert refused == ["first", "top_p is 2: it must be at most 1"] and not caplog.records
    failed = list(guard(fail_later(KeyError("x")), same))
    assert failed == ["first", "internal error (KeyError): 'x'"]
    assert "internal error" in caplog.text and "Traceback" in caplog.text

    def fail() -> str:
        raise refusal

    assert guard_once(fail, same) == "top_p is 2: it must be at most 1"


def test_a_store_that_cannot_write_does_not_stop_the_text() -> None:
    class FullStore(FakeStore):
        def record(self, event: Event, owner: str = "") -> None: ...

    frames = list(play(desk_with(Hub(FakeWorker(script_of(6)), FullStore()))))
    assert frames[-1].view.state == "completed"


@pytest.mark.slow
def test_95_percent_of_the_frame_gaps_of_2000_tokens_are_under_50_ms(chromium: Any) -> None:
    figures = measure(chromium, rounds=500, slowdown=1.0)
    assert figures["under_50"] >= 0.95, figures
