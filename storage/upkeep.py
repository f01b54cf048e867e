"""Maintenance of the log while it is idle: thinning, and returning free pages to the disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from storage.database import connect
from storage.thinning import give_back, read_retention, thin_some

__all__ = ["Upkeep", "upkeep_of"]

Upkeep = Callable[[], bool]
"""Does a small part of the work; True if there is more. Raises sqlite3.Error if it must be
retried."""


def upkeep_of(path: Path) -> Upkeep:
    """The upkeep of the log at `path`, according to its setting."""

    def some() -> bool:
        # Other writers go first: nothing here is urgent.
        with closing(connect(path, timeout=0)) as connection:
            keep = read_retention(connection)
            if keep is not None and thin_some(connection, keep) is not None:
                return True
            return give_back(connection)

    return some
