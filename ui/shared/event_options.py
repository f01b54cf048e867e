"""Options of the page's events: none is an endpoint, and Gradio shows no progress for them.

At every value of a stream, Gradio writes the event's state into each component that could show its
progress. For this it reads the component and everything within it. An empty `show_progress_on`
avoids this. With hidden progress alone, 88 to 90 % of the gaps between frames were at most 50 ms.
With an empty `show_progress_on` too, 95 to 98 % were (`python -m bench.page.gaps`, all tabs).
"""

from __future__ import annotations

from typing import Any

__all__ = ["EACH", "LATEST", "QUICK", "QUIET"]

QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
}

# For handlers that answer at once: without the queue, they never wait for a run.
QUICK: dict[str, Any] = {**QUIET, "queue": False}

# If presses arrive while a press is being answered, only the last of them is answered, afterwards.
# The handler then gets the current values, but the event data of the first press. So these options
# are for handlers that read only values.
LATEST: dict[str, Any] = {**QUICK, "trigger_mode": "always_last"}

# Every press is answered. These options are for handlers that read the event data.
EACH: dict[str, Any] = {**QUICK, "trigger_mode": "multiple"}
