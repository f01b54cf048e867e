"""Stamps: version numbers of the values a tab gets, so that its browser can discard late answers.

Answers to clicks in quick succession are sent separately and may overtake each other. A browser
ignores a value with a lower number than the one it shows. Knows no picture.
"""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Stamps"]


class Stamps:
    """The stamps of one tab. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[dict[str, Any], int]] = {}
        self._number = 0

    def on(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """`value` of the component `name` with its number `n`; an unchanged value keeps its number,
        so that it is neither sent nor drawn again."""
        before = self._last.get(name)
        if before is None or before[0] != value:
            # By the clock, so that a page that outlives its server goes on with the next one.
            self._number = max(self._number + 1, time.time_ns() // 1_000_000)
            before = self._last[name] = (value, self._number)
        return {**value, "n": before[1]}
