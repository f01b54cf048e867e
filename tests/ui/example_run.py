"""A SYNTHETIC run, its view and its last frame, for tests of the page's texts."""

from __future__ import annotations

from functools import cache

from core.events import Event
from tests.synthetic import synthetic_run
from ui.run.frame import Frame
from ui.run.view import View, reduce_all


@cache
def run_events() -> list[Event]:
    return synthetic_run(30, seed=5)


@cache
def run_view() -> View:
    return reduce_all(run_events())


def end_frame(view: View) -> Frame:
    return Frame(view=view, run_id="x", known=9, ended=True, at_end=True)
