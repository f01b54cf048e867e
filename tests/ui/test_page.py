"""What the whole page sets for Gradio, and what its events have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gradio as gr

from storage import RunQuery, RunStore
from tests.ui.boards import context
from tests.ui.fakes import FakeWorker, scripted
from ui.server.context import make_context
from ui.server.page import LOOK_FOR_PROGRESS_S, LOOK_FOR_WORK_S, build_page
from ui.server.visitors import Access


def test_gradio_looks_for_work_at_our_pace(tmp_path: Path) -> None:
    """It has no public setting for it: one that has another name some day must be noticed."""
    usual = gr.Blocks()
    usual.queue()
    assert 0 < usual._queue.sleep_when_free <= 0.05
    assert 0 < usual._queue.progress_update_sleep_when_free <= 0.1
    with RunStore(tmp_path / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=1), speed=0.0)
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
        queue = build_page(context)._queue
        assert LOOK_FOR_WORK_S <= queue.sleep_when_free <= 0.05
        assert queue.progress_update_sleep_when_free == LOOK_FOR_PROGRESS_S
        context.conductor.close()


def loud(dependencies: list[dict[str, Any]]) -> list[Any]:
    """Targets of the events that Python answers with values, and that show progress somewhere."""
    return [
        one["targets"]
        for one in dependencies
        if one["backend_fn"]
        and one["targets"]
        and one["outputs"]
        and (one["show_progress"] != "hidden" or one["show_progress_on"] != [])
    ]


def test_no_event_shows_its_progress_control_hidden_is_not_enough(store: RunStore) -> None:
    dependencies = build_page(context(store)).get_config_file()["dependencies"]
    assert len(dependencies) > 200
    assert loud(dependencies) == []
    one = {"backend_fn": True, "targets": [(7, "click")], "outputs": [8]}
    one |= {"show_progress": "hidden"}
    assert loud([{**one, "show_progress_on": None}]) == [[(7, "click")]]


def told_again(events: Iterable[tuple[Callable[..., Any] | None, str]]) -> list[Any]:
    """Handlers of event data that Gradio may ask with the data of an earlier press."""
    return [
        handler
        for handler, mode in events
        if handler is not None
        and mode == "always_last"
        and any("EventData" in str(one) for one in inspect.get_annotations(handler).values())
    ]


def test_what_looks_at_a_press_is_never_asked_with_an_earlier_one(store: RunStore) -> None:
    events = [(fn.fn, fn.trigger_mode) for fn in build_page(context(store)).fns.values()]
    assert sum(mode == "always_last" for _, mode in events) > 20
    assert told_again(events) == []

    def press(event: gr.EventData) -> None: ...

    assert told_again([(press, "always_last"), (press, "multiple"), (None, "once")]) == [press]
