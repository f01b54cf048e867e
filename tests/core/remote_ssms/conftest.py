"""Fixtures for the tests of remote SSMs."""

from pathlib import Path

import pytest

from core.models.loading.load import LoadedModels
from core.remote_ssms import listener, zmq_transport
from core.remote_ssms.keys import CurveKeys, read_keys, write_keys
from tests.core.engines import tables
from tests.fakes import loaded_tables


@pytest.fixture
def models() -> LoadedModels:
    llm, ssms = tables(3)
    return loaded_tables(llm, ssms)


@pytest.fixture
def keys(tmp_path: Path) -> CurveKeys:
    write_keys(str(tmp_path / "key"))
    result = read_keys(str(tmp_path / "key"))
    assert result is not None
    return result


@pytest.fixture
def soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_transport, "HEARTBEAT_MS", 50)
    monkeypatch.setattr(zmq_transport, "SILENCE_MS", 300)


@pytest.fixture(autouse=True)
def _listeners_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait until their listeners end."""
    monkeypatch.setattr(listener, "POLL_MS", 25)
