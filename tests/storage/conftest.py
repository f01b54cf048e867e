"""Fixtures for a store in a new folder."""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.events import Event
from storage import RunStore
from tests.logs import log_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[RunStore]:
    with RunStore(log_at(path)) as opened:
        yield opened


@pytest.fixture
def keep() -> Callable[[RunStore, Iterable[Event]], None]:
    """Records events and waits until they are on disk."""

    def record_all(store: RunStore, events: Iterable[Event], owner: str = "") -> None:
        for event in events:
            store.record(event, owner)
        assert store.flush()
        assert store.status().dropped == 0

    return record_all


@pytest.fixture
def wait_for() -> Callable[..., None]:
    def wait(condition: Callable[[], bool], timeout: float = 10.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "the condition did not hold in time"
            time.sleep(0.05)  # a condition may read the log, which delays its writers

    return wait


@pytest.fixture
def sql(path: Path) -> Callable[..., list[tuple[Any, ...]]]:
    def execute(query: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(query, values).fetchall()

    return execute


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.sink.LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr("storage.writer.LAST_RETRY_S", 0.2)
