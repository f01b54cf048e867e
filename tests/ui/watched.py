"""Watched tabs are of bench/page/browser.py; tests know them by this name."""

from __future__ import annotations

from bench.page.browser import WAIT_MS, Tab, Tabs, Watch
from bench.page.site import free_port

__all__ = ["WAIT_MS", "Tab", "Tabs", "Watch", "free_port"]
