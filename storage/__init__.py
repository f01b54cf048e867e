"""The log of all runs: SQLite only. RunStore is the door; nothing else opens the file."""

from __future__ import annotations

from storage.queries import ORDERS, STATUSES, RunPage, RunQuery, RunSummary
from storage.store import RunStore
from storage.writer import LogStatus

__all__ = ["ORDERS", "STATUSES", "LogStatus", "RunPage", "RunQuery", "RunStore", "RunSummary"]
