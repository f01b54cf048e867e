"""A page on a port of its own is bench/page/serving.py; tests know it by this name."""

from __future__ import annotations

from bench.page.serving import free_port, served

__all__ = ["free_port", "served"]
