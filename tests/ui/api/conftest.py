"""Servers for the tests of endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.api.sites import Site, api_site


@pytest.fixture(scope="session")
def _here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with api_site(tmp_path_factory.mktemp("api")) as site:
        yield site


@pytest.fixture
def api(_here: Site) -> Site:
    """A server on loopback with an empty log."""
    _here.clear()
    return _here


@pytest.fixture(scope="session")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with api_site(tmp_path_factory.mktemp("api"), host="0.0.0.0") as site:
        yield site


@pytest.fixture
def elsewhere(_elsewhere: Site) -> Site:
    _elsewhere.clear()
    return _elsewhere


@pytest.fixture(scope="session")
def _login_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with api_site(tmp_path_factory.mktemp("api"), host="0.0.0.0", login=True) as site:
        yield site


@pytest.fixture
def login_site(_login_site: Site) -> Site:
    _login_site.clear()
    return _login_site


@pytest.fixture
def fresh_locked(tmp_path: Path) -> Iterator[Site]:
    with api_site(tmp_path, host="0.0.0.0", login=True) as site:
        yield site


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Site]:
    """A new server, for a test that swaps models."""
    with api_site(tmp_path) as site:
        yield site
