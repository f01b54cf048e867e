"""What the page shows of events that were made up: the values of its pictures."""

from __future__ import annotations

from core.events import Event
from ui.run.frame import Frame
from ui.run.values import picture_values
from ui.run.view import Detail, View, detail_of, reduce_all


def seen(events: list[Event], number: int) -> tuple[View, Detail]:
    detail = detail_of(events, number)
    return reduce_all(events), detail


def shown(events: list[Event], number: int) -> dict[str, dict]:
    view, detail = seen(events, number)
    return picture_values(Frame(view=view, detail=detail, ended=True, at_end=True))
