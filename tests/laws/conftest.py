"""A fixture that judges texts that differ."""

import pytest

from tests.laws.margins import Divergences
from tests.laws.runs import bundled_engine, module_of


@pytest.fixture(scope="module")
def divergences() -> Divergences:
    return Divergences(module_of(bundled_engine().models))
