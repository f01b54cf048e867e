"""An LLM and three SSMs, all tables; the first SSM is the LLM itself."""

import pytest

from core.models.loading.load import LoadedModels
from tests.core.engines import tables
from tests.fakes import loaded_tables


@pytest.fixture
def models() -> LoadedModels:
    llm, ssms = tables(3)
    return loaded_tables(llm, ssms)
