"""Fixtures for the tests of the core."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from core import Engine, Worker
from tests.core.gated import CONTEXT, VOCAB, GatedModel, release
from tests.fakes import TableModel, loaded_tables, random_table


@pytest.fixture
def llm() -> GatedModel:
    return GatedModel()


@pytest.fixture
def engine(llm: GatedModel) -> Engine:
    close = TableModel("close", VOCAB, random_table(VOCAB, 2, sharpness=2.5), CONTEXT)
    return Engine(loaded_tables(llm, [TableModel("same", VOCAB, llm._table, CONTEXT), close]))


@pytest.fixture
def worker(engine: Engine, llm: GatedModel) -> Iterator[Worker]:
    before = set(threading.enumerate())
    worker = Worker(engine, max_live=2, threads=1)
    yield worker
    release(llm)
    worker.close()
    assert set(threading.enumerate()) <= before, "no thread is left behind"
    assert engine.models.llm.open_rows == ()
    assert not engine.busy.locked()


@pytest.fixture
def native_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each call of the compiled drafting function, the number of its drafts."""
    from core.drafters.native_drafting import native_drafts

    counts: list[int] = []

    def counting(places: Any) -> Any:
        counts.append(len(places))
        return native_drafts(places)

    monkeypatch.setattr("core.drafters.native_drafting.native_drafts", counting)
    return counts
