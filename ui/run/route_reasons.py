"""A router's reason in plain words. The recorded reasons (core/routing) are short and never change,
since logs are read for ever."""

from __future__ import annotations

import re

from ui.run.listed import number_of

__all__ = ["route_reason"]

GRANTED = re.compile(r"; the batch grants (\d+)$")
EXPLORED = re.compile(r"(\d+) accepted, fewer than \d+: (.+) tried for having drafted least")
BEST = re.compile(r"(\d+) accepted: the best by score")
SWITCHED = re.compile(r"([^:]+ for [^:]+): (.+)", re.DOTALL)
UNTRIED = "nothing drafted yet: the first in order"
UNASKED = "before the first audition: the first in order"
NONE_YET = "no SSM has drafted yet, so the first in order are tried"


def route_reason(recorded: str, number: int) -> str:
    """The reason of round `number` in words; an unknown one is returned unchanged."""
    granted = GRANTED.search(recorded)
    reason = _in_words(GRANTED.sub("", recorded), number)
    if granted is None:
        return reason
    return f"{reason}; the scheduler allows {number_of(int(granted[1]), 'SSM')}"


def _in_words(reason: str, number: int) -> str:
    if match := EXPLORED.fullmatch(reason):
        if number == 0:  # logs from before `UNTRIED`
            return NONE_YET
        few = f"only {_tokens(match[1])}" if int(match[1]) else "no drafted token"
        return (
            f"the LLM accepted {few} in the last round with drafts, so {match[2]} (drafted least "
            "so far) may show what it can do"
        )
    if match := BEST.fullmatch(reason):
        tokens = _tokens(match[1])
        return (
            f"they have the highest scores; the LLM accepted {tokens} in the last round with drafts"
        )
    if reason == UNTRIED:
        return NONE_YET
    if reason == UNASKED:
        return "the SSMs were not asked about the text yet: the first in order"
    if match := SWITCHED.fullmatch(reason):
        return f"{match[1].replace(' for ', ' took the place of ')}: {match[2]}"
    return reason


def _tokens(count: str) -> str:
    return "1 drafted token" if count == "1" else f"{count} drafted tokens"
