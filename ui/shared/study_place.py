"""StudyPlace: which study a visitor's tab shows, and the state that was drawn last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["StudyPlace"]


@dataclass(slots=True)
class StudyPlace:
    """`study_id`: the study that is shown ("": none); `row`: its row in the log; `page`: the
    selected page of the list of studies."""

    study_id: str = ""
    row: Any = None
    page: int = 0
    # The state that was drawn last, and the time (time.monotonic, in seconds) before which a new
    # count of measured runs causes no redraw.
    drawn_state: tuple[object, ...] = ()
    no_redraw_before: float = 0.0
    # Whether another tab of the page chose `study_id`. If so, this tab keeps it when it is opened.
    chosen_elsewhere: bool = False
    # The study that the notice (`TabSession.trouble`) is about, and the study's progress when the
    # notice appeared. The notice disappears when the progress changes. `trouble_study` is "" if an
    # update failed: the notice disappears with the next update that succeeds. With None the notice
    # stays until the next click.
    trouble_study: str | None = None
    trouble_state: tuple[object, ...] = ()
    # The search (PastSearch) for past runs that are shown instead of a study; None if a study is
    # shown.
    past: Any = None
