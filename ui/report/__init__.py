"""A run as one HTML file: it opens from disk, needs no network and replays the run with the page's
pictures.

`report_html(events)` returns the file's text. `python -m ui.report EVENTS.jsonl OUT.html` writes
the file for the output of `python -m core --events`.
"""

from __future__ import annotations

from ui.report.document import report_html

__all__ = ["report_html"]
