"""Presses in quick succession: the last one is what the page shows, in whichever order they arrive.

Gradio's own "always_last" cannot serve where a press tells what was pressed: it asks once more with
what the first of them told.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

__all__ = ["Presses"]


@dataclass(slots=True)
class Presses:
    """One tab's on one page. Handlers hold `drawing` while they change that page."""

    drawing: threading.RLock
    _newest: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def last(self, kind: str, event_data: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """The answer of `work`, or that nothing changes where a later press of this kind has come.
        `event_data` comes from the browser; its `press` is the time of the press by its clock."""
        at = event_data.get("press")
        at = at if isinstance(at, (int, float)) else math.inf  # not from our own script
        with self._lock:
            newest = self._newest.get(kind, 0.0)
            self._newest[kind] = max(at, newest) if at < math.inf else newest
        with self.drawing:
            return work() if at >= self._newest[kind] else gr.skip()
