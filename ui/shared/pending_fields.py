"""Field values that were sent to a tab's form, and whether the form shows them yet.

The browser receives a preset's fields together but applies them one by one. A form that is partly
updated must not be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LAPSE_S", "PendingFields"]

LAPSE_S = 10.0
"""After this many seconds the form is used as it is shown."""


@dataclass(frozen=True, slots=True)
class PendingFields:
    """`values`: the fields of `preset`, which were sent to the form; `before`: what the fields
    showed then. `at`: the time of sending, in seconds of a monotonic clock."""

    preset: str
    before: tuple[Any, ...]
    values: tuple[Any, ...]
    at: float

    @classmethod
    def of(
        cls, preset: str, before: Sequence[Any], values: Sequence[Any], at: float
    ) -> PendingFields:
        """PendingFields from sequences; `values` are in the order of `before`."""
        return cls(preset, tuple(before), tuple(values), at)

    def has_arrived(self, shown: Sequence[Any], now: float) -> bool:
        """Whether every field that gets a new value no longer shows its old value, or LAPSE_S have
        passed.

        A field that the visitor has edited meanwhile counts as arrived. A field that the visitor
        has set back to its old value counts as late."""
        return now - self.at > LAPSE_S or not any(self._late(shown))

    def on_arrival(self, shown: Sequence[Any]) -> list[Any]:
        """What the fields will show once the late values have arrived."""
        fields = zip(self._late(shown), self.values, shown, strict=True)
        return [new if late else value for late, new, value in fields]

    def _late(self, shown: Sequence[Any]) -> list[bool]:
        """For each field, whether it gets a new value and still shows the old one."""
        return [
            new != old and value == old
            for old, new, value in zip(self.before, self.values, shown, strict=True)
        ]
