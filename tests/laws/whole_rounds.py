"""Every outcome of whole rounds of the engine, with its exact probability."""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core import Engine, LoadedModels, SamplingParams, SpeculationConfig
from core.engine import round as round_module
from core.engine.round import verify_input
from core.engine.round_state import RoundState
from core.events import RoundCompleted
from core.sequence import TokenSequence
from core.trees.noise import Noise
from core.trees.verify import Verdict
from tests.fakes import TableModel, loaded_tables, sequence_of
from tests.laws.enumeration import WalkNoise, every_walk

END = -1
"""Padding after the end of a text: a joint distribution has a fixed number of tokens."""


@dataclass(frozen=True)
class _Way:
    """An outcome of verification; `probability`: given the drafts."""

    probability: float
    tokens: tuple[int, ...]
    accepted: int


class _Thorough(Engine):
    """Verifies the drafts of a `last` round in every possible way."""

    last = False
    ways: tuple[_Way, ...] = ()

    def __init__(self, models: LoadedModels) -> None:
        super().__init__(models)
        self._decide = self._steps.forward_and_verify
        self._steps.forward_and_verify = self._decide_in_every_way  # type: ignore[method-assign]

    def _decide_in_every_way(self, states: Sequence[RoundState]) -> None:
        if not self.last:
            return self._decide(states)
        (state,) = states
        sequence = state.request.sequence
        noise = sequence.noise
        sequence.noise = noise.fork()
        self._decide(states)
        sequence.noise = noise
        inputs, rule = verify_input(state), sequence.speculation.verify
        walks = every_walk(
            lambda walk: round_module.verify(rule, replace(inputs, noise=walk)), kind=noise.fork
        )
        self.ways = tuple(
            _Way(walk.probability, _new_tokens(state, verdict), len(verdict.path))
            for walk, verdict in walks
        )


def _new_tokens(state: RoundState, verdict: Verdict) -> tuple[int, ...]:
    sequence = copy.copy(state.request.sequence)
    sequence.tokens = list(sequence.tokens)
    own = () if verdict.own_token_id is None else (verdict.own_token_id,)
    sequence.commit((*(state.tree.token_ids[node] for node in verdict.path), *own))
    return tuple(sequence.tokens[len(sequence.prompt_ids) :])


@dataclass
class EnumeratedCase:
    llm: TableModel
    ssms: Sequence[TableModel]
    speculation: SpeculationConfig
    sampling: SamplingParams = field(
        default_factory=lambda: SamplingParams(temperature=1.0, seed=0, max_new_tokens=50)
    )
    prompt_ids: tuple[int, ...] = (0, 1, 2, 0)
    eos_ids: tuple[int, ...] = ()
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        tables = loaded_tables(self.llm, self.ssms, self.eos_ids, self.counts)
        self.engine = _Thorough(tables)

    def rounds(self, noise: Noise, count: int, *, ways: bool = False) -> "_End":
        """`ways`: whether to verify the last round in every possible way."""
        live = self.engine.admit(self._sequence(noise))
        try:
            for _ in self.engine.prefill(live):
                pass
            lengths: list[int] = []
            self.engine.ways = ()
            while len(lengths) < count and not live.sequence.finish_reason:
                self.engine.last = ways and len(lengths) == count - 1
                lengths += [
                    len(event.token_ids)
                    for event in self.engine.round([live])
                    if isinstance(event, RoundCompleted)
                ]
            return self._end(live.sequence, tuple(lengths))
        finally:
            self.engine.release(live)

    def _sequence(self, noise: Noise) -> TokenSequence:
        names = tuple(model.info.name for model in self.ssms)
        speculation = self.speculation
        if speculation.drafters == ("all",):
            speculation = replace(speculation, drafters=names)
        return sequence_of(
            self.prompt_ids, speculation, self.sampling, noise, eos_ids=frozenset(self.eos_ids),
            context_length=self.llm.context_length,
        )  # fmt: skip

    def _end(self, sequence: TokenSequence, lengths: tuple[int, ...]) -> "_End":
        models = (self.llm, *self.ssms)
        kept = tuple(model.tokens(row) for model in models for row in model.open_rows)
        tokens = tuple(sequence.tokens[len(self.prompt_ids) :])
        ways = self.engine.ways or (_Way(1.0, tokens, 0),)
        assert ways[0].tokens == tokens, "the round continues with the first outcome"
        return _End(tokens, bool(sequence.finish_reason), kept, lengths, ways)


@dataclass(frozen=True)
class _End:
    """`kept`: the tokens in each model's open cache rows. Equal `state`s have equal futures."""

    tokens: tuple[int, ...]
    finished: bool
    kept: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    ways: tuple[_Way, ...]

    @property
    def state(self) -> tuple[Any, ...]:
        return self.tokens, self.finished, self.kept


Joint = Mapping[tuple[int, ...], float]


def joint_of_rounds(case: EnumeratedCase, rounds: int, count: int) -> Joint:
    """The joint distribution of the first `count` new tokens after 1 or 2 rounds. The second round
    is enumerated once from each `state` after the first."""
    if rounds == 1:
        return joint_of_walks(case, 1, count, WalkNoise)
    states: dict[Any, tuple[float, WalkNoise, _End]] = {}
    for noise, end in every_walk(lambda noise: case.rounds(noise, 1)):
        mass, first, _ = states.get(end.state, (0.0, noise, end))
        states[end.state] = (mass + noise.probability, first, end)
    emitted: dict[tuple[int, ...], float] = defaultdict(float)
    for mass, first, end in states.values():
        if end.finished:
            emitted[end.tokens] += mass
            continue
        script = [taken for taken, _ in first.branches]
        for noise, last in every_walk(lambda noise: case.rounds(noise, 2, ways=True), script):
            for way in last.ways:
                share = noise.probability / first.probability
                emitted[way.tokens] += mass * share * way.probability
    return _complete(case, emitted, count)


def joint_of_walks(
    case: EnumeratedCase, rounds: int, count: int, kind: Callable[[Sequence[int]], WalkNoise]
) -> Joint:
    """Each walk goes through all rounds, since the noise's answers may depend on earlier
    answers."""
    emitted: dict[tuple[int, ...], float] = defaultdict(float)
    for noise, end in every_walk(lambda noise: case.rounds(noise, rounds, ways=True), kind=kind):
        for way in end.ways:
            emitted[way.tokens] += noise.probability * way.probability
    return _complete(case, emitted, count)


def expected_accepted(case: EnumeratedCase) -> float:
    """The expected number of accepted tokens in the first round."""
    return sum(
        noise.probability * way.probability * way.accepted
        for noise, end in every_walk(lambda noise: case.rounds(noise, 1, ways=True))
        for way in end.ways
    )


def plain_joint(case: EnumeratedCase, count: int) -> Joint:
    return _complete(case, {(): 1.0}, count)


def _complete(case: EnumeratedCase, emitted: Mapping[tuple[int, ...], float], count: int) -> Joint:
    joint: dict[tuple[int, ...], float] = {}
    for tokens, mass in emitted.items():
        _continue(case, tokens, mass, count, joint)
    return joint


def _continue(
    case: EnumeratedCase, tokens: tuple[int, ...], mass: float, count: int, joint: dict[Any, float]
) -> None:
    ended = any(token in case.eos_ids for token in tokens)
    if ended or len(tokens) >= count:
        padded = (*tokens, *[END] * count)[:count]
        joint[padded] = joint.get(padded, 0.0) + mass
        return
    for token, p in enumerate(_target(case, tokens)):
        if p > 0.0:
            _continue(case, (*tokens, token), mass * p, count, joint)


def _target(case: EnumeratedCase, tokens: tuple[int, ...]) -> list[float]:
    """p by its definition: penalty, temperature, top-k, min-p, then a softmax in float64."""
    sampling, text = case.sampling, (*case.prompt_ids, *tokens)
    scores = case.llm.logits(text).clone()
    for token in set(text) if sampling.repetition_penalty != 1 else ():
        negative, penalty = bool(scores[token] < 0), sampling.repetition_penalty
        scores[token] = scores[token] * penalty if negative else scores[token] / penalty
    scores = scores / sampling.temperature
    if case.sampling.top_k:
        smallest = scores.sort(descending=True).values[case.sampling.top_k - 1]
        scores = scores.masked_fill(scores < smallest, float("-inf"))
    values = scores.double().exp()
    values[values < sampling.min_p * values.max()] = 0.0
    return (values / values.sum()).tolist()


def total_variation(a: Joint, b: Joint) -> float:
    return 0.5 * sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys())
