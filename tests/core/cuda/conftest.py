"""Models here take torch's own calls, as on a GPU: the compiled pass is a CPU's."""

import pytest

from core.models import fastest


@pytest.fixture(autouse=True)
def in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
