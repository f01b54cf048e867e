"""What is done to the log while it has nothing to write: thinning, and giving space back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from storage.database import connect
from storage.thinning import give_back, read_retention, thin_some

__all__ = ["Upkeep", "upkeep_of"]

Upkeep = Callable[[], bool]
"""Does a little; True if there is more. Raises sqlite3.Error where it must be tried again."""


def upkeep_of(path: Path) -> Upkeep:
    """The upkeep of the log at `path`, as its setting asks for it."""

    def some() -> bool:
        # Whoever else writes goes first: nothing here is urgent.
        with closing(connect(path, timeout=0)) as connection:
            keep = read_retention(connection)
            if keep is not None and thin_some(connection, keep) is not None:
                return True
            return give_back(connection)

    return some
