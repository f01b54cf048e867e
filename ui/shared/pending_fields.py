"""Fields on their way: what the server put into a tab's form, and whether the form shows it yet.

A preset's fields reach the browser together and are taken over one by one, on a busy machine
seconds apart. A form between two presets was not asked for: it must not be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LAPSE_S", "PendingFields"]

LAPSE_S = 10.0


@dataclass(frozen=True, slots=True)
class PendingFields:
    """Fields sent at `at` seconds of a monotonic clock to a form that showed `before`."""

    before: tuple[Any, ...]
    values: tuple[Any, ...]
    at: float

    @classmethod
    def of(cls, before: Sequence[Any], values: Sequence[Any], at: float) -> PendingFields:
        """`values` in the order of `before`."""
        return cls(tuple(before), tuple(values), at)

    def has_arrived(self, shown: Sequence[Any], now: float) -> bool:
        """Whether no field shows what it showed before, where something else was sent.

        A field that the visitor has touched meanwhile is the visitor's. One that was put back to
        what it was looks as if it were late: nothing is waited for longer than LAPSE_S.
        """
        if now - self.at > LAPSE_S:
            return True
        late = [
            new != old and value == old
            for old, new, value in zip(self.before, self.values, shown, strict=True)
        ]
        return not any(late)
