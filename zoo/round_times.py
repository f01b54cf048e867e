"""Times the rounds of an engine's runs; on each prompt all configurations run in turn.

Each run is one cached result.
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
from zoo.result_cache import NO_CACHE, ResultCache

__all__ = ["LONGEST", "Workload", "RoundMs", "RoundTimes", "time_runs"]

LONGEST = 8
"""Tokens of the longest chain that is timed."""
OTHERS = ("combine", "llm", "verify", "commit")  # lanes that do not belong to a drafter


@dataclass(frozen=True, slots=True)
class Workload:
    """The runs to measure. `repeats`: how often each prompt runs when all SSMs are compared."""

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
class RoundMs:
    """Milliseconds of one round: the LLM's pass, the drafter's `first` pass, its `further` passes,
    and the `rest`; and the number of `accepted` drafted tokens."""

    llm: float
    first: float
    further: float
    rest: float
    accepted: int


@dataclass(slots=True)
class RoundTimes:
    """Rounds of several runs. Left out: a run's first round, which includes prefill, and rounds
    with too few tokens left for a complete chain."""

    rounds: list[RoundMs] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # tokens per second of each run

    def add(self, rounds: Sequence[Mapping[str, Any]], rates: Sequence[float]) -> None:
        """Adds the fields of another RoundTimes, as plain values."""
        self.rounds += [RoundMs(**one) for one in rounds]
        self.rates += rates

    def median_ms(self, part: str) -> float:
        """Median milliseconds of a part; 0 if there are no rounds."""
        values: list[float] = [getattr(one, part) for one in self.rounds]
        return median(values or [0.0])

    @property
    def tokens_per_pass(self) -> float:
        """1 + the accepted tokens per round."""
        return 1.0 + sum(one.accepted for one in self.rounds) / max(len(self.rounds), 1)

    def expected_tokens(self, length: int) -> float:
        """Tokens per round if every chain were cut to `length`."""
        accepted = sum(min(one.accepted, length) for one in self.rounds)
        return 1.0 + accepted / max(len(self.rounds), 1)


def time_runs(
    engine: Engine,
    workload: Workload,
    contest: Mapping[str, SpeculationConfig],
    repeats: int = 1,
    cache: ResultCache = NO_CACHE,
) -> dict[str, RoundTimes]:
    """Each configuration's times, by name. `repeats`: how often each prompt runs;
    `workload.repeats` is not read."""
    times = {name: RoundTimes() for name in contest}
    runs = {
        f"{repeat}-{number}-{turn}": (name, _request(workload, repeat, number, speculation))
        for repeat in range(repeats)
        for number in range(len(workload.prompts))
        for turn, (name, speculation) in enumerate(contest.items())
    }
    if not all(map(cache.has, runs)):
        # A warm-up of one prompt, also for resumed work, since the first passes of a process are
        # slower.
        for speculation in contest.values():
            _run(engine, _request(workload, 0, 0, speculation))
    for result, (name, request) in runs.items():
        times[name].add(**cache.get_or_compute(result, partial(_run, engine, request)))
    return times


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
    times, previous_ms, left = RoundTimes(), None, request.sampling.max_new_tokens
    for event in engine.generate(request):
        if isinstance(event, RoundCompleted):
            if previous_ms is not None and left > LONGEST:
                times.rounds.append(_round(event, event.at_ms - previous_ms))
            previous_ms, left = event.at_ms, left - len(event.token_ids)
        elif isinstance(event, RunCompleted):
            times.rates.append(event.stats.tokens_per_second)
    return asdict(times)


def _round(event: RoundCompleted, round_ms: float) -> RoundMs:
    llm = sum(s.ms for s in event.spans if s.lane == "llm")
    drafting = [s for s in event.spans if s.lane not in OTHERS]
    first = sum(s.ms for s in drafting if s.name != "draft")
    further = sum(s.ms for s in drafting if s.name == "draft")
    return RoundMs(llm, first, further, round_ms - llm - first - further, event.num_accepted)
