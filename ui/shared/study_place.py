"""A tab session's place among the studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["StudyPlace"]


@dataclass(slots=True)
class StudyPlace:
    """The study that a tab shows, and its line in the log; the page of the list; what its pictures
    show (`drawn`); and the time (monotonic, s) before which partial results are not drawn again.
    `asked`: another tab chose this study, and opening the tab keeps it. `about`: the study that the
    session's `trouble` is about, empty if it is that there is no study, None if it stays until the
    next click; `then`: that study's state at the time. `past`: past runs, which the pictures show
    instead of the study until a study is chosen."""

    study_id: str = ""
    row: Any = None
    page: int = 0
    drawn: tuple[object, ...] = ()
    rests: float = 0.0
    asked: bool = False
    about: str | None = None
    then: tuple[object, ...] = ()
    past: Any = None
