"""Runs of a tab: started, recorded whole, played at the page's pace, stopped, forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from bench.page.gaps import measure
from core.config import Request
from core.errors import ConfigError
from core.events import Event, RunCancelled, RunCompleted
from tests.ui.fakes import FakeStore, FakeWorker, request, script_of
from tests.ui.fakes import recorded as prepared
from ui.run.frame import Frame
from ui.run.player import Pace, Player
from ui.server.session import Hub, TabSession, TabSessions, guard, guard_once, play, run_to_end

WAIT_S = 5.0


def hub(rounds: int = 12, speed: float = 1.0, max_live: int = 4) -> Hub:
    return Hub(FakeWorker(script_of(rounds), speed, max_live), FakeStore())


def desk_with(hub: Hub, pace: Pace | None = None, asked: Request | None = None) -> TabSession:
    desk = TabSession()
    desk.look_at(Player(hub.start(asked or request()), pace))
    return desk


def events_of(hub: Hub, run_id: str) -> list[Event]:
    return hub.store.recorded[run_id]


def until(condition, timeout: float = WAIT_S) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def test_a_run_is_played_to_its_end_and_recorded() -> None:
    server_hub = hub()
    frames = list(play(desk_with(server_hub)))
    assert frames[-1].is_complete and frames[-1].view.state == "completed"
    stories = [line.story for line in frames[-1].view.rounds]
    assert stories[frames[-1].selected_round] == max(stories), "its tree has most to tell"
    assert events_of(server_hub, frames[-1].run_id)[-1].seq == frames[-1].view.seq
    lengths = [len(frame.view.tokens) for frame in frames]
    assert lengths == sorted(lengths)


def test_frames_come_10_to_20_times_a_second_whatever_the_engine_does() -> None:
    for rounds, speed in ((60, 1.0), (300, 0.2)):  # 60 rounds a second, and 300
        desk = desk_with(Hub(FakeWorker(prepared(rounds), speed), FakeStore()))
        times = [time.monotonic() for _ in play(desk)]
        gaps = sorted(after - before for before, after in pairwise(times))
        # The median: a busy machine may delay single frames, but not most of them.
        assert 0.045 <= gaps[len(gaps) // 2] <= 0.11, gaps


class Clocked(FakeStore):
    """Remembers when each event came from the engine."""

    def record(self, event: Event, owner: str = "") -> None:
        super().record(event, owner)
        self.times.append(time.monotonic())

    times: list[float]


def test_a_token_is_seen_within_100_ms_of_its_round() -> None:
    store = Clocked()
    store.times = []
    desk = desk_with(Hub(FakeWorker(script_of(60)), store))
    late: list[float] = []
    for frame in play(desk):
        now = time.monotonic()
        late += [now - store.times[seq] for seq in range(len(late), frame.view.seq + 1)]
    late.sort()
    assert len(late) > 200 and late[len(late) // 2] < 0.06 and late[int(0.8 * len(late))] < 0.1


def test_a_closed_tab_stops_the_engine_and_the_run_is_still_recorded() -> None:
    server_hub = hub(rounds=400)
    desk = desk_with(server_hub)
    frames = play(desk)
    next(frames)
    until(lambda: desk.player and desk.player.source.count > 10)
    frames.close()
    desk.player.source.wait_done(WAIT_S)
    events = events_of(server_hub, desk.player.source.run_id)
    assert isinstance(events[-1], RunCancelled)
    assert [event.seq for event in events] == list(range(len(events)))


def test_slow_motion_records_at_the_engines_pace_not_the_visitors() -> None:
    server_hub = hub(rounds=20)
    desk = desk_with(server_hub, Pace("slow", 0.25))
    frames = play(desk)
    next(frames)
    desk.player.source.wait_done(WAIT_S)
    frame = next(frames)
    assert isinstance(events_of(server_hub, frame.run_id)[-1], RunCompleted)
    assert frame.ended and not frame.at_end and len(frame.view.rounds) < 3
    frames.close()


def test_stepping_lets_the_generator_go_when_the_engine_is_done() -> None:
    desk = desk_with(hub(rounds=5), Pace("step"))
    frames = list(play(desk))
    assert desk.player is not None and desk.player.is_paused
    assert frames[-1].ended and len(frames[-1].view.rounds) == 0
    desk.player.step(1)
    assert desk.player.frame().detail is not None


def test_playing_on_ends_the_generator_that_played_before() -> None:
    desk = desk_with(hub(rounds=300))
    first, second = play(desk), play(desk)
    next(first)
    next(second)
    assert list(first) == []
    assert desk.player is not None and not desk.player.source.is_done
    next(second)
    second.close()


def test_another_run_ends_the_generator_of_the_first_and_stops_its_engine() -> None:
    server_hub = hub(rounds=300)
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


def test_the_queue_shows_each_its_place() -> None:
    server_hub = hub(rounds=200, max_live=1)
    desks = [desk_with(server_hub) for _ in range(3)]
    until(lambda: desks[0].player.source.count)
    assert [desk.frame().place for desk in desks] == [0, 1, 2]
    for desk in desks:
        desk.cancel()


def test_no_lock_is_held_while_a_frame_is_out() -> None:
    desk = desk_with(hub(rounds=200))
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


def test_a_generator_may_hop_threads_between_frames() -> None:
    frames = play(desk_with(hub(rounds=40)))
    got: list[Frame] = []

    def one() -> None:
        try:
            got.append(next(frames))
        except StopIteration:
            got.append(Frame())

    while not got or got[-1].run_id:
        thread = threading.Thread(target=one)
        thread.start()
        thread.join(WAIT_S)
    assert got[-2].is_complete


def test_desks_belong_to_tabs_and_pages_and_of_too_many_the_oldest_stops() -> None:
    desks = TabSessions()
    assert desks.of("a", "live") is desks.of("a", "live")
    assert desks.of("a", "live") is not desks.of("b", "live")
    assert desks.of("a", "live") is not desks.of("a", "sessions")
    server_hub, desk = hub(rounds=300), desks.of("a", "live")
    desk.look_at(Player(server_hub.start(request())))
    desks.leave("a")
    desk.player.source.wait_done(WAIT_S)
    assert desk.player.source.is_done and len(desks) == 1
    desks, server_hub = TabSessions(limit=3), hub(rounds=300)
    first = desks.of("0", "live")
    first.look_at(Player(server_hub.start(request())))
    for i in range(1, 5):
        desks.of(str(i), "live")
    assert len(desks) == 3 and first.player is not None
    first.player.source.wait_done(WAIT_S)
    assert first.player.source.is_done


def test_a_side_run_ends_with_its_desk() -> None:
    server_hub, desk = hub(rounds=60), TabSession()
    side = run_to_end(server_hub, desk, request(preset="autoregressive"), "me")
    source = next(side)
    side.close()
    source.wait_done(WAIT_S)
    assert source.is_done and desk.side is None


def test_errors_are_reported_in_their_words_bugs_in_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(error: Exception) -> Iterator[str]:
        yield "first"
        raise error

    def told(message: str) -> str:
        return message

    ours = ConfigError.must_be("top_p", 2, "at most 1")
    assert list(guard(broken(ours), told)) == ["first", "top_p is 2: it must be at most 1"]
    assert not caplog.records
    assert list(guard(broken(KeyError("x")), told)) == ["first", "internal error (KeyError): 'x'"]
    assert "internal error" in caplog.text and "Traceback" in caplog.text

    def fails() -> str:
        raise ours

    assert guard_once(fails, told) == "top_p is 2: it must be at most 1"


def test_a_store_that_cannot_write_does_not_stop_the_text() -> None:
    class Full(FakeStore):
        def record(self, event: Event, owner: str = "") -> None:
            self.paused = "disk is full"

    assert (
        list(play(desk_with(Hub(FakeWorker(script_of(6)), Full()))))[-1].view.state == "completed"
    )


@pytest.mark.slow
def test_95_percent_of_the_frame_gaps_of_2000_tokens_are_under_50_ms(chromium: Any) -> None:
    figures = measure(chromium, rounds=500, speed=1.0)
    assert figures["under_50"] >= 0.95, figures
