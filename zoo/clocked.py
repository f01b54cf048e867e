"""Runs of an engine, timed round by round: prompt by prompt every configuration in turn.

Each run is a piece that may be kept; what is gone on with is warmed up anew. Knows nothing of what
the figures are for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import median
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig, checks
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events import RoundCompleted, RunCompleted
from zoo.pieces import UNKEPT, Pieces

__all__ = ["LONGEST", "Workload", "Clock", "Round", "clock_runs"]

LONGEST = 8
"""Tokens of the longest chain that is timed."""
OTHERS = ("combine", "llm", "verify", "commit")  # lanes that are no drafter's


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured: prompts, each continued by `tokens`, at a temperature."""

    prompts: Sequence[str]
    tokens: int = 48
    temperature: float = 0.0
    repeats: int = 2

    def __post_init__(self) -> None:
        checks.integer("tokens", self.tokens, 2 * LONGEST + 2, 100_000)
        checks.integer("repeats", self.repeats, 1, 100)
        checks.number("temperature", self.temperature, 0.0, 10.0)
        if not self.prompts:
            raise ConfigError.of("prompts", 0, "one prompt or more")


@dataclass(frozen=True, slots=True)
class Round:
    """One round's milliseconds: the LLM's pass, the drafter's first pass, those after it, and what
    is left; and how many drafted tokens the LLM took."""

    llm: float
    first: float
    further: float
    rest: float
    accepted: int


@dataclass(slots=True)
class Clock:
    """Rounds of runs, less the first of each, which reads the prompt, and those that had no room
    for a whole chain."""

    rounds: list[Round] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # tokens per second of each run

    def add(self, rounds: Sequence[Mapping[str, Any]], rates: Sequence[float]) -> None:
        """Runs as plain values, `asdict` of another clock."""
        self.rounds += [Round(**one) for one in rounds]
        self.rates += rates

    def mean(self, part: str) -> float:
        """Median milliseconds of a part; 0 where there was no round."""
        values: list[float] = [getattr(one, part) for one in self.rounds]
        return median(values or [0.0])

    @property
    def tokens_per_pass(self) -> float:
        """1 and what was accepted."""
        return 1.0 + sum(one.accepted for one in self.rounds) / max(len(self.rounds), 1)

    def expected_tokens(self, length: int) -> float:
        """Tokens of a round whose chain is cut to `length`."""
        accepted = sum(min(one.accepted, length) for one in self.rounds)
        return 1.0 + accepted / max(len(self.rounds), 1)


def clock_runs(
    engine: Engine,
    workload: Workload,
    contest: Mapping[str, SpeculationConfig],
    repeats: int = 1,
    pieces: Pieces = UNKEPT,
) -> dict[str, Clock]:
    """A clock of each configuration. `pieces`: what was timed of these before."""
    clocks = {name: Clock() for name in contest}
    runs = {
        f"{repeat}-{number}-{place}": (name, _request(workload, repeat, number, speculation))
        for repeat in range(repeats)
        for number in range(len(workload.prompts))
        for place, (name, speculation) in enumerate(contest.items())
    }
    if not all(map(pieces.has, runs)):
        for speculation in contest.values():  # a warm-up of one prompt
            _run(engine, _request(workload, 0, 0, speculation))
    for piece, (name, request) in runs.items():
        clocks[name].add(**pieces.once(piece, partial(_run, engine, request)))
    return clocks


def _request(
    workload: Workload, repeat: int, number: int, speculation: SpeculationConfig
) -> Request:
    sampling = SamplingParams(
        max_new_tokens=workload.tokens,
        temperature=workload.temperature,
        seed=1000 + 100 * repeat + number,
        ignore_eos=True,
    )
    return Request(workload.prompts[number], sampling, speculation)


def _run(engine: Engine, request: Request) -> dict[str, Any]:
    """A clock of this run alone, as plain values."""
    clock, last, left = Clock(), None, request.sampling.max_new_tokens
    for event in engine.generate(request):
        if isinstance(event, RoundCompleted):
            if last is not None and left > LONGEST:
                clock.rounds.append(_round(event, event.at_ms - last))
            last, left = event.at_ms, left - len(event.token_ids)
        elif isinstance(event, RunCompleted):
            clock.rates.append(event.stats.tokens_per_second)
    return asdict(clock)


def _round(event: RoundCompleted, whole: float) -> Round:
    llm = sum(s.ms for s in event.spans if s.lane == "llm")
    drafting = [s for s in event.spans if s.lane not in OTHERS]
    first = sum(s.ms for s in drafting if s.name != "draft")
    further = sum(s.ms for s in drafting if s.name == "draft")
    return Round(llm, first, further, whole - llm - first - further, event.num_accepted)
