"""Options of the page's events. With them an event is no endpoint, and Gradio shows no progress.

At every value of a stream, Gradio writes the event's state into each component that could show its
progress. To do so it reads the component and all its children. An empty `show_progress_on` avoids
this, so that frames come in time more often (`python -m bench.page.gaps`)."""

from __future__ import annotations

from typing import Any

__all__ = ["EACH", "LATEST", "QUICK", "QUIET"]

QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
}

# For handlers that answer at once: without the queue, they do not wait for a run.
QUICK: dict[str, Any] = {**QUIET, "queue": False}

# If presses arrive while a press is being answered, the last of them is answered afterwards. The
# handler then gets the current values, but the event data of the first press: these options are for
# handlers that read no event data.
LATEST: dict[str, Any] = {**QUICK, "trigger_mode": "always_last"}

# Every press is answered; for handlers that read the event data.
EACH: dict[str, Any] = {**QUICK, "trigger_mode": "multiple"}
