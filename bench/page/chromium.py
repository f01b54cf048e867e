"""A Chromium of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from core.errors import ConfigError

__all__ = ["chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium(suite: str) -> Iterator[Any]:
    """Raises ConfigError where there is none, for the suite that wants one."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise ConfigError.of("suite", suite, "playwright (requirements-dev.txt)") from error
    found = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            reason = str(error).splitlines()[0]
            raise ConfigError.of("suite", suite, f"a Chromium that starts ({reason})") from error
        yield browser
        browser.close()
