"""Watched tabs are of bench/page/watched.py; tests know them by this name."""

from __future__ import annotations

from bench.page.watched import WAIT_MS, Tab, Tabs, Watch, free_port

__all__ = ["WAIT_MS", "Tab", "Tabs", "Watch", "free_port"]
