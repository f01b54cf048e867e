"""A tab's position among the studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["StudyPlace"]


@dataclass(slots=True)
class StudyPlace:
    """A tab session's position among the studies: the one shown and its line in the log, the page
    of the list, what of all that its pictures show (`drawn`), and the time (monotonic, s) before
    which partial results are not drawn anew. `asked`: it was turned to this study from elsewhere,
    and opening the tab keeps it. `about`: the study that the session's `trouble` is about, empty
    where it is that there was nothing to see, None where it stays until the next press; `then`: how
    that study stood. `past`: a look at past runs, which its pictures show instead of the study
    until one is chosen."""

    study_id: str = ""
    row: Any = None
    page: int = 0
    drawn: tuple[object, ...] = ()
    rests: float = 0.0
    asked: bool = False
    about: str | None = None
    then: tuple[object, ...] = ()
    past: Any = None
