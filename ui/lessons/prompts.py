"""What the lessons' runs continue, and who drafts for them."""

from __future__ import annotations

from ui.lessons.lesson import Crew

__all__ = ["ALL", "CODE", "DIALOGUE", "EVERYBODY", "NOBODY", "ONE", "STORY"]

DIALOGUE = "User: I want to book a table for two at an Italian restaurant.\nAssistant:"
STORY = "Once upon a time, in a small village by the sea, there lived"
CODE = "import json\nimport logging\n\nlog = logging.getLogger(__name__)\n\n"

NOBODY = Crew("nobody")
ALL = Crew("all")
EVERYBODY = Crew("everybody")
ONE = Crew("one", "dialogue")
