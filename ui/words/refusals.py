"""The page's wording of refusals from core.errors."""

from __future__ import annotations

import re

__all__ = ["refusal_words"]

NO_PROMPT = re.compile(
    r"prompt is .*: it must be a text with at least one visible character", re.DOTALL
)
# The page sends some numbers as text, for example the seed.
QUOTED_NUMBER = re.compile(r"^(\w+) is '(-?[\d.]+)': ")
LONG_NUMBER = re.compile(r"(?<![\w.,])\d{5,}(?![\w.,])")


def refusal_words(message: str) -> str:
    """A refusal for visitors. If the value is a number, its quotes are removed. After the first
    colon, numbers of five or more digits get commas."""
    if NO_PROMPT.fullmatch(message):
        return "The prompt is empty."
    # The value before the colon stays as the visitor typed it.
    field_and_value, colon, allowed = QUOTED_NUMBER.sub(r"\1 is \2: ", message).partition(": ")
    return field_and_value + colon + LONG_NUMBER.sub(lambda match: f"{int(match[0]):,}", allowed)
