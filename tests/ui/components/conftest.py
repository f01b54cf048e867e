"""A page with only the pictures, for browser tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.page.browser import Tabs
from tests.ui.components.bare import Pictures


@pytest.fixture(scope="session")
def bare_page(tabs: Tabs) -> Pictures:
    return Pictures(tabs.take())


@pytest.fixture
def pictures(bare_page: Pictures) -> Iterator[Pictures]:
    bare_page.tab.watch.problems.clear()
    bare_page.mount()
    yield bare_page
    assert not bare_page.tab.watch.problems, "\n".join(bare_page.tab.watch.problems)
