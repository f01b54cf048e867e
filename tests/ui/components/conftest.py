"""All pictures on a page of their own, loaded once for the browser tests here."""

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
    """Every picture mounted anew, empty. An error or a request to another host fails the test."""
    bare_page.tab.watch.problems.clear()
    bare_page.mount()
    yield bare_page
    assert not bare_page.tab.watch.problems, "\n".join(bare_page.tab.watch.problems)
