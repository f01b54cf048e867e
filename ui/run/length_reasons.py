"""A length policy's reason in plain words. The recorded reasons (core/length) are short and never
change, since logs are read for ever."""

from __future__ import annotations

import re

__all__ = ["length_reason"]

FIRST = re.compile(r"(\d+) -> (\d+): nothing to compare with yet \(at \d+ it is ([\d.]+) ms\)")
MOVE = re.compile(r"(\d+) -> (\d+)(?=: )")
COUNTING = re.compile(r"(\d+) stays: (\d+) of (\d+) verifications made with it")


def length_reason(recorded: str, length: int) -> str:
    """The reason in words, after a round with that speculation length; one that needs none is
    returned unchanged."""
    move = MOVE.match(recorded)
    if move and int(move[1]) != length == int(move[2]):
        # A policy that did not choose anew repeats the reason of the round in which it did.
        return f"{length} stays, as chosen before{recorded[move.end() :]}"
    if match := FIRST.match(recorded):
        before, after, ms = match.groups()
        return (
            f"{before} -> {after}: with drafts of {before} the LLM's passes took {ms} ms for each "
            f"token written; {after} is tried to see whether that is less"
            f"{recorded[match.end() :]}"
        )
    if match := COUNTING.fullmatch(recorded):
        here, count, enough = match.groups()
        return (
            f"{here} stays: it is judged by the LLM's time for each token over {enough} passes, "
            f"of which {count} are measured"
        )
    return recorded
