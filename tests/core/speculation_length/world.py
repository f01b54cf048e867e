"""A world of plain numbers for length policies: drafters with known acceptance, scores and costs.

The positions at which a drafter's token is right are fixed: every policy meets the same text.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from core.config import SpeculationConfig
from core.speculation_length import Choice, DraftOutcome, LengthPolicy, RoundOutcome, make_policy
from core.speculation_length.base import Stop
from core.speculation_length.cost_model import Costs, VerifyCosts

Chance = Callable[[int], float]
Clock = Callable[[int], float]


def constant(value: float) -> Callable[[int], float]:
    return lambda _: value


@dataclass(frozen=True)
class Simulated:
    """`chance(position)`: the probability that the drafter's token at this position is right;
    `start(round)`, `step(round)`: milliseconds of the first step and of each further step. Drafters
    of one `source` make the same mistakes."""

    name: str
    chance: Chance
    start: Clock
    step: Clock
    source: str = ""
    error: float = 1.0


@dataclass
class Result:
    """`true_ms`: milliseconds of each round, without the noise of timing."""

    outcomes: list[RoundOutcome] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    true_ms: list[float] = field(default_factory=list)

    def goodput(self, first: int = 0, last: int | None = None) -> float:
        """Tokens per millisecond, without noise."""
        tokens = sum(o.num_tokens for o in self.outcomes[first:last])
        return tokens / sum(self.true_ms[first:last])

    @property
    def lengths(self) -> list[int]:
        return [choice.length for choice in self.choices]


@dataclass
class World:
    """`verify(n)`: milliseconds of a pass over n nodes; `overhead`: milliseconds of a round outside
    passes; `pace(round)` multiplies every cost; `noise`: the standard deviation of a timing's
    logarithm."""

    drafters: tuple[Simulated, ...]
    verify: Callable[[int], float]
    noise: float = 0.1
    seed: int = 1
    overhead: float = 0.2
    pace: Clock = constant(1.0)

    def __post_init__(self) -> None:
        self._rights: dict[tuple[str, int], float] = {}

    def costs(self) -> Costs:
        table = {n: self.verify(n) for n in (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64)}
        return Costs(cast(Any, None), VerifyCosts(table, 64))

    def right(self, drafter: Simulated, position: int) -> bool:
        key = (drafter.source or drafter.name, position)
        if key not in self._rights:
            self._rights[key] = random.Random(f"{self.seed} {key}").random()
        return self._rights[key] < drafter.chance(position)

    # -- one round --

    def round(
        self, number: int, position: int, choice: Choice, timing: random.Random
    ) -> tuple[RoundOutcome, float]:
        """The round's outcome, and the round's milliseconds without noise."""
        spent: list[float] = []
        expected = [
            d for d in self.drafters if choice.drafters is None or d.name in choice.drafters
        ]
        drafts = {}
        for drafter in expected if choice.length else []:
            scores = self._scores_of(drafter, position, choice)
            if scores:
                drafts[drafter.name] = (drafter, scores)
        rights = {name: self._num_right(d, position, len(s)) for name, (d, s) in drafts.items()}
        own, kept, accepted = self._merge(drafts, rights, choice.stop)
        nodes, widths = len(kept), Counter(depth for _, _, depth in kept)

        def add_time(ms: float) -> float:
            spent.append(ms * self.pace(number))
            spike = 5.0 if timing.random() < 0.02 and self.noise else 1.0
            return spent[-1] * timing.lognormvariate(0, self.noise) * spike

        outcomes, before = {}, 0
        for name, (drafter, scores) in drafts.items():
            start = add_time(drafter.start(number))
            rest = sum(add_time(drafter.step(number)) for _ in scores[1:])
            reached = min(rights[name], accepted + 1)
            outcomes[name] = DraftOutcome(
                ms=start + rest, steps=len(scores) - 1, depths=tuple(range(1, len(scores) + 1)),
                path=tuple(range(reached)),
                credit=max(0, min(reached, accepted) - before), start_ms=start,
                num_verified=own[name],
            )  # fmt: skip
            before = max(before, min(reached, accepted))
        verify_ms = add_time(self.verify(nodes))
        drafting = sum(o.ms for o in outcomes.values())
        overhead_ms = add_time(self.overhead)
        outcome = RoundOutcome(
            length=choice.length,
            num_tokens=accepted + 1,
            num_nodes=nodes,
            verify_ms=verify_ms,
            round_ms=verify_ms + drafting + overhead_ms,
            drafts=outcomes,
            context=64 + position,
            widths=tuple(widths[depth + 1] for depth in range(len(widths))),
        )
        return outcome, sum(spent)

    def _scores_of(self, drafter: Simulated, position: int, choice: Choice) -> list[float]:
        stop, scores, chance = choice.stop, list[float](), 1.0
        while len(scores) < choice.length:
            if scores and stop and not stop.grows(scores[-1]):
                break
            if stop and not stop.continues(drafter.name, len(scores) + 1, [chance]):
                break
            scores.append(drafter.chance(position + len(scores)) ** drafter.error)
            chance *= scores[-1]
        return scores

    def _num_right(self, drafter: Simulated, position: int, drafted: int) -> int:
        depth = 0
        while depth < drafted and self.right(drafter, position + depth):
            depth += 1
        return depth

    def _merge(
        self,
        drafts: Mapping[str, tuple[Simulated, list[float]]],
        rights: Mapping[str, int],
        stop: Stop | None,
    ) -> tuple[Counter[str], set[tuple[str, int, int]], int]:
        kept: set[tuple[str, int, int]] = set()
        own: Counter[str] = Counter()
        for name, (drafter, scores) in drafts.items():
            for depth, chance in enumerate(_products(scores), 1):
                if stop and not stop.keeps(chance):
                    break
                wrong = depth > rights[name]
                source = (drafter.source or name) if wrong else ""
                kept.add((source, rights[name] if wrong else 0, depth))
                own[name] += 1
        return own, kept, max((depth for source, _, depth in kept if not source), default=0)


def _products(scores: Iterable[float]) -> list[float]:
    products, product = [], 1.0
    for score in scores:
        product *= score
        products.append(product)
    return products


def config_of(world: World, **fields: Any) -> SpeculationConfig:
    names = tuple(drafter.name for drafter in world.drafters)
    defaults = {
        "drafters": names,
        "expansion": (1,),
        "max_tree_nodes": "uncut",
        "length": "goodput",
    }
    return SpeculationConfig(**{**defaults, **fields})


def simulate(
    world: World, tokens: int, policy: LengthPolicy | None = None, costs: Costs | None = None
) -> Result:
    policy = policy or make_policy(config_of(world), costs or world.costs())
    timing, result, position = random.Random(f"{world.seed} timing"), Result(), 0
    while position < tokens:
        choice = policy.choose()
        outcome, true_ms = world.round(len(result.choices), position, choice, timing)
        policy.observe(outcome)
        result.choices.append(choice)
        result.outcomes.append(outcome)
        result.true_ms.append(true_ms)
        position += outcome.num_tokens
    return result


def run_fixed(world: World, tokens: int, length: int) -> Result:
    config = config_of(world, length="fixed", speculation_length=length)
    return simulate(world, tokens, make_policy(config, world.costs()))


def best_fixed(world: World, tokens: int, longest: int = 12) -> tuple[int, float]:
    results = {length: run_fixed(world, tokens, length).goodput() for length in range(longest + 1)}
    best = max(results, key=lambda length: results[length])
    return best, results[best]
