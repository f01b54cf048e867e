"""`credit`: routing by full information, after HedgeSpec (arXiv 2510.20064), but repeated within a
text.

An SSM's credit is the discounted mean of its log-probabilities of the text's last tokens. An SSM's
score is the expected number of committed tokens per second if it drafts alone. Credits come from
auditions, in which the SSMs read the same tokens in the same context. In rounds their tokens and
contexts differ, so log-probabilities from rounds serve only to notice a change of the text.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from core.routing.base import AUDITION_WINDOW, CHAIN_DEPTH, RoundEvidence, Route, TimeOfRound
from core.speculation_length.cost_model import TINY_MS

__all__ = ["CreditRouter", "credit_of", "has_dropped"]

# A token's weight, relative to the weight of the next newer token.
FORGETTING = 0.95
# A regular audition takes place only if all auditions together then take at most this share of the
# decoding time. The first audition, and an audition after a drop (`has_dropped`), do not wait.
SHARE = 0.02
# Without a drop, a switch (from one SSM to another) comes at least this many rounds after the last
# switch or the beginning. Otherwise noise would make two SSMs alternate.
STEADY_ROUNDS = 16
# How many standard errors the gain of a switch must exceed: NOISE without a drop; NOISE_SOON with a
# drop soon after another switch; otherwise 0.
NOISE, NOISE_SOON = 3.0, 5.0
# Lower bound of a log-probability: a single surprising token is little evidence.
FLOOR = -6.9  # log 0.001
# The number of tokens that may show a drop, and of tokens before them for comparison.
RECENT_TOKENS, BASELINE_TOKENS = 8, 48
# A drop is more than this many standard errors.
DROP = 2.5
# An audition after a drop reads CHANGED_WINDOW tokens and compares the last CHANGED_TOKENS.
CHANGED_TOKENS, CHANGED_WINDOW = 2 * RECENT_TOKENS, 3 * RECENT_TOKENS
# A stored time is replaced once the measured time differs from it by more than this factor.
ALIKE = 1.4


def credit_of(log_probs: Sequence[float]) -> float:
    """Discounted mean of natural log-probabilities, the newest token last; FLOOR without a
    token."""
    weight = total = 0.0
    for age, value in enumerate(reversed(log_probs)):
        share = FORGETTING**age
        weight += share
        total += share * max(FLOOR, value)
    return total / weight if weight else FLOOR


def noise_of(one: Sequence[float], other: Sequence[float]) -> float:
    """Standard error of `credit_of(one) - credit_of(other)`; infinite without a token. `one`,
    `other`: two SSMs' log-probabilities of the same tokens."""
    # Differences are taken token by token: a token's difficulty for both SSMs cancels out.
    differences = [max(FLOOR, a) - max(FLOOR, b) for a, b in zip(one, other, strict=True)]
    if not differences:
        return math.inf
    weights = [FORGETTING**age for age in range(len(differences))][::-1]
    total = sum(weights)
    mean = sum(w * d for w, d in zip(weights, differences, strict=True)) / total
    spread = sum((w * (d - mean)) ** 2 for w, d in zip(weights, differences, strict=True))
    return math.sqrt(spread) / total


def has_dropped(log_probs: Sequence[float]) -> bool:
    """Whether the last RECENT_TOKENS were predicted worse than the tokens before them, by more than
    DROP standard errors. False if there are too few tokens."""
    recent = log_probs[-RECENT_TOKENS:]
    baseline = log_probs[-RECENT_TOKENS - BASELINE_TOKENS : -RECENT_TOKENS]
    if len(recent) < RECENT_TOKENS or len(baseline) < RECENT_TOKENS:
        return False
    mean = sum(baseline) / len(baseline)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in baseline) / len(baseline))
    return mean - sum(recent) / RECENT_TOKENS > DROP * deviation / math.sqrt(RECENT_TOKENS)


class _Times:
    """The times by which SSMs are compared, relative to the SSMs' median drafting time: a busy
    machine slows all SSMs down. A time is kept until the measured time differs from it by more than
    a factor of ALIKE: smaller differences are noise."""

    def __init__(self, time_of_round: TimeOfRound) -> None:
        self._time_of_round = time_of_round
        self._llm = 0.0
        self._drafting: dict[str, float] = {}
        self._median_ms = 1.0

    def update(self, names: Sequence[str]) -> bool:
        """Reads the current predictions for these SSMs; returns whether a relative time changed."""
        times = {name: self._time_of_round(name) for name in names}
        measured = [one.draft_ms for one in times.values() if one.draft_ms > 0]
        if not measured:
            return False
        # Not `median`: the mean of two SSMs' times would hide half of their difference.
        median = self._median_ms = statistics.median_low(measured)
        llm = _steady(self._llm, times[names[0]].llm_ms / median)
        drafting = {
            name: _steady(self._drafting.get(name, 1.0), (one.draft_ms or median) / median)
            for name, one in times.items()
        }
        changed = (llm, drafting) != (self._llm, self._drafting)
        self._llm, self._drafting = llm, drafting
        return changed

    def ms(self, name: str) -> float:
        """Milliseconds of a round in which this SSM drafts. Until drafting has been timed, only the
        LLM's pass counts."""
        if name not in self._drafting:
            return max(TINY_MS, self._time_of_round(name).llm_ms)
        return max(TINY_MS, self._median_ms * (self._llm + self._drafting[name]))


def _steady(value: float, measured: float) -> float:
    return value if value / ALIKE <= measured <= value * ALIKE else measured


class CreditRouter:
    """See Router. `names`: the SSMs, in the run's order; `count`: how many of them draft in a
    round."""

    reads_drafts = False
    reads_times = True

    def __init__(self, names: Sequence[str], count: int, time_of_round: TimeOfRound) -> None:
        self._names = list(names)
        self._count = min(count, len(self._names))
        self._times = _Times(time_of_round)
        self._times_changed = False
        self._log_probs: dict[str, list[float]] = {}
        self._recent: dict[str, deque[float]] = {}
        self._routed = self._names[: self._count]
        self._decode_ms = self._audition_ms = 0.0
        self._rounds = self._last_switch = 0
        self._since_audition = self._audition_tokens = 0
        self._changed = False
        self._reason = (
            "before the first audition: the first in order"
            if self._count < len(self._names)
            else f"all SSMs draft: up to {count} may in a round"
        )

    # -- scores --

    def drafter_scores(self) -> dict[str, float]:
        """Expected tokens per second of each SSM alone, from the last audition."""
        log_probs = self._log_probs
        return {n: self._value(n, credit_of(log_probs.get(n, ()))) for n in self._names}

    def _value(self, name: str, credit: float) -> float:
        """Tokens per second of a chain of CHAIN_DEPTH tokens, each accepted with probability r =
        exp(`credit`) if its parent is accepted: (1 + r + ... + r^CHAIN_DEPTH) / time."""
        rate = math.exp(credit)
        tokens = sum(rate**depth for depth in range(CHAIN_DEPTH + 1))
        return 1000 * tokens / self._times.ms(name)

    # -- routing --

    def route(self) -> Route:
        drafters = tuple(name for name in self._names if name in self._routed)
        return Route(drafters, frozenset(), self._reason)

    def drop(self, name: str) -> None:
        if name not in self._names:
            return
        self._names.remove(name)
        self._count = min(self._count, len(self._names))
        if name in self._routed:
            self._routed.remove(name)
            not_routed = [one for one in self._names if one not in self._routed]
            scores = self.drafter_scores()
            self._routed += sorted(not_routed, key=lambda one: -scores[one])[:1]
            self._reason = f"{name} failed"

    def observe(self, evidence: RoundEvidence) -> None:
        self._rounds += 1
        self._decode_ms += max(0.0, evidence.share_ms)
        self._since_audition += evidence.num_tokens
        # A changed time needs no new audition while the text is unchanged.
        self._times_changed |= self._times.update(self._names)
        if self._times_changed and self._is_steady and self._log_probs and not self._changed:
            self._choose(first=False)
        for name, log_probs in evidence.log_probs.items():
            history = self._recent.setdefault(name, deque(maxlen=RECENT_TOKENS + BASELINE_TOKENS))
            # A log-probability of -inf would make the deviation infinite.
            history.extend(max(FLOOR, value) for value in log_probs if not math.isnan(value))
        self._changed = bool(self._routed) and all(
            has_dropped([*self._recent.get(name, ())]) for name in self._routed
        )

    @property
    def needs_audition(self) -> bool:
        # All SSMs are routed: there is nothing to choose.
        if len(self._names) <= self._count:
            return False
        if not self._log_probs:
            return True
        # Each audition must bring new evidence.
        if self._since_audition < RECENT_TOKENS:
            return False
        if self._changed:
            return True
        expected_ms = AUDITION_WINDOW * self._audition_ms / max(1, self._audition_tokens)
        return self._audition_ms + expected_ms <= SHARE * self._decode_ms

    @property
    def audition_window(self) -> int:
        return CHANGED_WINDOW if self._changed else AUDITION_WINDOW

    def observe_audition(self, log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
        first = not self._log_probs
        self._log_probs = {name: list(values) for name, values in log_probs.items() if values}
        self._audition_tokens += 1 + max(map(len, self._log_probs.values()), default=0)
        self._audition_ms += max(0.0, ms)
        self._since_audition = 0
        self._times.update(self._names)
        self._choose(first)

    @property
    def _is_steady(self) -> bool:
        return self._rounds - self._last_switch >= STEADY_ROUNDS

    def _choose(self, first: bool) -> None:
        first_token = -CHANGED_TOKENS if self._changed else 0
        recent = {name: log_probs[first_token:] for name, log_probs in self._log_probs.items()}
        credits = {name: credit_of(recent[name]) for name in self._names if name in recent}
        values = {name: self._value(name, credit) for name, credit in credits.items()}
        best = sorted(credits, key=lambda name: -values[name])
        if first:
            self._routed = best[: self._count] or self._routed
            self._reason = f"{', '.join(self._routed)} predicted the prompt's end best"
            return
        may_switch = self._changed or self._is_steady
        # `_last_switch` is 0 before the first switch.
        is_soon = self._last_switch > 0 and not self._is_steady
        num_errors = (NOISE_SOON if is_soon else 0.0) if self._changed else NOISE
        changes, why, held_back = [], "the text changed", ""
        for challenger in [name for name in best if name not in self._routed]:
            scored_routed = [name for name in self._routed if name in credits]
            weakest = min(scored_routed, key=lambda name: values[name], default=None)
            if weakest is None or values[challenger] <= values[weakest]:
                break
            higher = f"{challenger} scores higher than {weakest}, but"
            if not may_switch:
                held_back = f"{higher} switches are {STEADY_ROUNDS} rounds apart"
                break
            noise = 0.0
            if num_errors:
                noise = num_errors * noise_of(recent[challenger], recent[weakest])
            # Values are compared, not credits: a slower SSM must predict the text better.
            if self._value(challenger, credits[challenger] - noise) <= values[weakest]:
                held_back = f"{higher} by no more than their noise"
                break
            self._routed[self._routed.index(weakest)] = challenger
            changes.append(f"{challenger} for {weakest}")
            if not self._changed:
                is_better = credits[challenger] - noise > credits[weakest]
                why = f"it {'predicts the text better by now' if is_better else 'drafts faster'}"
                break  # one switch at a time, unless the text has changed
        if changes:
            self._last_switch = self._rounds
            self._reason = f"{', '.join(changes)}: {why}"
            for name in self._routed:
                self._recent.pop(name, None)  # a new baseline
        else:
            self._reason = held_back or "no other SSM scores higher"
        self._changed = False
        if may_switch:
            self._times_changed = False
