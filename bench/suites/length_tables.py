"""The tables of the `length` suite, and its figures for the chart. Reads samples, runs nothing.

The best fixed length is chosen on one half of the prompts (each domain split in two) and compared
on the other, both ways round, so that every prompt is compared once and none with a length that it
helped to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.claims import claims_table, judged
from bench.context import Context
from bench.prompts import Prompt, domains
from bench.results import Results
from bench.suites.length_rows import FIXED, GOODPUT, PLAIN, POLICIES
from bench.tables import NOTHING, figure, ratio, table
from lab.figures import Estimate, estimate, middle

__all__ = ["BEST", "Contest", "contests", "tables"]

BEST, OWN = "best fixed", "the domain's own best fixed"
RIVALS = (BEST, OWN, "trend", "confidence", PLAIN)
OVERALL = "over all"
EACH_DOMAIN, ALL_DOMAINS, HOPELESS = 0.97, 1.03, 0.97
APART = 5  # prompts in which an engine gets to know a hopeless SSM
Figures = Mapping[str, dict[str, Any]]


class Contest:
    """The blocks of one dtype and temperature: (prompt id, figures by contestant)."""

    def __init__(self, samples: Iterable[dict[str, Any]], prompts: Sequence[Prompt]) -> None:
        self.blocks = [(sample["prompt"], sample["figures"]) for sample in samples]
        met = {prompt for prompt, _ in self.blocks}
        self._domain = {prompt.id: prompt.domain for prompt in prompts}
        self._half = _halves([prompt for prompt in prompts if prompt.id in met])
        self.domains = tuple(d for d in domains(tuple(prompts)) if self._of(d))

    def speed(self, name: str, domain: str = OVERALL) -> Estimate | None:
        """Tokens per second."""
        groups: dict[str, list[float]] = {}
        for prompt, figures in self._of(domain):
            groups.setdefault(prompt, []).append(_speed(figures[name]))
        return estimate(list(groups.values()), middle)

    def against(self, name: str, rival: str, domain: str = OVERALL) -> Estimate | None:
        """The ratio of two speeds within blocks; either may be one of the best fixed lengths."""
        groups: dict[str, list[float]] = {}
        for prompt, figures in self._of(domain):
            one, other = self._named(name, prompt), self._named(rival, prompt)
            if one and other:
                quotient = _speed(figures[one]) / _speed(figures[other])
                groups.setdefault(prompt, []).append(quotient)
        return estimate(list(groups.values()), middle)

    def chosen(self, half: int, domain: str = OVERALL) -> str:
        """The fixed length that was best, as the mean of log ratios to plain decoding, on the
        prompts of the *other* half; empty where it has none."""
        choosing = [f for p, f in self._of(domain) if self._half[p] != half]
        if not choosing:
            return ""
        gain = {
            name: float(np.mean([np.log(_speed(f[name]) / _speed(f[PLAIN])) for f in choosing]))
            for name in FIXED
        }
        return max(gain, key=lambda name: gain[name])

    def lengths(self, name: str) -> list[float]:
        """The mean chosen length round by round, as far as half of the runs go."""
        runs = [f[self._named(name, prompt) or PLAIN]["lengths"] for prompt, f in self.blocks]
        going = sorted((len(run) for run in runs), reverse=True)[: (len(runs) + 1) // 2]
        longest = min(going, default=0)
        return [float(np.mean([run[i] for run in runs if len(run) > i])) for i in range(longest)]

    def _named(self, name: str, prompt: str) -> str:
        if name not in (BEST, OWN):
            return name
        return self.chosen(self._half[prompt], self._domain[prompt] if name == OWN else OVERALL)

    def _of(self, domain: str) -> list[tuple[str, Figures]]:
        return [
            (prompt, figures)
            for prompt, figures in self.blocks
            if domain in (OVERALL, self._domain[prompt])
        ]


def contests(results: Results, prompts: Sequence[Prompt]) -> Iterator[tuple[str, float, Contest]]:
    """Every contest that has blocks: dtype, temperature, contest. `prompts`: all there are."""
    met = [(each["dtype"], each["temperature"]) for each in results.where(part="contest")]
    for dtype, temperature in dict.fromkeys(met):
        samples = results.where(part="contest", dtype=dtype, temperature=temperature)
        yield dtype, temperature, Contest(samples, prompts)


def tables(context: Context) -> tuple[str, ...]:
    """Everything that can be made of the samples that are there."""
    made: list[str] = []
    claims: list[list[str]] = []
    for dtype, temperature, contest in contests(context.results, context.all_prompts):
        where = f"{dtype}, T = {temperature:g}"
        made += [_contestants(contest, where), _rivals(contest, where)]
        claims += _claims(contest, where)
    for dtype in context.settings.dtypes:
        samples = list(context.results.where(part="hopeless", dtype=dtype))
        if samples:
            made.append(_hopeless(samples, dtype))
            found = _late(samples)
            name = f"a hopeless SSM / plain decoding, behind {APART} prompts, {dtype}"
            claims.append(judged(name, found, HOPELESS))
    note = f"Medians of ratios within blocks. `{BEST}`: chosen on half of the prompts for the rest."
    return (*made, claims_table(claims, note))


def _halves(prompts: Sequence[Prompt]) -> dict[str, int]:
    """0 or 1 for each prompt: every domain is split, and also few prompts of many domains."""
    halves: dict[str, int] = {}
    for number, domain in enumerate(domains(tuple(prompts))):
        of_domain = [prompt.id for prompt in prompts if prompt.domain == domain]
        halves |= {name: (number + i) % 2 for i, name in enumerate(of_domain)}
    return halves


def _speed(figures: Mapping[str, Any]) -> float:
    return float(figures["tokens"] / figures["seconds"])


def _contestants(contest: Contest, where: str) -> str:
    lines = []
    for name in (*FIXED, *POLICIES):
        figures = [each[name] for _, each in contest.blocks]
        rounds = sum(len(f["lengths"]) for f in figures)
        lines.append(
            [
                name,
                figure(contest.speed(name), 1),
                ratio(contest.against(name, PLAIN)),
                f"{1 + sum(f['accepted'] for f in figures) / rounds:.2f}",
                *(f"{_mean(figures, key, rounds):.1f}" for key in ("lengths", "depths", "nodes")),
                *(ratio(contest.against(name, PLAIN, domain)) for domain in contest.domains),
            ]
        )
    heads = ("length", "tokens/s", f"/ {PLAIN}", "tokens per pass", "chosen length", "depth")
    note = (
        f"{len(contest.blocks)} blocks; `{PLAIN}` is plain decoding. All else is alike. `chosen "
        "length`, `depth` and `nodes` of the trees verified: means over rounds. By domain: "
        f"against `{PLAIN}`."
    )
    return table(f"Length policies, {where}", (*heads, "nodes", *contest.domains), lines, note)


def _mean(figures: Sequence[Mapping[str, Any]], key: str, rounds: int) -> float:
    return sum(sum(each[key]) for each in figures) / rounds


def _rivals(contest: Contest, where: str) -> str:
    lines = []
    for domain in (OVERALL, *contest.domains):
        own = "" if domain == OVERALL else f" ({', '.join(_choices(contest, domain))})"
        found = [ratio(contest.against(GOODPUT, rival, domain)) for rival in RIVALS]
        found[1] = NOTHING if domain == OVERALL else found[1] + own
        lines.append([domain, *found])
    note = f"`{BEST}`: {' and '.join(_choices(contest, OVERALL))}, each chosen on the other half."
    heads = ("prompts", *(f"/ {rival}" for rival in RIVALS))
    return table(f"`{GOODPUT}` against the others, {where}", heads, lines, note)


def _choices(contest: Contest, domain: str) -> list[str]:
    return [name for half in (0, 1) if (name := contest.chosen(half, domain))]


def _claims(contest: Contest, where: str) -> list[list[str]]:
    best = f"{GOODPUT} / {BEST}"
    lines = [
        judged(f"{best}, {domain}, {where}", contest.against(GOODPUT, BEST, domain), EACH_DOMAIN)
        for domain in contest.domains
    ]
    lines.append(judged(f"{best}, {OVERALL}, {where}", contest.against(GOODPUT, BEST), ALL_DOMAINS))
    name = f"{GOODPUT} / trend, {OVERALL}, {where}"
    return [*lines, judged(name, contest.against(GOODPUT, "trend"), 1.0, above=True)]


def _hopeless(samples: Sequence[dict[str, Any]], dtype: str) -> str:
    """By fifths of the engine's life, the first prompts apart."""
    most = max(len(sample["blocks"]) for sample in samples)
    later = [(start, min(start + 11, most)) for start in range(APART, most, 11)]
    lines = []
    for start, end in [(0, min(APART, most)), (APART, most), *later]:
        blocks = [block for sample in samples for block in sample["blocks"][start:end]]
        if blocks:
            lines.append([f"{start + 1} to {end}", *_life(blocks)])
    note = (
        "One engine, one SSM whose proposals are the opposite of what it means; greedy. Plain "
        "decoding and `goodput` in turn, prompt by prompt."
    )
    heads = ("prompts", f"{GOODPUT} / {PLAIN}", "rounds", "rounds that drafted", "accepted tokens")
    return table(f"A hopeless SSM, {dtype}", heads, lines, note)


def _life(blocks: Sequence[dict[str, Any]]) -> list[object]:
    figures = [block["figures"][GOODPUT] for block in blocks]
    return [
        ratio(estimate(_hopeless_ratios(blocks), middle)),
        sum(len(f["depths"]) for f in figures),
        sum(sum(depth > 0 for depth in f["depths"]) for f in figures),
        sum(f["accepted"] for f in figures),
    ]


def _late(samples: Sequence[dict[str, Any]]) -> Estimate | None:
    blocks = [block for sample in samples for block in sample["blocks"][APART:]]
    return estimate(_hopeless_ratios(blocks), middle)


def _hopeless_ratios(blocks: Sequence[dict[str, Any]]) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for block in blocks:
        figures = block["figures"]
        quotient = _speed(figures[GOODPUT]) / _speed(figures[PLAIN])
        groups.setdefault(block["prompt"], []).append(quotient)
    return list(groups.values())
