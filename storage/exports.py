"""A run's events as files for other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.events import Event
from storage.export_csv import rounds_csv
from storage.export_json import INTERRUPTED, events_json
from storage.export_trace import chrome_trace

__all__ = ["EXPORTS", "Export", "chrome_trace", "events_json", "rounds_csv"]


@dataclass(frozen=True, slots=True)
class Export:
    """One file format. `extension`: the ending of the file's name, without the dot. `write`: a
    function (events, status, regret) -> text. `status`: the run's status if no event ends the run.
    `regret`: see `events_json`."""

    extension: str
    media_type: str
    write: Callable[..., str]


Regret = Mapping[str, Any] | None


def _rounds(events: Sequence[Event], status: str = INTERRUPTED, regret: Regret = None) -> str:
    return rounds_csv(events)


def _trace(events: Sequence[Event], status: str = INTERRUPTED, regret: Regret = None) -> str:
    return chrome_trace(events, status)


EXPORTS: Mapping[str, Export] = MappingProxyType(
    {
        "events": Export("json", "application/json", events_json),
        "rounds": Export("csv", "text/csv; charset=utf-8", _rounds),
        "trace": Export("trace.json", "application/json", _trace),
    }
)
