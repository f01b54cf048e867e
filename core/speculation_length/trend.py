"""`trend`: Minions' adaptive selector (arXiv 2402.15678, adaptive speculation length).

Its flaw is kept as published: it ignores the time of drafting.
"""

from __future__ import annotations

import re
from collections import deque
from statistics import linear_regression

from core.config import SpeculationConfig
from core.config.budget import max_draft_depth
from core.speculation_length.base import Choice, RoundOutcome
from core.speculation_length.cost_model import Costs
from core.speculation_length.history import LengthHistory

__all__ = ["Trend", "explain"]

# Number of rounds of one length that make a point of the regression.
VERIFICATIONS = 16
# The number of last points from which the slope is computed.
POINTS = 4
# Steps up and down: Minions goes down faster than up.
STEP, PENALTY = 1, 2
# Patterns of the reasons that `Trend` writes.
COUNTED = re.compile(r"\d+ stays: (\d+) of \d+ verifications made with it")
DECIDED = re.compile(
    r"(?:\d+ -> \d+|\d+ stays): .*\(at (\d+) it is ([\d.]+) ms(?:, (.+) ms a step)?"
)


class Trend:
    """rho(s) = LLM milliseconds per committed token at length s. Every 16 verifications at one s
    make a point (s, sum of their times / sum of their committed tokens). The slope of rho against
    s over the last 4 points decides: negative or only one s: s + 1; positive: s - 2; zero: s stays.
    s is at least 1, and at most `max_speculation_length` and the depth that the node budget
    allows."""

    def __init__(self, config: SpeculationConfig, costs: Costs | None = None) -> None:
        most = config.max_speculation_length
        # Rounds of a length that is cut to the node budget would not be counted.
        self._most = max(1, min(most, max_draft_depth(config, config.drafters, most)))
        start = min(max(1, config.speculation_length), self._most)
        self._points: deque[tuple[int, float]] = deque(maxlen=POINTS)
        self._choice = Choice(start, f"{start} to begin with")
        self._begin()

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Counts the verification, unless its draft was made with another length."""
        # A scheduler's grant, or the text's end, may have shortened the draft.
        if outcome.length != self._choice.length:
            return
        self._count += 1
        self._ms += outcome.verify_ms
        self._tokens += outcome.num_tokens
        length = self._choice.length
        so_far = f"{length} stays: {self._count} of {VERIFICATIONS} verifications made with it"
        self._choice = Choice(length, so_far)
        if self._count == VERIFICATIONS:
            # A ratio of sums: in a mean of ratios, rounds of one and of five tokens would weigh the
            # same.
            self._points.append((length, self._ms / max(1, self._tokens)))
            self._choice = self._decide()
            self._begin()

    def _begin(self) -> None:
        self._count = self._tokens = 0
        self._ms = 0.0

    def _decide(self) -> Choice:
        length = self._choice.length
        lengths, times = zip(*self._points, strict=True)
        # Change of the milliseconds per token with one more step of length.
        slope = linear_regression(lengths, times).slope if len({*lengths}) > 1 else None
        if slope is None:
            change, why = STEP, "nothing to compare with yet"
        elif slope == 0:
            change, why = 0, "the LLM's time per token does not depend on the length"
        else:
            change = STEP if slope < 0 else -PENALTY
            why = f"the LLM's time per token {'falls' if slope < 0 else 'rises'} with the length"
        next_length = min(max(1, length + change), self._most)
        ms = self._points[-1][1]
        why_here = f"{why} (at {length} it is {ms:.2f} ms"
        why_here += ")" if slope is None else f", {slope:+.3f} ms a step)"
        move = f"{length} -> {next_length}" if next_length != length else f"{length} stays"
        if next_length < length + change:
            why_here += f"; {self._most} is the most"
        return Choice(next_length, f"{move}: {why_here}")


def explain(history: LengthHistory) -> str:
    """Explains the limit on the length of the round's drafts."""
    length = f"{history.since()}: "
    if history.bound:
        return f"{length}{history.bound}."
    index = history.changed_at
    decided = DECIDED.match(history.reason(index))
    counted = COUNTED.match(history.reason(len(history.rounds) - 1))
    measured = counted[1] if counted else "none"
    waits = f"it is judged after {VERIFICATIONS} LLM passes, of which {measured} were measured"
    if decided is None:
        most = f"; {history.now.length} is the most here" if _is_most(history) else ""
        return f"{length}{waits}{most}."
    tried, ms, slope = decided.groups()
    took = f"with {tried} the LLM's passes took {ms} ms for each token written"
    if slope is None:
        return f"{length}{took}, and no other length is known yet, so {STEP} more is tried."
    if float(slope) == 0:
        return f"{length}{took}, as with other lengths."
    change = f"{abs(float(slope)):.3f} ms"
    if float(slope) < 0:
        return f"{length}{took}, {change} less for each step of length, so {STEP} more is tried."
    return f"{length}{took}, {change} more for each step of length, so {PENALTY} fewer are tried."


def _is_most(history: LengthHistory) -> bool:
    """Whether the policy would have chosen a longer draft if one were allowed."""
    end = f"); {history.now.length} is the most"
    return any(one.length_reason.endswith(end) for one in history.rounds[:-1])
