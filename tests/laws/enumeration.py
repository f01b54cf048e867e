"""Every outcome of whole production rounds, with its exact probability.

`WalkNoise` answers from a script of branches and notes what else it could have answered;
`every_walk` runs the script through all of them. Two rounds in a row are enumerated as the first
round's leaves, and the second round's from each state of engine and drafters they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from core import Engine, SamplingParams, SpeculationConfig
from core.events import RoundCompleted, Verified
from core.noise import Key
from core.sequence import Sequence as Live
from tests.fakes import TableModel, loaded_tables, sequence_of

__all__ = [
    "Case",
    "WalkNoise",
    "every_walk",
    "expected_accepted",
    "joint_of_rounds",
    "joint_of_walks",
    "plain_joint",
    "total_variation",
]

END = -1
"""Stands behind an end-of-text token in a joint of a fixed number of tokens."""


class KeyAskedTwiceError(AssertionError):
    """Two decisions would share one piece of randomness."""


class WalkNoise:
    """See Noise. Follows `script`, then first answers; `branches` tells (taken, possible)."""

    def __init__(self, script: Sequence[int] = ()) -> None:
        self.script = tuple(script)
        self.branches: list[tuple[int, int]] = []
        self.probability = 1.0
        self.asked: set[Key] = set()

    def coin(self, prob: float, key: Key) -> bool:
        return self._answer(key, [(True, prob), (False, 1.0 - prob)])

    def choose(self, weights: torch.Tensor, key: Key) -> int:
        shares = (weights.double() / weights.double().sum()).tolist()
        return self._answer(key, list(enumerate(shares)))

    def gumbel(self, position: int) -> torch.Tensor:
        raise AssertionError(f"the target's noise at {position} is for `match` alone")

    def _answer(self, key: Key, options: Sequence[tuple[Any, float]]) -> Any:
        if key in self.asked:
            raise KeyAskedTwiceError(f"{key} was asked before")
        self.asked.add(key)
        possible = [(value, prob) for value, prob in options if prob > 0.0]
        step = len(self.branches)
        taken = self.script[step] if step < len(self.script) else 0
        self.branches.append((taken, len(possible)))
        self.probability *= possible[taken][1]
        return possible[taken][0]


def every_walk(
    run: Callable[[WalkNoise], Any],
    prefix: Sequence[int] = (),
    kind: Callable[[Sequence[int]], WalkNoise] | None = None,
) -> Iterator[tuple[WalkNoise, Any]]:
    """Runs `run` once for each way through its choices that begins with `prefix`."""
    script: tuple[int, ...] | None = tuple(prefix)
    while script is not None:
        noise = (kind or WalkNoise)(script)
        yield noise, run(noise)
        script = _next(noise.branches, len(prefix))


def _next(branches: Sequence[tuple[int, int]], fixed: int) -> tuple[int, ...] | None:
    for i in range(len(branches) - 1, fixed - 1, -1):
        taken, possible = branches[i]
        if taken + 1 < possible:
            return (*(t for t, _ in branches[:i]), taken + 1)
    return None


@dataclass
class Case:
    """Tables, a configuration and a prompt: what a law enumerates."""

    llm: TableModel
    ssms: Sequence[TableModel]
    speculation: SpeculationConfig
    sampling: SamplingParams = field(
        default_factory=lambda: SamplingParams(temperature=1.0, seed=0, max_new_tokens=50)
    )
    prompt_ids: tuple[int, ...] = (0, 1, 2, 0)
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.engine = Engine(loaded_tables(self.llm, self.ssms, self.eos_ids))

    def rounds(self, noise: WalkNoise, count: int) -> _End:
        """Runs `count` whole rounds of the production engine."""
        live = self.engine.admit(self._sequence(noise))
        try:
            for _ in self.engine.prefill(live):
                pass
            lengths, accepted = [], []
            for _ in range(count):
                if live.sequence.finish_reason:
                    break
                for event in self.engine.round([live]):
                    if isinstance(event, RoundCompleted):
                        lengths.append(len(event.token_ids))
                    if isinstance(event, Verified):
                        accepted.append(len(event.path))
            sequence = live.sequence
            new = tuple(sequence.tokens[len(self.prompt_ids) :])
            return _End(
                new,
                bool(sequence.finish_reason),
                self._kept(sequence),
                tuple(lengths),
                tuple(accepted),
            )
        finally:
            self.engine.release(live)

    def _sequence(self, noise: WalkNoise) -> Live:
        names = tuple(model.info.name for model in self.ssms)
        asked = self.speculation
        if asked.drafters == ("all",):
            asked = replace(asked, drafters=names)
        return sequence_of(
            self.prompt_ids,
            asked,
            self.sampling,
            noise,
            eos_ids=frozenset(self.eos_ids),
            context_length=self.llm.context_length,
        )

    def _kept(self, sequence: Live) -> tuple[tuple[int, ...], ...]:
        """What every model's rows hold: with the tokens, all that the next round depends on."""
        models = (self.llm, *self.ssms)
        return tuple(model.tokens(row) for model in models for row in model.open_rows)


@dataclass(frozen=True)
class _End:
    """How some rounds ended; equal states have equal futures. Tokens emitted and drafted tokens
    accepted in each round."""

    tokens: tuple[int, ...]
    finished: bool
    kept: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def state(self) -> tuple[Any, ...]:
        return self.tokens, self.finished, self.kept


Joint = Mapping[tuple[int, ...], float]


def joint_of_rounds(case: Case, rounds: int, count: int) -> Joint:
    """The joint distribution of the first `count` new tokens after `rounds` (1 or 2) rounds.

    Where the rounds emitted fewer, plain sampling goes on.
    """
    emitted: dict[tuple[int, ...], float] = {}
    states: dict[Any, tuple[float, tuple[int, ...], _End]] = {}
    for noise, end in every_walk(lambda noise: case.rounds(noise, 1)):
        mass, script, _ = states.get(end.state, (0.0, tuple(t for t, _ in noise.branches), end))
        states[end.state] = (mass + noise.probability, script, end)
    for mass, script, end in states.values():
        if rounds == 1 or end.finished:
            emitted[end.tokens] = emitted.get(end.tokens, 0.0) + mass
            continue
        first = WalkNoise(script)
        case.rounds(first, 1)
        for noise, last in every_walk(lambda noise: case.rounds(noise, 2), script):
            share = mass * noise.probability / first.probability
            emitted[last.tokens] = emitted.get(last.tokens, 0.0) + share
    joint: dict[tuple[int, ...], float] = {}
    for tokens, mass in emitted.items():
        _continue(case, tokens, mass, count, joint)
    return joint


def joint_of_walks(
    case: Case, rounds: int, count: int, kind: Callable[[Sequence[int]], WalkNoise]
) -> Joint:
    """See joint_of_rounds; each walk goes through all rounds, for noises that remember."""
    joint: dict[tuple[int, ...], float] = {}
    for noise, end in every_walk(lambda noise: case.rounds(noise, rounds), kind=kind):
        _continue(case, end.tokens, noise.probability, count, joint)
    return joint


def expected_accepted(case: Case) -> float:
    """How many drafted tokens the first round accepts on average, over every outcome."""
    return sum(
        noise.probability * end.accepted[0]
        for noise, end in every_walk(lambda noise: case.rounds(noise, 1))
    )


def plain_joint(case: Case, count: int) -> Joint:
    """The joint distribution of the first `count` tokens of plain sampling."""
    joint: dict[tuple[int, ...], float] = {}
    _continue(case, (), 1.0, count, joint)
    return joint


def _continue(
    case: Case, tokens: tuple[int, ...], mass: float, count: int, joint: dict[Any, float]
) -> None:
    ended = any(token in case.eos_ids for token in tokens)
    if ended or len(tokens) >= count:
        padded = (*tokens, *[END] * count)[:count]
        joint[padded] = joint.get(padded, 0.0) + mass
        return
    for token, p in enumerate(_target(case, tokens)):
        if p > 0.0:
            _continue(case, (*tokens, token), mass * p, count, joint)


def _target(case: Case, tokens: tuple[int, ...]) -> list[float]:
    """p by its definition: temperature, then the top-k, then a softmax in float64."""
    scores = case.llm.logits((*case.prompt_ids, *tokens)) / case.sampling.temperature
    if case.sampling.top_k:
        smallest = scores.sort(descending=True).values[case.sampling.top_k - 1]
        scores = scores.masked_fill(scores < smallest, float("-inf"))
    values = scores.double().exp()
    return (values / values.sum()).tolist()


def total_variation(a: Joint, b: Joint) -> float:
    """Half the sum of absolute differences."""
    return 0.5 * sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys())
