"""A run's events as files for other programs: pure functions from events to text.

Nothing in a prompt or a model's text can do harm in the program that opens the file: see each
function. A thinned run says so in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from core.events import Event
from storage.export_csv import rounds_csv
from storage.export_json import INTERRUPTED, events_json
from storage.export_trace import chrome_trace

__all__ = ["EXPORTS", "Export", "chrome_trace", "events_json", "rounds_csv"]


class Writer(Protocol):
    """`status` is that of a run whose events have no end: `interrupted`, or `running` as yet."""

    def __call__(self, events: Sequence[Event], status: str = INTERRUPTED, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Export:
    """One kind of file: how its name ends (without a dot), its media type, what writes it."""

    extension: str
    media_type: str
    write: Writer


def _rounds(events: Sequence[Event], status: str = INTERRUPTED, /) -> str:
    """A table of rounds has no row for how the run ended."""
    return rounds_csv(events)


EXPORTS: Mapping[str, Export] = MappingProxyType(
    {
        "events": Export("json", "application/json", events_json),
        "rounds": Export("csv", "text/csv; charset=utf-8", _rounds),
        "trace": Export("trace.json", "application/json", chrome_trace),
    }
)
