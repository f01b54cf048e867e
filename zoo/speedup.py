"""`python -m zoo evaluate --llm ... --ssm ...`: how much faster an LLM is with SSMs on this
machine.

Long chains of each SSM are timed to predict the best chain length and its speedup. Then every SSM
with its best length, and all SSMs together, are measured against the LLM alone, in turn on each
prompt.
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
from zoo.prompts import rows_of
from zoo.result_cache import NO_CACHE, ResultCache
from zoo.round_times import LONGEST, RoundTimes, Workload, time_runs

__all__ = [
    "Speedup",
    "as_json",
    "measure_speedups",
    "prompts_of",
    "table",
    "tokens_per_pass",
]

TOGETHER = "all, `best`"
RatioInterval = tuple[float, float | None, float | None]
"""A ratio, and the ends of its interval; the ends are None for a single prompt."""
NOTICEABLE = 1.05  # an SSM with a smaller speedup is hardly worth using


@dataclass(frozen=True, slots=True)
class Speedup:
    """The speed-up by one SSM, or by all SSMs together. `acceptance`: the share of first drafted
    tokens that the LLM accepts. `tokens_per_pass`: with chains of LONGEST tokens; for all SSMs
    together, with the preset `best`. `cost`: the time of an SSM pass divided by the time of an LLM
    pass. `length`: the best chain length; 0 for all SSMs together, whose length adapts.
    `predicted`, `measured`: the speed divided by the speed of the LLM alone. `low`, `high`: the
    ends of the 95 % interval of `measured` over prompts, None for a single prompt. `acceptance`,
    `cost` and `predicted` are None for all SSMs together.
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


def measure_speedups(
    engine: Engine, workload: Workload, say: Callable[[str], None], cache: ResultCache = NO_CACHE
) -> list[Speedup]:
    """The speedup by each SSM of the engine, then by all SSMs together."""
    names = list(engine.models.ssms)
    if not names:
        raise ConfigError.of("ssm", 0, "one SSM or more")
    plain = SpeculationConfig.preset("autoregressive", workload.temperature)
    say("the LLM alone")
    alone = time_runs(engine, workload, {"": plain}, cache=cache.subcache("alone"))[""]
    chain_times = {}
    for number, name in enumerate(names):
        say(f"{name}, chains of {LONGEST}")
        chains = {name: _chain(plain, name, LONGEST)}
        results = time_runs(engine, workload, chains, cache=cache.subcache(f"long-{number}"))
        chain_times[name] = results[name]

    def best_lengths() -> list[tuple[int, float]]:
        return [_best_length(engine, alone, own) for own in chain_times.values()]

    # Cached, since passes that are timed again after an interruption might give other lengths.
    lengths: dict[str, tuple[int, float]] = dict(
        zip(names, cache.get_or_compute("lengths", best_lengths), strict=True)
    )
    say("all in turn")
    contest = {"": plain, TOGETHER: SpeculationConfig.preset("best", workload.temperature)}
    contest |= {name: _chain(plain, name, lengths[name][0]) for name in names}
    times = time_runs(engine, workload, contest, workload.repeats, cache.subcache("contest"))
    count = len(workload.prompts)
    ratios = {name: _ratio(own, times[""], count) for name, own in times.items()}
    together = times[TOGETHER].tokens_per_pass
    return [
        *(_speedup(name, chain_times[name], alone, *lengths[name], ratios[name]) for name in names),
        Speedup(TOGETHER, None, together, None, 0, None, *ratios[TOGETHER]),
    ]


def tokens_per_pass(engine: Engine, name: str, workload: Workload) -> float:
    """Tokens per LLM pass with one SSM's chains of LONGEST tokens, measured with the engine."""
    plain = SpeculationConfig.preset("autoregressive", workload.temperature)
    chains = {name: _chain(plain, name, LONGEST)}
    return time_runs(engine, workload, chains)[name].tokens_per_pass


def _speedup(
    name: str,
    own: RoundTimes,
    alone: RoundTimes,
    length: int,
    predicted: float,
    measured: RatioInterval,
) -> Speedup:
    step = own.median_ms("further") / (LONGEST - 1)
    return Speedup(
        name=name,
        acceptance=own.expected_tokens(1) - 1.0,
        tokens_per_pass=own.tokens_per_pass,
        cost=step / max(alone.median_ms("llm"), 1e-9),
        length=length,
        predicted=predicted,
        measured=measured[0],
        low=measured[1],
        high=measured[2],
    )


def _best_length(engine: Engine, alone: RoundTimes, own: RoundTimes) -> tuple[int, float]:
    """The chain length with the highest predicted speedup, and that speedup:
    E[tokens](l) x ms per plain token / (LLM pass over l + 1 tokens + drafting + rest)."""
    plain = alone.median_ms("llm") + alone.median_ms("rest")
    step, first, rest = (
        own.median_ms("further") / (LONGEST - 1),
        own.median_ms("first"),
        own.median_ms("rest"),
    )
    # Times of an LLM pass by number of drafted tokens, measured by the engine.
    verify = engine.costs.verify.curve(LONGEST)
    gains = {}
    for length in range(1, LONGEST + 1):
        llm = alone.median_ms("llm") * verify[length] / max(verify[0], 1e-9)
        cost = llm + first + step * (length - 1) + rest
        gains[length] = own.expected_tokens(length) * plain / max(cost, 1e-9)
    best = max(gains, key=lambda length: gains[length])
    return best, gains[best]


def _chain(plain: SpeculationConfig, name: str, length: int) -> SpeculationConfig:
    return replace(
        plain, drafters=(name,), expansion=(1,), length="fixed", speculation_length=length,
        max_tree_nodes="uncut",
    )  # fmt: skip


def _ratio(own: RoundTimes, alone: RoundTimes, num_prompts: int) -> RatioInterval:
    """The median ratio of the rates, over prompts and repeats, with its interval."""
    # Rates are ordered by repeat, then by prompt: every `num_prompts`-th rate is of the same
    # prompt.
    ratios = [a / max(b, 1e-9) for a, b in zip(own.rates, alone.rates, strict=True)]
    result = estimate([ratios[number::num_prompts] for number in range(num_prompts)], middle)
    assert result is not None
    return (
        (result.value, result.low, result.high) if result.groups > 1 else (result.value, None, None)
    )


# -- showing --


def prompts_of(path: Path, count: int) -> list[str]:
    """At most `count` prompts, evenly spaced in a file of JSON lines that each have a `prompt`.
    Raises ConfigError for a file of another kind."""
    checks.integer("count", count, 1, 10_000)
    prompts = [row["prompt"] for row in rows_of(path, "prompt")]
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def table(speedups: Sequence[Speedup]) -> list[str]:
    """A table with a row for each of the `speedups`, then a sentence about each."""
    head = ("SSM", "accepted", "tokens/pass", "cost", "length", "predicted", "measured")
    rows = [head, *(_cells(one) for one in speedups)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return [*(line.rstrip() for line in lines), "", *(_sentence(one) for one in speedups)]


def _cells(one: Speedup) -> tuple[str, ...]:
    return (
        one.name,
        "" if one.acceptance is None else f"{one.acceptance:.0%}",
        f"{one.tokens_per_pass:.2f}",
        "" if one.cost is None else f"{one.cost:.2f}",
        str(one.length or "auto"),
        "" if one.predicted is None else f"{one.predicted:.2f}x",
        f"{one.measured:.2f}x" + ("" if one.low is None else f" ({one.low:.2f} to {one.high:.2f})"),
    )


def _sentence(one: Speedup) -> str:
    lengths = f"chains of {one.length}" if one.length else "lengths that change by themselves"
    return (
        f"{one.name}: {_verdict(one)}: with {lengths} {one.measured:.2f} times as fast as the LLM "
        "alone."
    )


def _verdict(one: Speedup) -> str:
    if one.low is None or one.high is None:
        return "not decided by one prompt"
    if one.low > 1.0:
        return "worth using here" if one.measured >= NOTICEABLE else "hardly worth using here"
    return "not worth using here" if one.high < NOTICEABLE else "not decided by these prompts"


def as_json(rows: Sequence[Speedup], workload: Workload) -> dict[str, Any]:
    """The rows and the workload's settings as plain values."""
    settings = {name: getattr(workload, name) for name in ("tokens", "temperature", "repeats")}
    return settings | {"prompts": len(workload.prompts), "pairs": [asdict(one) for one in rows]}
