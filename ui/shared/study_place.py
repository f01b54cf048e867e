"""A tab session's place among the studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["StudyPlace"]


@dataclass(slots=True)
class StudyPlace:
    """The study that a tab shows, its line in the log, and the page of the list."""

    study_id: str = ""
    row: Any = None
    page: int = 0
    # What the pictures show, and the time (monotonic, s) before which a change in the number of
    # measured runs alone does not draw them again.
    drawn_state: tuple[object, ...] = ()
    no_redraw_before: float = 0.0
    # Another tab chose this study: opening the tab does not turn to the one that is measured.
    chosen_elsewhere: bool = False
    # The study that the session's `trouble` is about and its state at that time; "" if the trouble
    # is that there is no study, None if the notice stays until the next click.
    trouble_study: str | None = None
    trouble_state: tuple[object, ...] = ()
    # Past runs, shown instead of the study until a study is chosen.
    past: Any = None
