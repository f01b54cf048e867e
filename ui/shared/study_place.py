"""Which study a visitor's tab shows, and the state that was drawn last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["StudyPlace"]


@dataclass(slots=True)
class StudyPlace:
    """`study_id`: the study that is shown ("": none); `row`: the study's row in the log; `page`:
    the page of the list of studies."""

    study_id: str = ""
    row: Any = None
    page: int = 0
    # The state that was drawn last, and the time (time.monotonic, in seconds) before which a new
    # count of measured runs causes no redraw.
    drawn_state: tuple[object, ...] = ()
    no_redraw_before: float = 0.0
    # Whether another tab chose `study_id`. If so, opening this tab selects no other study.
    chosen_elsewhere: bool = False
    # The study that the notice (`TabSession.trouble`) is about, and the study's progress when the
    # notice appeared. The notice disappears when the progress changes. After a failed update
    # `trouble_study` is "": the notice disappears with the next update that succeeds. With None the
    # notice stays until the next click.
    trouble_study: str | None = None
    trouble_state: tuple[object, ...] = ()
    # The search (PastSearch) for past runs that are shown instead of a study; None if the board
    # shows a study.
    past: Any = None
