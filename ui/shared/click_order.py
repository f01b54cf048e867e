"""Clicks in quick succession: the page shows what it would show if they had arrived in the order in
which they were made.

Gradio's own "always_last" does not work for events that carry data: it repeats the handler with the
data of the first click.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

__all__ = ["Clicks", "Stamps", "with_time"]

NUM_KEPT = 16
"""How many of the latest clicks in a board's pictures are kept."""


@dataclass(slots=True)
class Clicks:
    """The clicks of one TabSession. Handlers hold `drawing` while they change the TabSession.

    The event data of a click comes from the browser; its `press` is the time of the click by the
    browser's clock. A click without `press`, for example an API client's, counts as the newest."""

    drawing: threading.RLock
    _newest: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _places: list[Mapping[str, Any]] = field(default_factory=list)

    def last(self, kind: str, event_data: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """The result of `work`, or `gr.skip()` if a later click of this kind has arrived."""
        pressed = _time_of(event_data)
        # Not under `drawing`: a click is noted while another handler draws.
        with self._lock:
            newest = self._newest.get(kind, 0.0)
            self._newest[kind] = max(pressed, newest) if pressed < math.inf else newest
        with self.drawing:
            return work() if pressed >= self._newest[kind] else gr.skip()

    def in_order(self, event_data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The clicks to answer now: this click in a board's picture, and later clicks that were
        answered before it, in the order of their times, since a click on a stage depends on earlier
        ones. The caller holds `drawing`."""
        pressed = _time_of(event_data)
        if pressed == math.inf:
            return [event_data]
        self._places = sorted([*self._places, event_data], key=_time_of)[-NUM_KEPT:]
        return [one for one in self._places if _time_of(one) >= pressed]


def _time_of(event_data: Mapping[str, Any]) -> float:
    pressed = event_data.get("press")
    return pressed if isinstance(pressed, (int, float)) else math.inf


def with_time(value: dict[str, Any]) -> dict[str, Any]:
    """`value` with the present time as its number `n`; see Stamps."""
    return {**value, "n": time.time_ns() // 1_000_000}


class Stamps:
    """Version numbers of the values that a tab gets: its browser ignores a value with a lower
    number than the shown value's. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[dict[str, Any], int]] = {}
        self._number = 0

    def on(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """`value` of the component `name` with its number `n`; an unchanged value keeps its
        number."""
        stamped = self._last.get(name)
        if stamped is None or stamped[0] != value:
            # From the clock, so that an open page takes a restarted server's values as newer.
            self._number = max(self._number + 1, time.time_ns() // 1_000_000)
            stamped = self._last[name] = (value, self._number)
        return {**value, "n": stamped[1]}
