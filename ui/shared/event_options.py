"""What the page's events have in common: they are no endpoints, and Gradio shows nothing of them.

Gradio writes the state of an event into each component that could show its progress, at every
value of a stream, and reads that component and all within it to do so. With `show_progress_on`
empty there is none; hidden alone, it did so for all outputs of all events: 88 to 90 % of the gaps
between frames were at most 50 ms then, 95 to 98 % now (`python -m bench.page.gaps`, all tabs).
"""

from __future__ import annotations

from typing import Any

__all__ = ["EACH", "LATEST", "QUICK", "QUIET"]

QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
}

# Answers at once, and so never waits behind a run.
QUICK: dict[str, Any] = {**QUIET, "queue": False}

# Of several presses that come while one is answered, the last is answered next: with the values of
# then, but with the event data of the first. For handlers that look at values alone.
LATEST: dict[str, Any] = {**QUICK, "trigger_mode": "always_last"}

# Every press is answered: for handlers that look at what was pressed.
EACH: dict[str, Any] = {**QUICK, "trigger_mode": "multiple"}
