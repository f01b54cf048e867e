"""Recorded reasons of length policies and of routers in plain words.

Earlier wordings are recognised too, since old logs are still read. An unknown reason is returned
unchanged."""

from __future__ import annotations

import re

from core.plurals import number_of

__all__ = ["length_reason", "route_reason"]

# Reasons of length policies (core/speculation_length).
FIRST = re.compile(r"(\d+) -> (\d+): nothing to compare with yet \(at \d+ it is ([\d.]+) ms\)")
MOVE = re.compile(r"(\d+) -> (\d+)(?=: )")
GOES_ON = re.compile(
    r"a second step takes ([\d.]+) ms, a token ([\d.]+) ms, so a draft goes on while its score is "
    r"at least ([\d.]+)"
)
COUNTING = re.compile(r"(\d+) stays: (\d+) of (\d+) verifications made with it")

# Reasons of routers (core/routing).
GRANTED = re.compile(r"; the batch grants (\d+)$")
EXPLORED = re.compile(r"(\d+) accepted, fewer than \d+: (.+) tried for having drafted least")
BEST = re.compile(r"(\d+) accepted: the best by score")
SWITCHED = re.compile(r"([^:]+ for [^:]+): (.+)", re.DOTALL)
UNTRIED = "nothing drafted yet: the first in order"
UNASKED = "before the first audition: the first in order"
NONE_YET = "no SSM has drafted yet, so the first in order are tried"


def length_reason(recorded: str, length: int) -> str:
    """A length policy's reason in words. `length`: the speculation length of the round after which
    the reason was recorded."""
    recorded = GOES_ON.sub(_goes_on_words, recorded)
    move = MOVE.match(recorded)
    if move and int(move[1]) != length == int(move[2]):
        # A policy that did not choose anew repeats the reason of its latest choice.
        return f"{length} stays, as chosen before{recorded[move.end() :]}"
    if match := FIRST.match(recorded):
        before, after, ms = match.groups()
        return (
            f"{before} -> {after}: with drafts of {before} the LLM's passes took {ms} ms for each "
            f"token written; {after} is tried to see whether that is less"
            f"{recorded[match.end() :]}"
        )
    if match := COUNTING.fullmatch(recorded):
        length_now, count, enough = match.groups()
        return (
            f"{length_now} stays: it is judged by the LLM's time for each token over "
            f"{number_of(int(enough), 'pass')}, of which {count} are measured"
        )
    return recorded


def _goes_on_words(match: re.Match[str]) -> str:
    step, token, score = match.groups()
    chance = float(step) / float(token) if float(token) else 0.0
    reached = "which no score reaches" if chance > 1 else f"which is a score of {score}"
    return (
        f"a second step takes {step} ms, a token {token} ms, so a draft goes on while its next "
        f"token is right with a chance of at least {100 * chance:.1f} %, {reached}"
    )


def route_reason(recorded: str, number: int) -> str:
    """A router's reason for round `number` in words."""
    granted = GRANTED.search(recorded)
    reason = _in_words(GRANTED.sub("", recorded), number)
    if granted is None:
        return reason
    return f"{reason}; the scheduler allows {number_of(int(granted[1]), 'SSM')}"


def _in_words(reason: str, number: int) -> str:
    if match := EXPLORED.fullmatch(reason):
        if number == 0:  # in logs older than the reason `UNTRIED`
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
    return number_of(int(count), "drafted token")
