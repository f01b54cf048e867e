"""`python -m zoo evaluate --llm ... --ssm ...`: whether SSMs are worth using with an LLM, here.

Of each SSM a chain is measured once, long; from it the best length is predicted, and what that
brings; then both are measured against the LLM alone, one prompt after another, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from core import checks
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine import Engine
from core.errors import ConfigError
from core.events import RoundCompleted, RunCompleted
from zoo.prompts import rows_of

__all__ = [
    "LONGEST",
    "Asked",
    "Clock",
    "Round",
    "Worth",
    "as_json",
    "judged",
    "prompts_of",
    "table",
    "tokens_per_pass",
]

LONGEST = 8
"""Tokens of the chain from which the best length is predicted."""
OTHERS = ("combine", "llm", "verify", "commit")  # lanes that are no drafter's
TOGETHER = "all, `best`"
WORTH = 1.05  # a gain below is hardly felt


@dataclass(frozen=True, slots=True)
class Asked:
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

    def mean(self, part: str) -> float:
        """Median milliseconds of a part; 0 where there was no round."""
        found: list[float] = [getattr(one, part) for one in self.rounds]
        return median(found or [0.0])

    @property
    def tokens_per_pass(self) -> float:
        """1 and what was accepted."""
        return 1.0 + sum(one.accepted for one in self.rounds) / max(len(self.rounds), 1)

    def expected(self, length: int) -> float:
        """Tokens of a round whose chain is cut to `length`."""
        kept = sum(min(one.accepted, length) for one in self.rounds)
        return 1.0 + kept / max(len(self.rounds), 1)


@dataclass(frozen=True, slots=True)
class Worth:
    """Of one SSM, or of all together (`length` 0: it changes by itself). `acceptance`: the share of
    first drafted tokens that the LLM takes; `tokens_per_pass` of a chain of LONGEST; `cost`: an
    SSM's pass over the LLM's; `predicted` and `measured`: how many times as fast as the LLM alone.
    """

    name: str
    acceptance: float | None
    tokens_per_pass: float
    cost: float | None
    length: int
    predicted: float | None
    measured: float


def judged(engine: Engine, asked: Asked, say: Callable[[str], None]) -> list[Worth]:
    """Every SSM of the engine by itself, then all of them as the preset `best` uses them."""
    names = list(engine.models.ssms)
    if not names:
        raise ConfigError.of("ssm", 0, "one SSM or more")
    plain = SpeculationConfig.preset("autoregressive", asked.temperature)
    say("the LLM alone")
    alone = _clocked(engine, asked, {"": plain})[""]
    long = {}
    for name in names:
        say(f"{name}, chains of {LONGEST}")
        long[name] = _clocked(engine, asked, {name: _chain(plain, name, LONGEST)})[name]
    lengths = {name: _best_length(engine, alone, clock) for name, clock in long.items()}
    say("all in turn")
    contest = {"": plain, TOGETHER: SpeculationConfig.preset("best", asked.temperature)}
    contest |= {name: _chain(plain, name, lengths[name][0]) for name in names}
    found = _clocked(engine, asked, contest, asked.repeats)
    measured = {name: _ratio(clock, found[""]) for name, clock in found.items()}
    return [
        *(_of(name, long[name], alone, *lengths[name], measured[name]) for name in names),
        Worth(TOGETHER, None, found[TOGETHER].tokens_per_pass, None, 0, None, measured[TOGETHER]),
    ]


def tokens_per_pass(engine: Engine, name: str, asked: Asked) -> float:
    """Of one SSM's chains of LONGEST, as the engine makes them."""
    plain = SpeculationConfig.preset("autoregressive", asked.temperature)
    chains = {name: _chain(plain, name, LONGEST)}
    return _clocked(engine, asked, chains)[name].tokens_per_pass


def _of(
    name: str, clock: Clock, alone: Clock, length: int, predicted: float, measured: float
) -> Worth:
    step = clock.mean("further") / (LONGEST - 1)
    return Worth(
        name=name,
        acceptance=clock.expected(1) - 1.0,
        tokens_per_pass=clock.tokens_per_pass,
        cost=step / max(alone.mean("llm"), 1e-9),
        length=length,
        predicted=predicted,
        measured=measured,
    )


def _best_length(engine: Engine, alone: Clock, clock: Clock) -> tuple[int, float]:
    """The chain that is to gain most, and how many times the LLM alone it is to be."""
    plain = alone.mean("llm") + alone.mean("rest")
    step, first, rest = (
        clock.mean("further") / (LONGEST - 1),
        clock.mean("first"),
        clock.mean("rest"),
    )
    verify = engine.costs.verify.curve(LONGEST)
    gains = {}
    for length in range(1, LONGEST + 1):
        llm = alone.mean("llm") * verify[length] / max(verify[0], 1e-9)
        cost = llm + first + step * (length - 1) + rest
        gains[length] = clock.expected(length) * plain / max(cost, 1e-9)
    best = max(gains, key=lambda length: gains[length])
    return best, gains[best]


def _chain(plain: SpeculationConfig, name: str, length: int) -> SpeculationConfig:
    """A draft of one SSM in each round."""
    return replace(
        plain, drafters=(name,), expansion=(1,), length="fixed", speculation_length=length,
        max_tree_nodes="uncut",
    )  # fmt: skip


def _clocked(
    engine: Engine, asked: Asked, contest: Mapping[str, SpeculationConfig], repeats: int = 1
) -> dict[str, Clock]:
    """Prompt by prompt every configuration in turn."""
    clocks = {name: Clock() for name in contest}
    for repeat in range(-1, repeats):  # the first is a warm-up of one prompt
        for number, prompt in enumerate(asked.prompts if repeat >= 0 else asked.prompts[:1]):
            for name, speculation in contest.items():
                sampling = SamplingParams(
                    max_new_tokens=asked.tokens,
                    temperature=asked.temperature,
                    seed=1000 + 100 * max(repeat, 0) + number,
                    ignore_eos=True,
                )
                clock = clocks[name] if repeat >= 0 else Clock()
                _run(engine, Request(prompt, sampling, speculation), clock)
    return clocks


def _run(engine: Engine, request: Request, clock: Clock) -> None:
    last, left = None, request.sampling.max_new_tokens
    for event in engine.generate(request):
        if isinstance(event, RoundCompleted):
            if last is not None and left > LONGEST:
                clock.rounds.append(_round(event, event.at_ms - last))
            last, left = event.at_ms, left - len(event.token_ids)
        elif isinstance(event, RunCompleted):
            clock.rates.append(event.stats.tokens_per_second)


def _round(event: RoundCompleted, whole: float) -> Round:
    llm = sum(s.ms for s in event.spans if s.lane == "llm")
    drafting = [s for s in event.spans if s.lane not in OTHERS]
    first = sum(s.ms for s in drafting if s.name != "draft")
    further = sum(s.ms for s in drafting if s.name == "draft")
    return Round(llm, first, further, whole - llm - first - further, event.num_accepted)


def _ratio(clock: Clock, alone: Clock) -> float:
    """The median over prompts and repeats."""
    return median([a / max(b, 1e-9) for a, b in zip(clock.rates, alone.rates, strict=True)])


# -- showing --


def prompts_of(path: Path, count: int) -> list[str]:
    """So many of a file of JSON lines with a `prompt` each, spread over it. ConfigError for another
    file."""
    checks.integer("count", count, 1, 10_000)
    found = [row["prompt"] for row in rows_of(path, "prompt")]
    step = max(1, len(found) // count)
    return found[::step][:count]


def table(found: Sequence[Worth]) -> list[str]:
    """A line an SSM, then a sentence on each."""
    head = ("SSM", "accepted", "tokens/pass", "cost", "length", "predicted", "measured")
    rows = [head, *(_cells(one) for one in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return [*(line.rstrip() for line in lines), "", *(_sentence(one) for one in found)]


def _cells(one: Worth) -> tuple[str, ...]:
    return (
        one.name,
        "" if one.acceptance is None else f"{one.acceptance:.0%}",
        f"{one.tokens_per_pass:.2f}",
        "" if one.cost is None else f"{one.cost:.2f}",
        str(one.length or "auto"),
        "" if one.predicted is None else f"{one.predicted:.2f}x",
        f"{one.measured:.2f}x",
    )


def _sentence(one: Worth) -> str:
    how = f"chains of {one.length}" if one.length else "lengths that change by themselves"
    verdict = "worth using here" if one.measured >= WORTH else "not worth using here"
    if 1.0 <= one.measured < WORTH:
        verdict = "hardly worth using here"
    return f"{one.name}: {verdict}: with {how} {one.measured:.2f} times as fast as the LLM alone."


def as_json(found: Sequence[Worth], asked: Asked) -> dict[str, Any]:
    """The same as plain values."""
    settings = {name: getattr(asked, name) for name in ("tokens", "temperature", "repeats")}
    return settings | {"prompts": len(asked.prompts), "pairs": [asdict(one) for one in found]}
