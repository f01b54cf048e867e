"""Handlers of the Learn tab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from core.errors import ConfigError
from storage import RunQuery, RunStore
from tests.synthetic import DRAFTERS
from tests.ui.boards import context, notice_of, until_writing, with_drafters
from tests.ui.fakes import FakeWorker, script_of
from tests.ui.model_hosts import Loader, other_worker, wait_for_load, wait_settled
from tests.ui.reports import unpack_value
from ui.learn.handlers import (
    OFF,
    judge_answer,
    lesson_values,
    open_lesson,
    request_on_board,
    run_example,
    show_run,
    stop_runs,
    try_lesson,
)
from ui.learn.layout import Learn, build_learn
from ui.learn.lessons import LESSONS, missing_reason, request_of
from ui.learn.lessons.sharing import SHARING
from ui.learn.parts import finished_lessons, lesson_value
from ui.learn.runs import _environment
from ui.learn.tab import _follow_handler, _load_handler, _run_handler
from ui.run.plain_run import BLOCKS
from ui.run.player import Pace
from ui.run.source import LiveSource
from ui.server.context import Context, make_context
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair
from ui.server.session import TabSession
from ui.server.visitors import Access

FULL_SPEED = Pace()


@cache
def layout() -> Learn:
    """Cached, since the components are slow to make."""
    with gr.Blocks():
        return build_learn(cast(Context, SimpleNamespace(drafter_names=(), models=(), chat=False)))


def learn_of(ctx: Context) -> Learn:
    learn = layout()
    return replace(learn, board=replace(learn.board, context=ctx))


@pytest.fixture
def learn(store: RunStore) -> Learn:
    return learn_of(context(store))


def worker_of(learn: Learn) -> Any:
    return learn.board.context.hub.worker


def last_frame(frames: Iterator[list[Any]]) -> list[Any]:
    """A notice is sent only if it is new, so the last notice may be of an earlier frame."""
    notice: Any = None
    for values in frames:
        notice = values[-1] if "lines" in values[-1] else notice
    return [*values[:-1], notice]


def rows_of(values: list[Any]) -> list[str]:
    return [row["label"] for row in values[-2]["rows"].values()]


def test_the_runs_of_an_example_are_made_in_order_and_listed(learn: Learn, store: RunStore) -> None:
    frames = list(run_example(learn, TabSession(), 1, "me", FULL_SPEED))
    assert all(len(values) == len(learn.run_outputs) for values in frames)
    requests = worker_of(learn).requests
    assert [bool(request.speculation.drafters) for request in requests] == [False, True] * BLOCKS
    assert {one.speculation.max_tree_nodes for one in requests if one.speculation.drafters} == {7}
    assert rows_of(frames[-1]) == ["1 token in a pass", "8 tokens in a pass"]
    assert rows_of(frames[0]) == [], "a row comes with the end of its run"
    assert "Finished: " in notice_of(frames[-1], 0)
    assert store.runs(RunQuery(owner="me")).total == 2, (
        "both runs are recorded, their repeats are not"
    )
    for values in frames:
        row = next(iter(values[-2]["rows"].values()), None)
        if row is not None:
            assert (row["cells"]["1"] == "…") == (not row["ranges"]), (
                "no time before all are measured"
            )
    assert frames[-1][-2]["note"] == f"times: medians of {BLOCKS} repeats"


def test_what_is_tried_is_measured_in_turns_with_the_example(learn: Learn) -> None:
    desk, worker = TabSession(), worker_of(learn)
    frames = list(run_example(learn, desk, 8, "me", FULL_SPEED))
    assert desk.baseline is not None and len(desk.baseline.blocks) == BLOCKS
    figures = [frame[1 + list(learn.board.pictures).index("figures")] for frame in frames]
    has_speed = [bool(unpack_value(value)["speed"]) for value in figures]
    assert has_speed[-1] and not any(has_speed[:-1]), "before all repeats are measured"
    num_before = len(worker.requests)
    values = last_frame(try_lesson(learn, desk, 8, "me", FULL_SPEED))
    assert len(worker.requests) - num_before == 3 * BLOCKS, "each block has each run once"
    rows = desk.lecture.evidence("loses").rows.values()
    assert [len(row.repeats) for row in rows] == [BLOCKS] * 3
    assert all(row["ranges"] for row in values[-2]["rows"].values())
    assert len(desk.baseline.blocks) == BLOCKS and not desk.measuring
    shown = show_run(learn, desk, 8, "drafts of 12")
    learn.board.context.store.flush()
    assert rows_of(shown)[1] == "drafts of 12" and len(desk.baseline.blocks) == BLOCKS


def test_repeats_that_are_stopped_leave_one_sample(learn: Learn) -> None:
    desk = TabSession()
    frames = run_example(learn, desk, 8, "me", FULL_SPEED)
    for values in frames:
        if "in turns" in notice_of(values, 0):
            break
    worker_of(learn).slowdown = 5.0
    while desk.side is None:
        next(frames)
    stop_runs(learn, desk)
    values = list(frames)[-1]
    assert not desk.measuring and "in turns" not in notice_of(values, 0)
    assert "one sample" in values[-2]["note"]
    assert not any(row["ranges"] for row in values[-2]["rows"].values())
    assert "…" not in str(values[-2]["rows"])


def test_a_frame_that_says_nothing_new_is_older_than_a_verdict_given_meanwhile(
    learn: Learn,
) -> None:
    """Gradio sends the last frame again at the end."""
    desk = TabSession()
    notices = [values[-1] for values in run_example(learn, desk, 8, "me", FULL_SPEED)]
    assert len({notice["n"] for notice in notices}) > 1
    for notice, following in pairwise(notices):
        assert notice["n"] <= following["n"]
        assert notice["lines"] != following["lines"] or notice["n"] == following["n"]
    verdict, *_ = judge_answer(desk, 8, (77, None), {})
    assert verdict["n"] >= notices[-1]["n"]


def test_the_attempt_adds_its_run(learn: Learn) -> None:
    desk = TabSession()
    last_frame(run_example(learn, desk, 3, "me", FULL_SPEED))
    values = last_frame(try_lesson(learn, desk, 3, "me", FULL_SPEED))
    assert rows_of(values) == ["width 3", "width 1"]
    assert [row["latest"] for row in values[-2]["rows"].values()] == [False, True]
    repeated = last_frame(run_example(learn, desk, 3, "me", FULL_SPEED))
    assert rows_of(repeated) == ["width 3", "width 1"], (
        "the second run takes the place of the first"
    )


def test_a_run_of_the_table_can_be_shown_and_opened_in_live(learn: Learn, store: RunStore) -> None:
    desk = TabSession()
    first, shown = last_frame(run_example(learn, desk, 3, "me", FULL_SPEED)), desk.frame().run_id
    last_frame(try_lesson(learn, desk, 3, "me", FULL_SPEED))
    assert desk.frame().run_id != shown
    values = show_run(learn, desk, 3, "width 3")
    assert len(values) == len(learn.run_outputs) and "Finished: " in notice_of(values, 0)
    assert desk.frame().run_id == shown and rows_of(values) == ["width 3", "width 1"]
    assert [row["latest"] for row in values[-2]["rows"].values()] == [True, False]
    assert request_on_board(learn, desk, 3).speculation.expansion[0] == 3, (
        "the run on the board opens in Live"
    )
    assert rows_of(first) == ["width 3"] and rows_of(show_run(learn, desk, 3, "nosuch"))
    assert desk.frame().run_id == shown, "a row that does not exist changes nothing"
    store.delete(shown)
    assert "deleted in Sessions" in notice_of(show_run(learn, desk, 3, "width 3"), 0)


def test_an_older_table_of_runs_has_a_lower_number(learn: Learn) -> None:
    desk = TabSession()
    tables = [values[-2] for values in run_example(learn, desk, 3, "me", FULL_SPEED)]
    tables.append(last_frame(try_lesson(learn, desk, 3, "me", FULL_SPEED))[-2])
    tables.append(show_run(learn, desk, 3, "width 3")[-2])
    assert {table["lesson"] for table in tables} == {"tree"}
    for one, following in pairwise(tables):
        newer = {**one, "n": 0} != {**following, "n": 0}
        assert following["n"] > one["n"] if newer else following["n"] == one["n"]


def test_a_run_in_progress_keeps_the_board(learn: Learn) -> None:
    desk = TabSession()
    last_frame(run_example(learn, desk, 3, "me", FULL_SPEED))
    worker_of(learn).slowdown = 5.0
    frames = try_lesson(learn, desk, 3, "me", FULL_SPEED)
    next(frames)
    running_id = desk.frame().run_id
    assert "a run goes on" in notice_of(show_run(learn, desk, 3, "width 3"), 0)
    assert desk.frame().run_id == running_id and desk.player and not desk.player.source.is_done
    stop_runs(learn, desk)
    frames.close()


def test_prove_it_is_what_lesson_5_offers_to_try(learn: Learn) -> None:
    desk = TabSession()
    refused = last_frame(try_lesson(learn, desk, 5, "me", FULL_SPEED))
    assert "there is no run yet" in notice_of(refused, 0)
    last_frame(run_example(learn, desk, 5, "me", FULL_SPEED))
    assert "Identical: " in notice_of(last_frame(try_lesson(learn, desk, 5, "me", FULL_SPEED)), 0)


def test_speed_is_compared_with_the_llm_alone(learn: Learn) -> None:
    desk = TabSession()
    last_frame(run_example(learn, desk, 8, "me", FULL_SPEED))
    assert desk.baseline is not None and "LLM alone" in desk.baseline.note
    last_frame(run_example(learn, desk, 2, "me", FULL_SPEED))
    assert desk.baseline is None, "a baseline of another prompt is not used"


def lesson_being_written(
    store: RunStore, number: int
) -> tuple[Learn, TabSession, Iterator[list[Any]]]:
    learn, desk = learn_of(context(store, rounds=400)), TabSession()
    worker_of(learn).slowdown = 1.0
    frames = run_example(learn, desk, number, "me", FULL_SPEED)
    until_writing(frames, 0)
    return learn, desk, frames


def test_a_stopped_run_is_not_listed_and_the_next_does_not_begin(store: RunStore) -> None:
    learn, desk, frames = lesson_being_written(store, 1)
    assert "Stopped: " in notice_of(stop_runs(learn, desk), 0)
    rest = list(frames)
    assert len(worker_of(learn).requests) == 1, "the second run of the example does not begin"
    assert all(rows_of(values) == [] for values in rest)


def test_a_finished_run_is_listed_though_its_pictures_are_not_done(learn: Learn) -> None:
    desk = TabSession()
    frames = run_example(learn, desk, 6, "me", Pace("slow", 0.05))
    next(frames)
    player = desk.player
    player.source.wait_done(5.0)
    trying = try_lesson(learn, desk, 6, "me", FULL_SPEED)
    next(trying)
    assert desk.player is not player
    list(frames)
    stop_runs(learn, desk)
    assert rows_of(last_frame(trying))[0] == "always 8", "the next run leaves it in the table"


def test_a_row_appears_when_the_engine_has_finished(learn: Learn) -> None:
    desk = TabSession()
    for values in run_example(learn, desk, 6, "me", Pace("slow", 4.0)):
        if "Engine finished" in notice_of(values, 0) and rows_of(values):
            break
    else:
        raise AssertionError("there is no row before the pictures have ended")
    assert values[-2]["coming"] == {"0": "goodput"}


def test_goodputs_measuring_is_announced_until_its_first_token(learn: Learn) -> None:
    desk, hub = TabSession(), learn.board.context.hub
    source, request = LiveSource(hub.store, "me"), request_of(LESSONS[5].setups[-1], ("a",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "start", lambda *_: source)
        frames = try_lesson(learn, desk, 6, "me", FULL_SPEED)
        assert "goodput measures how long passes of the LLM take" in notice_of(next(frames), 0)
        source.attach(hub.model_host.submit(request, source.take))
        last = list(frames)[-1]
    assert "goodput measures" not in notice_of(last, 0) and rows_of(last) == ["goodput"]


def test_lessons_that_overlap_restore_the_schedule_that_was_chosen(learn: Learn) -> None:
    host = learn.board.context.model_host
    shared, each = (replace(SHARING.setups[i], beside=()) for i in (1, 0))
    for chosen in ("", "cosine"):
        host.schedule = "each"
        with ExitStack() as second:
            with _environment(learn, TabSession(), shared, "me"):
                if chosen:
                    host.schedule = chosen
                second.enter_context(_environment(learn, TabSession(), each, "you"))
            assert host.schedule == "each", "the second lesson's own"
        assert host.schedule == (chosen or "each")


def test_opening_another_lesson_ends_the_run(store: RunStore) -> None:
    learn, desk, frames = lesson_being_written(store, 8)
    open_lesson(learn, desk, 2, {})
    list(frames)
    assert worker_of(learn).runs[0].is_cancelled and len(worker_of(learn).runs) == 1
    assert desk.lecture.evidence("loses").last is None


def test_run_pressed_right_after_opening_a_lesson_runs_that_lesson(learn: Learn) -> None:
    press = _run_handler(learn, run_example)
    request = cast(gr.Request, SimpleNamespace(session_hash="x", client=None, headers={}))
    open_lesson(learn, learn.board.session(request), 3, {})
    # The page still sends the number of the previous lesson.
    assert rows_of(last_frame(press(request, "me", 1))) == ["width 3"]


def test_a_lesson_that_cannot_run_is_disabled_and_says_why(store: RunStore) -> None:
    learn, desk = learn_of(with_drafters(store, ("only",))), TabSession()
    values = dict(zip(learn.lesson_outputs, open_lesson(learn, desk, 4, {}), strict=True))
    assert values[learn.run].interactive is False and values[learn.check].interactive is False
    assert "needs 2 small models" in str(values[learn.verdict])
    assert "needs 2 small models" in values[learn.attempt]
    assert "Press" not in str(values[learn.board.notice]) and OFF in str(values[learn.board.notice])
    assert "needs 2 small models" in notice_of(
        last_frame(run_example(learn, desk, 4, "me", FULL_SPEED)), 0
    )
    assert worker_of(learn).requests == []
    values = dict(zip(learn.lesson_outputs, open_lesson(learn, desk, 3, {}), strict=True))
    assert values[learn.run].interactive is True
    assert "Something to try" in values[learn.attempt]
    assert "Press “Run the example”" in str(values[learn.board.notice])


def exchangeable(store: RunStore, slowdown: float = 0.2) -> Learn:
    worker = other_worker("small", slowdown=slowdown)
    outcomes = iter((FakeWorker(script_of(8), 0.2), other_worker("small")))
    model_host = ModelHost(worker, Loader(lambda: next(outcomes)), ModelPair("other", ("small",)))
    return learn_of(make_context(model_host, store, Access("127.0.0.1"), "specinfer", RunQuery))


def swap_models(learn: Learn, pair: ModelPair) -> None:
    model_host = learn.board.context.model_host
    model_host.begin(pair)
    wait_settled(model_host)


def values_after_swap(learn: Learn, desk: TabSession, number: int) -> dict[Any, Any]:
    return dict(zip(learn.models_outputs, lesson_values(learn, desk, number), strict=True))


def test_an_open_lesson_follows_the_models(store: RunStore) -> None:
    learn, desk = exchangeable(store), TabSession()
    assert "only one is loaded" in str(open_lesson(learn, desk, 4, {}))
    swap_models(learn, ModelPair())
    values = values_after_swap(learn, desk, 4)
    for button in (learn.run, learn.try_button, learn.check, learn.into_live):
        assert values[button].interactive is True
    assert [name for name, _ in values[learn.choice].choices][:-1] == [*DRAFTERS]
    assert values[learn.verdict]["lines"]["0"]["text"] == LESSONS[3].question.needs
    swap_models(learn, ModelPair("other", ("small",)))
    values = values_after_swap(learn, desk, 4)
    assert values[learn.run].interactive is False and "only one is" in str(values[learn.verdict])


def test_runs_of_other_models_leave_the_table_and_come_back_with_them(store: RunStore) -> None:
    learn, desk, small = exchangeable(store), TabSession(), ModelPair("other", ("small",))
    assert rows_of(last_frame(run_example(learn, desk, 3, "me", FULL_SPEED))) == ["width 3"]
    last_frame(run_example(learn, desk, 8, "me", FULL_SPEED))
    assert desk.baseline is not None
    open_lesson(learn, desk, 3, {})
    swap_models(learn, ModelPair())
    values = lesson_values(learn, desk, 3)
    assert rows_of(values) == [] and desk.player is None and desk.baseline is None
    assert "A run with other models left the table" in notice_of(values, -1)
    values = last_frame(try_lesson(learn, desk, 3, "me", FULL_SPEED))
    assert rows_of(values) == ["width 1"] and "left the table" in notice_of(values, -1)
    notice, *_ = judge_answer(desk, 3, (0, None), {})
    assert LESSONS[2].question.needs in notice_of([notice], 0), "one run of two has no verdict"
    store.flush()
    swap_models(learn, small)
    values = lesson_values(learn, desk, 3)
    assert rows_of(values) == ["width 3"] and desk.player is not None


def test_a_run_in_progress_keeps_the_board_and_its_models(store: RunStore) -> None:
    learn, desk = exchangeable(store, slowdown=100.0), TabSession()
    frames = run_example(learn, desk, 2, "me", FULL_SPEED)
    next(frames)
    player, model_host = desk.player, learn.board.context.model_host
    worker: Any = model_host.worker
    model_host.begin(ModelPair())
    wait_for_load(model_host)
    lesson_values(learn, desk, 2)
    assert desk.player is player and player is not None and not player.source.is_done
    worker.slowdown = 0.0
    last = last_frame(frames)
    assert rows_of(last) == [] and "left the table" in notice_of(last, -1)
    wait_settled(model_host)


def test_a_lesson_chosen_while_the_page_loads_stays_open(learn: Learn) -> None:
    request = cast(gr.Request, SimpleNamespace(session_hash="x", query_params={"lesson": "3"}))
    load = _load_handler(learn)
    assert load(request, 1, {}, "")[0]["at"] == 3
    desk = learn.board.session(request)
    desk.lecture.at = 0
    open_lesson(learn, desk, 5, {})
    assert load(request, 1, {}, "") == [gr.skip() for _ in range(1 + len(learn.lesson_outputs))]
    assert desk.lecture.at == 5


def test_without_a_swap_nothing_is_sent(store: RunStore) -> None:
    learn = exchangeable(store)
    follow, request = _follow_handler(learn), cast(gr.Request, SimpleNamespace(session_hash="x"))
    assert all(value == gr.skip() for value in follow(request, 0, 4))
    swap_models(learn, ModelPair())
    version, *values = follow(request, 0, 4)
    assert version == 1 and len(values) == len(learn.models_outputs)


def test_every_lesson_opens_with_its_texts_its_controls_and_the_words_so_far(learn: Learn) -> None:
    for number, lesson in enumerate(LESSONS, 1):
        opened = open_lesson(learn, TabSession(), number, {})
        values = dict(zip(learn.lesson_outputs, opened, strict=True))
        assert values[learn.lesson]["title"] == lesson.title and values[learn.at] == number
        assert values[learn.try_button].value == lesson.attempt.button
        assert lesson.question.words in values[learn.asked]
        assert values[learn.number].visible is lesson.question.numeric
        assert values[learn.number].step == (0.1 if lesson.question.places else 1)
        coming = list(values[learn.rows]["coming"].values())
        assert coming == [setup.label for setup in lesson.setups]
        assert values[learn.choice].visible is not lesson.question.numeric
        assert values[learn.previous].interactive is (number > 1)
        assert values[learn.next].interactive is (number < len(LESSONS))
        cannot = missing_reason(lesson, learn.board.context.drafter_names)
        assert (cannot or lesson.question.needs) in str(values[learn.verdict])
        assert bool(cannot) == (lesson.key == "halves")
    values = dict(zip(learn.lesson_outputs, open_lesson(learn, TabSession(), 4, {}), strict=True))
    names = learn.board.context.drafter_names
    choices = [value for _, value in values[learn.choice].choices]
    assert choices == [*names, *LESSONS[3].question.besides]
    shown = [one["w"] for one in lesson_value(3, {})["words"].values()]
    assert shown[0] == "tree" and "token" in shown and "SSM" in shown and "vote" not in shown


def test_a_lesson_that_is_opened_again_shows_its_last_run(learn: Learn, store: RunStore) -> None:
    desk = TabSession()
    last_frame(run_example(learn, desk, 2, "me", FULL_SPEED))
    text = desk.frame().view.text
    store.flush()
    assert rows_of(open_lesson(learn, desk, 3, {})) == [] and desk.player is None
    values = open_lesson(learn, desk, 2, {})
    assert rows_of(values) == ["a dialogue"] and desk.frame().view.text == text
    store.delete(desk.frame().run_id)
    open_lesson(learn, desk, 3, {})
    assert rows_of(open_lesson(learn, desk, 2, {})) == ["a dialogue"] and desk.player is None


def test_a_right_answer_finishes_the_lesson_and_the_last_one_says_so(learn: Learn) -> None:
    desk = TabSession()
    first = judge_answer(desk, 2, (3, None), {})
    assert "Run the example first" in notice_of(first, 0) and first[1] == gr.skip()
    last_frame(run_example(learn, desk, 2, "me", FULL_SPEED))
    evidence = desk.lecture.evidence("ssm").last
    wrong = judge_answer(desk, 2, (evidence.max_accepted + 1, None), {})
    assert "Not in this run. Where to look: " in notice_of(wrong, 0) and wrong[1] == gr.skip()
    notice, progress, lesson = judge_answer(
        desk, 2, (evidence.max_accepted, None), {"done": ["memory"], "at": 2}
    )
    assert "Right. " in notice_of([notice], 0) and "Lesson 2 is finished" in notice_of([notice], 0)
    assert progress == {"done": ["memory", "ssm"], "at": 2}
    assert [step["done"] for step in lesson["steps"].values()] == [True, True] + [False] * (
        len(LESSONS) - 2
    )
    assert judge_answer(desk, 2, (evidence.max_accepted, None), progress)[1] == progress, (
        "a finished lesson is not added again"
    )
    others = [lesson.key for lesson in LESSONS if lesson.key != "ssm"]
    notice, *_ = judge_answer(desk, 2, (evidence.max_accepted, None), {"done": others})
    assert "You have finished all lessons" in notice_of([notice], 0)


@pytest.mark.parametrize("kept", [None, [], "x", {"done": 5}, {"done": {"a": 1}}])
def test_progress_that_cannot_be_read_counts_as_none(learn: Learn, kept: Any) -> None:
    assert finished_lessons(kept) == ()
    assert len(open_lesson(learn, TabSession(), 1, kept)) == len(learn.lesson_outputs)
    assert finished_lessons({"done": ["ssm", 3]}) == ("ssm",)


def test_open_in_live_takes_the_run_that_is_on_the_board(learn: Learn, store: RunStore) -> None:
    desk = TabSession()
    assert request_on_board(learn, desk, 3).speculation.expansion[0] == 3
    last_frame(run_example(learn, desk, 3, "me", FULL_SPEED))
    last_frame(try_lesson(learn, desk, 3, "me", FULL_SPEED))
    assert request_on_board(learn, desk, 3).speculation.expansion[0] == 1
    without_ssms = with_drafters(store, ())
    with pytest.raises(ConfigError, match="needs a small model"):
        request_on_board(learn_of(without_ssms), desk, 3)
