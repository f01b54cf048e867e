"""Lessons that share or slow down the LLM, on a real engine."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from core import Engine, Worker
from core.events import RoundCompleted, RunStarted
from storage import RunQuery, RunStore
from tests.laws.runs import bundled_engine
from tests.ui.boards import notice_of
from tests.ui.test_learn import FULL_SPEED, last_frame, learn_of, rows_of
from ui.learn.handlers import open_lesson, past_requests, run_example, show_run
from ui.learn.layout import Learn
from ui.learn.lessons import LESSONS
from ui.learn.lessons.fitting import FITTING, IN_MEMORY, MBPS, STREAMED
from ui.learn.lessons.lecture import MOST_WATCHED, Lecture
from ui.learn.lessons.sharing import EACH, SHARED, SHARING
from ui.learn.lessons.wire import FAR, WIRE, WIRE_MS
from ui.learn.runs import _environment
from ui.server.context import make_context
from ui.server.session import TabSession
from ui.server.visitors import Access

NUMBER = LESSONS.index(SHARING) + 1


@pytest.fixture
def learn(store: RunStore) -> Iterator[Learn]:
    worker = Worker(Engine(bundled_engine().models))
    context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
    yield learn_of(context)
    context.conductor.close()
    worker.close()


def test_requests_run_at_once_and_their_grants_are_counted(learn: Learn, store: RunStore) -> None:
    desk, host = TabSession(), learn.board.context.model_host
    schedules: set[str] = set()
    live_counts: set[int] = set()

    def run_and_watch() -> Iterator[list[Any]]:
        for frame in run_example(learn, desk, NUMBER, "me", FULL_SPEED):
            schedules.add(host.schedule)
            live_counts.add(len(host.worker.snapshot().runs))
            yield frame

    values = last_frame(run_and_watch())
    assert rows_of(values) == [EACH, SHARED], notice_of(values, 0)
    assert schedules == {"each", "shared"} and host.schedule == "each", "the schedule is restored"
    assert max(live_counts) == 4
    rows = desk.lecture.evidence("sharing").rows
    assert rows[EACH].num_drafted == rows[EACH].num_verified
    rounds = [e for e in store.events(rows[SHARED].run_id) if isinstance(e, RoundCompleted)]
    parts = [event.scheduled for event in rounds if event.scheduled is not None]
    assert len(parts) == len(rounds) and {part.schedule for part in parts} == {"shared"}
    assert rows[SHARED].num_drafted == sum(part.num_drafted for part in parts) / len(rounds)
    assert rows[SHARED].num_verified == sum(part.num_granted for part in parts) / len(rounds)
    assert store.runs(RunQuery(owner="me")).total == 8
    for label, schedule in ((SHARED, "shared"), (EACH, "each")):
        show_run(learn, desk, NUMBER, label)
        shown = past_requests(desk)
        assert shown is not None and shown["schedule"] == schedule
        own_rows = [row for row in shown["rows"].values() if row["run"] == rows[label].run_id]
        completed = [e for e in store.events(rows[label].run_id) if isinstance(e, RoundCompleted)]
        assert len(shown["rows"]) == 4 and shown["most"] > 0
        number = own_rows[0]["round"]
        assert own_rows[0]["accepted"] == completed[number - 1].num_accepted
        assert f"The run shown, as it was in its round {number}: 4 of" in shown["pool"]
        assert desk.player is not None
        for number in sorted(desk.lecture.requests[rows[label].run_id]):
            desk.player.select(number - 1)
            requests = past_requests(desk)
            assert requests is not None
            (row,) = (row for row in requests["rows"].values() if row["run"] == rows[label].run_id)
            assert row["round"] == number
            assert row["accepted"] == completed[number - 1].num_accepted
            assert f"as it was in its round {number}: " in requests["pool"]
    totals = [sum(getattr(part, name) for part in parts) for name in ("num_granted", "num_drafted")]
    show_run(learn, desk, NUMBER, SHARED)
    words = " In its {} rounds: {} of {} nodes verified.".format(len(rounds), *totals)
    assert str((past_requests(desk) or {})["pool"]).endswith(words)


def test_after_a_run_the_requests_are_those_of_the_selected_round() -> None:
    lecture = Lecture()
    for number, (live, most) in {1: (3, 0), 2: (4, 0), 3: (4, 8), 5: (4, 7), 6: (2, 9)}.items():
        rows = {str(i): {"run": f"run-{i}", "round": number} for i in range(live)}
        lecture.watch("run-1", {"rows": rows, "most": most, "number": number})
    lecture.watch("run-1", {"rows": {"0": {"run": "another", "round": 7}}, "most": 1})

    def number_at(place: int, chosen: bool) -> int:
        number, value = lecture.requests_at("run-1", place, chosen) or (0, {"number": 0})
        assert number == value["number"]
        return number

    assert [number_at(place, True) for place in range(1, 8)] == [1, 2, 3, 3, 5, 6, 6]
    # Without a choice, a round is shown in which four requests are live and one has drafted.
    assert [number_at(place, False) for place in range(1, 8)] == [3, 3, 3, 3, 5, 5, 5]
    assert lecture.requests_at("another", 1, True) is None
    for i in range(MOST_WATCHED):
        lecture.watch(f"{i}", {"rows": {"0": {"run": f"{i}", "round": 1}}, "most": 1})
    assert lecture.requests_at("run-1", 1, True) is None, "only the last runs are kept"


def test_a_visitor_who_may_not_choose_a_schedule_is_refused(learn: Learn) -> None:
    desk, host = TabSession(), learn.board.context.model_host
    desk.lecture.may_schedule = False
    values = last_frame(run_example(learn, desk, NUMBER, "me", FULL_SPEED))
    assert "You may look, not choose" in notice_of(values, 0)
    assert host.schedule == "each" and rows_of(values) == [EACH]


def test_layers_are_streamed_for_the_time_of_a_run(learn: Learn, store: RunStore) -> None:
    desk, host = TabSession(), learn.board.context.model_host
    speeds: set[float] = set()

    def run_and_watch() -> Iterator[list[Any]]:
        for frame in run_example(learn, desk, LESSONS.index(FITTING) + 1, "me", FULL_SPEED):
            speeds.add(host.worker.engine.stream_mbps)
            yield frame

    assert rows_of(last_frame(run_and_watch())) == [IN_MEMORY, STREAMED]
    assert speeds == {0.0, MBPS}
    assert host.worker.engine.stream_mbps == 0, "the setting is restored"
    rows = desk.lecture.evidence("fitting").rows
    offloads = []
    for label in (IN_MEMORY, STREAMED):
        start = store.events(rows[label].run_id)[0]
        assert isinstance(start, RunStarted)
        offloads.append(start.offload)
    assert offloads[0] is None and offloads[1] is not None
    assert rows[STREAMED].pass_ms > 0.9 * offloads[1].least_ms > rows[IN_MEMORY].pass_ms


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_the_slowing_stays_until_the_last_of_two_runs_ends(learn: Learn, first_to_end: int) -> None:
    engine = learn.board.context.model_host.worker.engine
    runs = [ExitStack(), ExitStack()]
    for run, (lesson, label) in zip(runs, ((FITTING, STREAMED), (WIRE, FAR)), strict=True):
        (setup,) = (one for one in lesson.setups if one.label == label)
        run.enter_context(_environment(learn, TabSession(), setup, "me"))
    assert (engine.stream_mbps, engine.wire_ms) == (MBPS, WIRE_MS)
    runs.pop(first_to_end).close()
    assert (engine.stream_mbps, engine.wire_ms) == (MBPS, WIRE_MS)
    runs.pop().close()
    assert (engine.stream_mbps, engine.wire_ms) == (0.0, 0.0)


def test_a_lesson_that_cannot_stream_layers_is_refused_before_its_first_run(learn: Learn) -> None:
    desk, host = TabSession(), learn.board.context.model_host
    number = LESSONS.index(FITTING) + 1
    host._served.can_stream = False
    try:
        opened = dict(zip(learn.lesson_outputs, open_lesson(learn, desk, number, {}), strict=True))
        assert "without --offload" in str(opened[learn.verdict])
        values = last_frame(run_example(learn, desk, number, "me", FULL_SPEED))
    finally:
        host._served.can_stream = True
    assert "without --offload" in notice_of(values, 0) and rows_of(values) == []


def test_a_visitor_who_may_not_slow_down_others_is_refused(learn: Learn) -> None:
    desk, host = TabSession(), learn.board.context.model_host
    desk.lecture.may_schedule = False
    values = last_frame(run_example(learn, desk, LESSONS.index(FITTING) + 1, "me", FULL_SPEED))
    assert "or if only the server's machine reaches it, without a proxy" in notice_of(values, 0)
    assert host.worker.engine.stream_mbps == 0 and rows_of(values) == [IN_MEMORY]
