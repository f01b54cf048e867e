"""`python -m zoo evaluate --llm ... --ssm ...`: whether SSMs are worth using with an LLM, here.

Of each SSM a chain is measured once, long; from it the best length is predicted, and what that
brings; then both are measured against the LLM alone, one prompt after another, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.config import SpeculationConfig, checks
from core.engine.engine import Engine
from core.errors import ConfigError
from lab.figures import estimate, middle
from zoo.clocked import LONGEST, Clock, Workload, clock_runs
from zoo.pieces import UNKEPT, Pieces
from zoo.prompts import rows_of

__all__ = [
    "Worth",
    "as_json",
    "measure_worth",
    "prompts_of",
    "table",
    "tokens_per_pass",
]

TOGETHER = "all, `best`"
Measured = tuple[float, float | None, float | None]
"""A ratio, and the ends of its interval."""
WORTH = 1.05  # a gain below is hardly felt


@dataclass(frozen=True, slots=True)
class Worth:
    """Of one SSM, or of all together (`length` 0: it changes by itself). `acceptance`: the share of
    first drafted tokens that the LLM takes; `tokens_per_pass` of a chain of LONGEST; `cost`: an
    SSM's pass over the LLM's; `predicted` and `measured`: how many times as fast as the LLM alone,
    `low` and `high` the 95 % interval over prompts, None of a single one.
    """

    name: str
    acceptance: float | None
    tokens_per_pass: float
    cost: float | None
    length: int
    predicted: float | None
    measured: float
    low: float | None = None
    high: float | None = None


def measure_worth(
    engine: Engine, workload: Workload, say: Callable[[str], None], pieces: Pieces = UNKEPT
) -> list[Worth]:
    """Every SSM of the engine by itself, then all of them as the preset `best` uses them. `pieces`:
    what was measured of these before."""
    names = list(engine.models.ssms)
    if not names:
        raise ConfigError.of("ssm", 0, "one SSM or more")
    plain = SpeculationConfig.preset("autoregressive", workload.temperature)
    say("the LLM alone")
    alone = clock_runs(engine, workload, {"": plain}, pieces=pieces.part("alone"))[""]
    long = {}
    for number, name in enumerate(names):
        say(f"{name}, chains of {LONGEST}")
        chains = {name: _chain(plain, name, LONGEST)}
        long[name] = clock_runs(engine, workload, chains, pieces=pieces.part(f"long-{number}"))[
            name
        ]

    def best_lengths() -> list[tuple[int, float]]:
        return [_best_length(engine, alone, clock) for clock in long.values()]

    # Pieces too: passes timed in another process would choose others.
    lengths: dict[str, tuple[int, float]] = dict(
        zip(names, pieces.once("lengths", best_lengths), strict=True)
    )
    say("all in turn")
    contest = {"": plain, TOGETHER: SpeculationConfig.preset("best", workload.temperature)}
    contest |= {name: _chain(plain, name, lengths[name][0]) for name in names}
    clocks = clock_runs(engine, workload, contest, workload.repeats, pieces.part("contest"))
    count = len(workload.prompts)
    measured = {name: _ratio(clock, clocks[""], count) for name, clock in clocks.items()}
    together = clocks[TOGETHER].tokens_per_pass
    return [
        *(_of(name, long[name], alone, *lengths[name], measured[name]) for name in names),
        Worth(TOGETHER, None, together, None, 0, None, *measured[TOGETHER]),
    ]


def tokens_per_pass(engine: Engine, name: str, workload: Workload) -> float:
    """Of one SSM's chains of LONGEST, as the engine makes them."""
    plain = SpeculationConfig.preset("autoregressive", workload.temperature)
    chains = {name: _chain(plain, name, LONGEST)}
    return clock_runs(engine, workload, chains)[name].tokens_per_pass


def _of(
    name: str, clock: Clock, alone: Clock, length: int, predicted: float, measured: Measured
) -> Worth:
    step = clock.mean("further") / (LONGEST - 1)
    return Worth(
        name=name,
        acceptance=clock.expected_tokens(1) - 1.0,
        tokens_per_pass=clock.tokens_per_pass,
        cost=step / max(alone.mean("llm"), 1e-9),
        length=length,
        predicted=predicted,
        measured=measured[0],
        low=measured[1],
        high=measured[2],
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
        gains[length] = clock.expected_tokens(length) * plain / max(cost, 1e-9)
    best = max(gains, key=lambda length: gains[length])
    return best, gains[best]


def _chain(plain: SpeculationConfig, name: str, length: int) -> SpeculationConfig:
    """A draft of one SSM in each round."""
    return replace(
        plain, drafters=(name,), expansion=(1,), length="fixed", speculation_length=length,
        max_tree_nodes="uncut",
    )  # fmt: skip


def _ratio(clock: Clock, alone: Clock, num_prompts: int) -> Measured:
    """The median over prompts and repeats; runs are kept repeat by repeat."""
    ratios = [a / max(b, 1e-9) for a, b in zip(clock.rates, alone.rates, strict=True)]
    measured = estimate([ratios[number::num_prompts] for number in range(num_prompts)], middle)
    assert measured is not None
    return (
        (measured.value, measured.low, measured.high)
        if measured.groups > 1
        else (measured.value, None, None)
    )


# -- showing --


def prompts_of(path: Path, count: int) -> list[str]:
    """So many of a file of JSON lines with a `prompt` each, spread over it. ConfigError for another
    file."""
    checks.integer("count", count, 1, 10_000)
    prompts = [row["prompt"] for row in rows_of(path, "prompt")]
    step = max(1, len(prompts) // count)
    return prompts[::step][:count]


def table(worths: Sequence[Worth]) -> list[str]:
    """A line an SSM, then a sentence on each."""
    head = ("SSM", "accepted", "tokens/pass", "cost", "length", "predicted", "measured")
    rows = [head, *(_cells(one) for one in worths)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return [*(line.rstrip() for line in lines), "", *(_sentence(one) for one in worths)]


def _cells(one: Worth) -> tuple[str, ...]:
    return (
        one.name,
        "" if one.acceptance is None else f"{one.acceptance:.0%}",
        f"{one.tokens_per_pass:.2f}",
        "" if one.cost is None else f"{one.cost:.2f}",
        str(one.length or "auto"),
        "" if one.predicted is None else f"{one.predicted:.2f}x",
        f"{one.measured:.2f}x" + ("" if one.low is None else f" ({one.low:.2f} to {one.high:.2f})"),
    )


def _sentence(one: Worth) -> str:
    how = f"chains of {one.length}" if one.length else "lengths that change by themselves"
    return (
        f"{one.name}: {_verdict(one)}: with {how} {one.measured:.2f} times as fast as the LLM "
        "alone."
    )


def _verdict(one: Worth) -> str:
    if one.low is None or one.high is None:
        return "not decided by one prompt"
    if one.low > 1.0:
        return "worth using here" if one.measured >= WORTH else "hardly worth using here"
    return "not worth using here" if one.high < WORTH else "not decided by these prompts"


def as_json(rows: Sequence[Worth], workload: Workload) -> dict[str, Any]:
    """The same as plain values."""
    settings = {name: getattr(workload, name) for name in ("tokens", "temperature", "repeats")}
    return settings | {"prompts": len(workload.prompts), "pairs": [asdict(one) for one in rows]}
