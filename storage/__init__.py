"""The log of runs and studies, in SQLite, opened through RunStore."""

from __future__ import annotations

from storage.queries import (
    NO_DRAFTER,
    ORDERS,
    STATUSES,
    PlainSpeed,
    RunChoices,
    RunPage,
    RunQuery,
    RunSummary,
)
from storage.store import RunStore
from storage.writer import LogStatus

__all__ = [
    "NO_DRAFTER",
    "ORDERS",
    "STATUSES",
    "LogStatus",
    "PlainSpeed",
    "RunChoices",
    "RunPage",
    "RunQuery",
    "RunStore",
    "RunSummary",
]
