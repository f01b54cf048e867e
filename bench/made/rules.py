"""What votes, length controllers and drafting ahead say in SYNTHETIC runs.

The combine rules are written out here once more, small and plain, so that a test can compare what
is shown with something that the engine did not compute. Knows core's contracts only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bench.made.parts import MergedTree
from core.events import Ahead, DraftRecord, Estimate, Span

__all__ = [
    "MINIONS",
    "Ballot",
    "Mechanisms",
    "ahead_of",
    "chosen",
    "estimates",
    "pooled",
    "rewarded",
]

VOTE_LENGTH = 8
KEPT = 12


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """Which mechanisms a SYNTHETIC run claims to use; `loses`: the round in which its last drafter
    fails, -1 for none. `pipeline=auto` drafts ahead but between two of its switches."""

    combine: str = "union"
    length: str = "fixed"
    pipeline: str = "off"
    loses: int = -1

    @property
    def weighs(self) -> bool:
        return self.combine != "union"

    @property
    def switches(self) -> dict[int, str]:
        return {3: "off", 5: "on"} if self.pipeline == "auto" else {}

    def ahead_in(self, number: int) -> bool:
        """Whether the drafters draft ahead beside the LLM's pass of this round."""
        return self.pipeline == "ahead" or (self.pipeline == "auto" and number not in (3, 4))


MINIONS = Mechanisms("vote", "goodput", "ahead", loses=5)


@dataclass(frozen=True, slots=True)
class Ballot:
    """What a rule made of the drafts; masses run parallel to nodes and to `tree.dropped`."""

    tree: MergedTree
    masses: tuple[float, ...] = ()
    dropped_masses: tuple[float, ...] = ()
    winner: str = ""


def chosen(rule: str, drafts: tuple[DraftRecord, ...], weights: dict[str, float]) -> Ballot:
    """The drafts combined by `vote`, `vote_tree` or `log_pool`; `union` has a budget instead."""
    if rule == "union":
        tree = MergedTree()
        for draft in drafts:
            tree.add(draft)
        return Ballot(tree)
    whole = MergedTree(most=10_000)
    sources: dict[int, list[tuple[DraftRecord, int]]] = {}
    for draft in drafts:
        for i, node in whole.add(draft).items():
            if i >= 0:
                sources.setdefault(node, []).append((draft, i))
    masses = [_mass(rule, sources[node], weights) for node in range(len(whole.token_ids))]
    kept, winner = _kept(rule, whole, masses, sources, weights)
    for node in range(len(masses)):
        if node not in kept:
            whole.dropped += [(draft.drafter, i) for draft, i in sources[node]]
    lost = [masses[node] for node in range(len(masses)) if node not in kept for _ in sources[node]]
    return Ballot(whole.only(kept), tuple(masses[node] for node in kept), tuple(lost), winner)


def _mass(rule: str, behind: list[tuple[DraftRecord, int]], weights: dict[str, float]) -> float:
    if rule == "vote":
        return sum(weights[draft.drafter] for draft, _ in behind)
    total = sum(weights.values())
    shares = [(weights[draft.drafter] / total, _chance(draft, i)) for draft, i in behind]
    if rule == "vote_tree":
        return sum(share * chance for share, chance in shares)
    return float(math.prod(chance**share for share, chance in shares))


def _chance(draft: DraftRecord, node: int) -> float:
    chance = 1.0
    while node >= 0:
        chance, node = chance * draft.scores[node], draft.parents[node]
    return chance


def _kept(
    rule: str,
    whole: MergedTree,
    masses: list[float],
    sources: dict[int, list[tuple[DraftRecord, int]]],
    weights: dict[str, float],
) -> tuple[list[int], str]:
    if rule == "log_pool":
        return list(range(len(masses))), ""
    if rule == "vote_tree":
        ranked = sorted(range(len(masses)), key=lambda node: (-masses[node], node))
        return sorted(ranked[:KEPT]), ""
    path, node = list[int](), -1
    while children := whole.children(node):
        node = max(children, key=lambda child: masses[child])
        path.append(node)
    names = [draft.drafter for draft, _ in sources[node]] if path else [""]
    return path, max(names, key=lambda name: weights.get(name, 0.0))


def rewarded(weights: dict[str, float], winner: str, share: float, mean: float) -> dict[str, float]:
    """Minions' reward with eta 0.1; no clipping, the runs are short."""
    factor = 1.1 if share > mean else 1 / 1.1 if share < mean else 1.0
    moved = {name: w * (factor if name == winner else 1) for name, w in weights.items()}
    average = sum(moved.values()) / len(moved)
    return {name: weight / average for name, weight in moved.items()}


def pooled(first: DraftRecord, name: str, spans: tuple[Span, ...]) -> DraftRecord:
    """The pool's common tree as another SSM holds it: the same tokens, its own scores."""
    scores = tuple(round(score**1.5, 6) for score in first.scores)
    return replace(first, drafter=name, scores=scores, spans=spans)


def estimates(number: int) -> tuple[Estimate, ...]:
    """Of drafting 0 to 8 steps: the best is somewhere in the middle, and moves."""
    best = 3 + number % 3
    return tuple(
        Estimate(s, 3 * s, 1 + 2.5 * (1 - 0.6**s), 6 + 0.5 * s + 0.3 * abs(s - best))
        for s in range(9)
    )


def ahead_of(name: str, number: int, spent_ms: float) -> Ahead:
    """Every third draft made ahead was for nothing, though its guess was right now and then."""
    hit = (number + len(name)) % 3 > 0
    saved, wasted = (0.75 * spent_ms, 0.25 * spent_ms) if hit else (0.0, spent_ms)
    reason = "" if hit else "unused" if number % 2 else "wrong"
    return Ahead(name, 3, 0.625, hit, round(saved, 6), round(wasted, 6), reason)
