"""A page on a port of its own is of bench/page/site.py; tests know it by this name."""

from __future__ import annotations

from bench.page.site import free_port, serve

__all__ = ["free_port", "serve"]
