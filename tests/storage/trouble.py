"""Locks of the log's file, and checks that `record` does not wait."""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from core.events import Event
from storage import RunStore

QUICK_S = 0.5  # enough on a busy machine; a wait for the disk takes a second or more


@contextmanager
def hold_write_lock(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def record(store: RunStore, events: Iterable[Event]) -> None:
    for event in events:
        store.record(event)


def record_quickly(store: RunStore, events: list[Event]) -> None:
    start = time.monotonic()
    record(store, events)
    assert time.monotonic() - start < QUICK_S
