"""A fixture for the tests of laws 1(b) and 2, which judge differing texts by the rule of
margins.py."""

import pytest

from tests.laws.margins import Divergences
from tests.laws.runs import bundled_engine, module_of


@pytest.fixture(scope="module")
def divergences() -> Divergences:
    return Divergences(module_of(bundled_engine().models))
