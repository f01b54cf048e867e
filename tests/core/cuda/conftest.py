"""Tests in this folder run models in torch: the compiled pass is for CPUs only."""

import pytest

from core.models import fastest


@pytest.fixture(autouse=True)
def in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
