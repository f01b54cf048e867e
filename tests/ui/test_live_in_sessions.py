"""A run in progress, or a run of another server, in Sessions and by a link."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from core.config import Request, SamplingParams
from core.events import RunCancelled, RunCompleted
from storage import RunStore
from storage.process import start_mark
from tests.synthetic import synthetic_run
from tests.ui.boards import ALL, context, live_of, notice_of, sessions_of
from ui.live.handlers import stop_run
from ui.run.player import Player
from ui.run.source import LiveSource
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.exporting import write_export
from ui.sessions.history import CallerRights, check_ended
from ui.sessions.live_runs import follow_run
from ui.sessions.repeat import repeat_run, stop_again
from ui.sessions.retention import about_run
from ui.sessions.tab import choose_run, delete_run, opened_run
from ui.shared.links import follow_linked

ROUNDS = 40


@pytest.fixture
def ctx(store: RunStore) -> Iterator[Context]:
    result = context(store, rounds=ROUNDS)
    yield result
    result.hub.worker.clear()


def start_run(ctx: Context, slowdown: float = 1.0) -> LiveSource:
    ctx.hub.worker.slowdown = min(slowdown, 5.0)
    source = ctx.hub.start(Request("Once", SamplingParams(max_new_tokens=300)), "a")
    source.wait(12, 20.0)
    ctx.hub.worker.slowdown = slowdown
    return source


def test_a_run_is_followed_to_its_end(ctx: Context) -> None:
    source = start_run(ctx, 3.0)
    sessions, desk = sessions_of(ctx), TabSession()
    opened = opened_run(sessions, desk, ALL, source.run_id)
    assert "under way" in notice_of(about_run(ctx, ALL, source.run_id))
    frames = list(follow_run(sessions, desk, ALL, source.run_id))
    notices = [notice_of(one, 0) for one in (opened, *frames[:-1])]
    assert "Finished: " in notices[-1] and any("Writing: " in one for one in notices)
    assert not any("Interrupted" in one for one in notices)
    board = len(sessions.board.outputs)
    stops = [one[board]["interactive"] for one in frames[:-1]]
    assert stops[0] and opened[-2]["interactive"] and not stops[-1], "until nothing is left to stop"
    assert "under way" not in notice_of(frames[-1][board + len(sessions.board.places) :])
    # Gradio may overwrite a frame's values with the next frame's before the page draws them.
    assert frames[-1][:board] == frames[-2][:board]
    assert desk.frame().view.state == "completed"
    (only,) = follow_run(sessions, desk, ALL, source.run_id)
    assert all(value == only[0] for value in only), "a run that has ended sends nothing"
    fresh = TabSession()
    opened_run(sessions, fresh, ALL, source.run_id)
    assert fresh.frame().view == desk.frame().view, "as the log has it"


def test_a_link_follows_a_run_on_live_to_its_end_and_stop_ends_it(ctx: Context) -> None:
    live, desk = live_of(ctx), TabSession()
    source = start_run(ctx, 3.0)
    opened_run(live, desk, ALL, source.run_id)
    notices = [notice_of(one) for one in follow_linked(live, desk, source.run_id)]
    assert "Finished: " in notices[-1] and any("Writing: " in one for one in notices)
    (only,) = follow_linked(live, desk, source.run_id)
    assert all(value == only[0] for value in only), "a run that has ended sends nothing"
    source = start_run(ctx, 20.0)
    opened_run(live, desk, ALL, source.run_id)
    assert "Stopped: " in notice_of(stop_run(live, desk))
    assert isinstance(source.events(0, source.count)[-1], RunCancelled)
    desk.look_at(Player(start_run(ctx, 20.0)))
    (only,) = follow_linked(live, desk, desk.frame().run_id)
    assert desk.player is not None and desk.player.turn == 0


def test_a_run_that_ends_before_it_is_followed_is_shown_to_its_end(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    sessions, live, desk, other = sessions_of(ctx), live_of(ctx), TabSession(), TabSession()
    opened = opened_run(sessions, desk, ALL, source.run_id)
    opened_run(live, other, ALL, source.run_id)
    assert "Writing: " in notice_of(opened, 0)
    ctx.hub.worker.slowdown = 0.1
    source.wait_done(20.0)
    frames = list(follow_run(sessions, desk, ALL, source.run_id))
    assert "Finished: " in notice_of(frames[-2], 0)
    board, places = len(sessions.board.outputs), len(sessions.board.places)
    assert not frames[-2][board]["interactive"], "Stop is disabled"
    assert "under way" not in notice_of(frames[-1][board + places :])
    assert "Finished: " in notice_of(list(follow_linked(live, other, source.run_id))[-1])


def test_a_follower_who_leaves_does_not_stop_the_run(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    sessions, desk = sessions_of(ctx), TabSession()
    opened_run(sessions, desk, ALL, source.run_id)
    frames = follow_run(sessions, desk, ALL, source.run_id)
    next(frames)
    frames.close()
    desk.cancel()
    desk.look_at(None)
    assert not source.is_done and ctx.hub.live_run(source.run_id) is source


def test_the_export_and_the_check_of_endpoints_report_that_a_run_is_under_way(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    file = write_export(ctx, ALL, source.run_id, "json")
    assert json.loads(file["text"])["summary"]["status"] == "running"
    with pytest.raises(Exception, match="still running: stop it first, with Stop in Sessions"):
        check_ended(ctx, ctx.store.run(source.run_id))


def test_stop_ends_a_run_and_then_it_can_be_deleted(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    sessions, desk = sessions_of(ctx), TabSession()
    opened_run(sessions, desk, ALL, source.run_id)
    refused = notice_of(delete_run(sessions, desk, ALL, source.run_id), 0)
    assert "still running: stop it first, with Stop" in refused
    assert "Stopped: " in notice_of(stop_again(sessions, desk), 0)
    assert isinstance(source.events(0, source.count)[-1], RunCancelled)
    assert about_run(ctx, ALL, source.run_id)[3].visible is True
    assert delete_run(sessions, desk, ALL, source.run_id)[-2] == ""


def test_another_visitors_run_is_neither_opened_nor_stopped(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    sessions, desk = sessions_of(ctx), TabSession()
    values = opened_run(sessions, desk, CallerRights("b", False), source.run_id)
    assert "no such run of yours" in notice_of(values, 0)
    stop_again(sessions, desk)
    assert not source.is_done


def test_a_run_is_neither_compared_nor_repeated_before_its_end(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    sessions, desk = sessions_of(ctx), TabSession()
    assert "still running" in notice_of(
        list(repeat_run(sessions, desk, ALL, "a", source.run_id))[-1], 0
    )
    for event in synthetic_run(3):
        ctx.store.record(event, "a")
    desks = (desk, TabSession(), TabSession())
    compared = choose_run(sessions, desks, ALL, source.run_id, "synthetic-0")
    notice = compared[len(sessions.opened_outputs) + len(sessions.controls.about_outputs) + 1]
    assert "still running" in notice["lines"]["0"]["text"]


def test_a_long_run_is_followed_from_its_beginning(ctx: Context) -> None:
    source = start_run(ctx, 20.0)
    source._buffer.clear()  # a long run's buffer no longer has the first events
    read, reads = ctx.store.events, []
    ctx.store.events = lambda run_id: reads.append(run_id) or read(run_id)
    sessions, desk = sessions_of(ctx), TabSession()
    opened_run(sessions, desk, ALL, source.run_id)
    assert len(desk.frame().view.rounds) >= 2 and len(reads) == 1


def test_a_run_without_a_process_is_interrupted_and_can_be_deleted(ctx: Context) -> None:
    for event in synthetic_run(4, end="cut"):
        ctx.store.record(event, "")
    sessions, desk = sessions_of(ctx), TabSession()
    assert "Interrupted: " in notice_of(opened_run(sessions, desk, ALL, "synthetic-0"), 0)
    assert delete_run(sessions, desk, ALL, "synthetic-0")[-2] == ""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def set_process(store: RunStore, process: subprocess.Popen[bytes]) -> None:
    assert store.flush()
    with closing(sqlite3.connect(store.path)) as connection, connection:
        mark = start_mark(process.pid)
        connection.execute("UPDATE runs SET pid = ?, process_start = ?", (process.pid, mark))


def test_a_run_of_another_server_is_followed_in_the_log(
    ctx: Context, other: subprocess.Popen[bytes]
) -> None:
    events = synthetic_run(6)
    for event in events[:9]:
        ctx.store.record(event, "a")
    set_process(ctx.store, other)
    sessions, desk = sessions_of(ctx), TabSession()
    opened = opened_run(sessions, desk, ALL, "synthetic-0")
    assert "Writing: " in notice_of(opened, 0) and len(desk.frame().view.rounds) == 2
    about = about_run(ctx, ALL, "synthetic-0")
    assert "another server" in notice_of(about) and about[3].visible is False
    refused = notice_of(delete_run(sessions, desk, ALL, "synthetic-0"), 0)
    assert "still running: stop it on the server that makes it" in refused
    timer = threading.Timer(0.5, lambda: [ctx.store.record(one, "a") for one in events[9:]])
    timer.start()
    frames = list(follow_run(sessions, desk, ALL, "synthetic-0"))
    assert "Finished: " in notice_of(frames[-2], 0)
    assert isinstance(events[-1], RunCompleted) and frames[-1][-2].visible is True


def test_a_server_that_ended_leaves_an_interrupted_run(
    ctx: Context, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.server.under_way.SETTLE_S", 0.3)
    for event in synthetic_run(6, end="cut"):
        ctx.store.record(event, "a")
    set_process(ctx.store, other)
    sessions, desk = sessions_of(ctx), TabSession()
    assert "Writing: " in notice_of(opened_run(sessions, desk, ALL, "synthetic-0"), 0)
    other.kill()
    other.wait()
    start = time.monotonic()
    frames = list(follow_run(sessions, desk, ALL, "synthetic-0"))
    assert "Interrupted: " in notice_of(frames[-2], 0) and time.monotonic() - start < 20
    assert ctx.store.run("synthetic-0").status == "interrupted"
