"""A run as one HTML file, which replays the run without a network."""

from __future__ import annotations

from ui.report.document import report_html

__all__ = ["report_html"]
