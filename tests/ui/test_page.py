"""What the whole page sets for Gradio."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from storage import RunQuery, RunStore
from tests.ui.fakes import FakeWorker, scripted
from ui.context import make_context
from ui.page import LOOK_FOR_PROGRESS_S, LOOK_FOR_WORK_S, build_page
from ui.visitors import Access


def test_gradio_looks_for_work_at_our_pace(tmp_path: Path) -> None:
    """It has no public setting for it: one that has another name some day must be noticed."""
    usual = gr.Blocks()
    usual.queue()
    assert usual._queue.sleep_when_free < LOOK_FOR_WORK_S
    assert usual._queue.progress_update_sleep_when_free < LOOK_FOR_PROGRESS_S
    with RunStore(tmp_path / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=1), speed=0.0)
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
        page = build_page(context)
        assert page._queue.sleep_when_free == LOOK_FOR_WORK_S
        assert page._queue.progress_update_sleep_when_free == LOOK_FOR_PROGRESS_S
        context.conductor.close()
