"""A store without a disk and a request as the page makes it; the worker without models is
bench/made/worker.py, whose names stand here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from bench.made.worker import (
    INFOS,
    FakeRun,
    FakeWorker,
    Script,
    as_asked,
    endless,
    plain_twin,
    recorded,
    scripted,
)
from core.config import Request, SpeculationConfig
from core.errors import StoreError
from core.events import Event

__all__ = [
    "INFOS",
    "FakeRun",
    "FakeStore",
    "FakeWorker",
    "Script",
    "as_asked",
    "endless",
    "plain_twin",
    "recorded",
    "request",
    "scripted",
]


@dataclass
class FakeStore:
    """storage.RunStore in memory, without its queries."""

    recorded: dict[str, list[Event]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    baselines: dict[str, tuple[object, ...]] = field(default_factory=dict)
    paused: str = ""
    path: str = "memory"

    def record(self, event: Event, owner: str = "") -> None:
        self.recorded.setdefault(event.run_id, []).append(event)
        self.owners[event.run_id] = owner

    def keep_baseline(self, run_id: str, *told: object) -> None:
        self.baselines[run_id] = told

    def flush(self, timeout: float = 5.0) -> bool:
        return True

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(paused=bool(self.paused), reason=self.paused, waiting=0, dropped=0)

    def events(self, run_id: str) -> tuple[Event, ...]:
        if run_id not in self.recorded:
            raise StoreError(f"run {run_id!r} is unknown")
        return tuple(self.recorded[run_id])

    def delete(self, run_id: str) -> None:
        self.recorded.pop(run_id, None)


def request(prompt: str = "Once", preset: str = "specinfer") -> Request:
    """A request as the page makes it."""
    config = replace(SpeculationConfig.preset(preset), record_top_k=5)
    return Request(prompt=prompt, speculation=config)
