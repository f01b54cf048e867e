"""Which drafter serves which part of a text: the run's tokens divided into few parts.

The division maximises the accepted tokens that the parts' drafters proposed, minus CHANGE for each
change of drafter."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from core.config.mechanisms import is_model_free
from core.plurals import number_of
from ui.run.explain import quote
from ui.run.listed import join_names, shorten
from ui.run.view import RoundView, TokenView, View

__all__ = ["served_in_short", "served_parts"]

Value = dict[str, Any]

# The tokens that a change of drafter must gain; this keeps the parts few.
CHANGE = 6.0
MAX_BEGIN = 24  # characters of a part's text
DRAFTED = ("routed", "explored")
MAX_PARTS = 3  # parts in the sentence of `served_in_short`


def served_parts(view: View, ssms: Sequence[str]) -> Value:
    """The parts of a routed run's text, in order. For each part: its first and last round (`from`,
    `to`), the beginning of its text (`text`), its drafter's index in the run (`d`), the number of
    its accepted tokens (`accepted`), how many of them the drafter proposed (`own`), and the reason
    for this drafter in words (`why`)."""
    numbers = [i for i, name in enumerate(view.drafters) if name in ssms or is_model_free(name)]
    if not view.tokens or not numbers:
        return {}
    rounds = [list(group) for _, group in itertools.groupby(view.tokens, lambda token: token.round)]
    shares = [
        [sum(column) for column in zip(*(_shares(token, numbers) for token in tokens), strict=True)]
        for tokens in rounds
    ]
    parts = _best_parts(shares, len(numbers))
    return {
        str(i): _part(view, [*itertools.chain(*rounds[first:end])], numbers[best])
        for i, (first, end, best) in enumerate(parts)
    }


def served_in_short(parts: Value, letters: Mapping[str, str]) -> str:
    """A sentence with the drafters of the first MAX_PARTS parts; empty without parts."""
    if not parts:
        return ""
    labels = [f"{sign} {name}" for name, sign in letters.items()]
    names = [labels[int(one["d"])] for one in parts.values()]
    begins = [one["text"] for one in parts.values()]
    phrases = [f"{name} from {text} on" for name, text in zip(names, begins, strict=True)]
    more = len(parts) - MAX_PARTS
    phrases[MAX_PARTS:] = [number_of(more, "more part")] if more > 0 else []
    served = join_names(phrases)
    if len(parts) == 1:
        (only,) = parts.values()
        served = f"{names[0]}, {only['own']} of {only['accepted']} accepted tokens"
    return f"Which drafter served which part of the text: {served}. Why: see “Who”."


def _shares(token: TokenView, numbers: Sequence[int]) -> list[float]:
    """Several proposers of an accepted token get equal shares."""
    proposers = [i for i, _ in token.scores if i in numbers]
    if token.kind != "accepted" or not proposers:
        return [0.0] * len(numbers)
    return [1 / len(proposers) if i in proposers else 0.0 for i in numbers]


def _best_parts(shares: Sequence[Sequence[float]], count: int) -> list[tuple[int, int, int]]:
    """Parts as (first round, end, drafter's index in `shares`). `shares`: for each round the sum of
    each drafter's shares."""
    # Dynamic programming over rounds: worth[i] is the best sum so far with drafter i in the last
    # round; came_from[r][i] is the drafter in round r - 1 that gives this sum. O(rounds x
    # drafters).
    worth = [0.0] * count
    came_from: list[list[int]] = []
    for own in shares:
        best = max(range(count), key=lambda i: worth[i])
        # Drafter i either continues, or takes over from the best drafter so far at the cost of
        # CHANGE. In a tie it takes over: a change then comes as late as possible, and rounds that
        # accepted nothing stay with the previous drafter.
        before = [i if worth[i] > worth[best] - CHANGE else best for i in range(count)]
        worth = [max(worth[i], worth[best] - CHANGE) + own[i] for i in range(count)]
        came_from.append(before)
    drafter = max(range(count), key=lambda i: worth[i])
    chosen = []
    for before in reversed(came_from):
        chosen.append(drafter)
        drafter = before[drafter]
    chosen.reverse()
    starts = [i for i in range(len(chosen)) if not i or chosen[i] != chosen[i - 1]]
    return [
        (first, end, chosen[first])
        for first, end in zip(starts, [*starts[1:], len(chosen)], strict=True)
    ]


def _part(view: View, tokens: Sequence[TokenView], number: int) -> Value:
    first, last = tokens[0].round, tokens[-1].round
    text = " ".join("".join(token.text for token in tokens).split())
    accepted = [token for token in tokens if token.kind == "accepted"]
    own = sum(number in [i for i, _ in token.scores] for token in accepted)
    return {
        "from": first,
        "to": last,
        "text": quote(shorten(text, MAX_BEGIN)),
        "d": str(number),
        "own": own,
        "accepted": len(accepted),
        "why": _why(view, tokens, number, f"{own} of {len(accepted)} accepted tokens are its")
        if accepted
        else "no drafted token was accepted here",
    }


def _why(view: View, tokens: Sequence[TokenView], number: int, sentence: str) -> str:
    """Extends `sentence` by figures of the routing, if the drafter is a routed SSM."""
    rounds = view.rounds[tokens[0].round : tokens[-1].round + 1]
    name = view.drafters[number]
    routed = [one for round_ in rounds for one in round_.routing if one.drafter == name]
    if not routed:
        return sentence
    drafted = Counter(
        one.drafter for round_ in rounds for one in round_.routing if one.role in DRAFTED
    )
    sentence += f"; it was chosen to draft in {drafted.pop(name, 0)} of {len(rounds)} rounds"
    if drafted:
        (other, count), *_ = drafted.most_common(1)
        sentence += f", {_label(view, other)} in {count}"
    means = _mean_scores(rounds)
    others = {one: mean for one, mean in means.items() if one != name}
    if not others:
        return sentence
    best = max(others, key=lambda one: others[one])
    place = "the next" if means[name] >= others[best] else "the best"
    return (
        f"{sentence}, mean score {_score(means[name])} ({place}: {_score(others[best])}, "
        f"{_label(view, best)})"
    )


def _label(view: View, name: str) -> str:
    return f"{view.letters[name]} {name}" if name in view.drafters else name


def _mean_scores(rounds: Sequence[RoundView]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for routed in (one for round_ in rounds for one in round_.routing):
        scores.setdefault(routed.drafter, []).append(routed.score)
    return {name: sum(values) / len(values) for name, values in scores.items()}


def _score(score: float) -> str:
    return f"{score:.0f}" if score >= 100 else f"{score:.1f}" if score >= 10 else f"{score:.2f}"
