"""What the whole page sets for Gradio."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from storage import RunQuery, RunStore
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
