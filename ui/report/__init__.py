"""A run as one HTML file: it opens from disk, needs no network and replays the run with the page's
pictures."""

from __future__ import annotations

from ui.report.document import report_html

__all__ = ["report_html"]
