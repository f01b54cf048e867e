"""The contestants, tables and chart figures of the `length` suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from bench.context import Context
from bench.prompts import Prompt, domains
from bench.results import Results
from bench.tables import (
    NOTHING,
    Group,
    Row,
    Table,
    claim_row,
    claims_table,
    figure,
    long_rows,
    ratio,
    speed,
    table,
)
from core.config import SpeculationConfig
from core.config.mechanisms import LENGTH_POLICIES
from core.plurals import number_of
from lab.figures import Estimate

LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8)
GOODPUT = "goodput"
# Without `fixed`, which has a contestant for each of LENGTHS.
OTHERS = tuple(
    name for name, policy in LENGTH_POLICIES.items() if name != GOODPUT and not policy.always
)
POLICIES = (GOODPUT, *OTHERS)
# Node budget of all contestants, large enough not to cut depth.
NODES = 64
# The first length of `trend`, which changes lengths slowly.
TREND_STARTS = 4


def fixed_name(length: int) -> str:
    return f"fixed {length}"


FIXED = tuple(fixed_name(length) for length in LENGTHS)
PLAIN = fixed_name(0)


def contestants() -> Mapping[str, SpeculationConfig]:
    """Plain decoding, a fixed length of 0, comes first."""
    shared = dataclasses.replace(
        SpeculationConfig.preset("best"), pipeline="off", max_tree_nodes=NODES
    )
    fixed_lengths = {
        fixed_name(length): dataclasses.replace(shared, length="fixed", speculation_length=length)
        for length in LENGTHS
    }
    policies = {name: dataclasses.replace(shared, length=name) for name in POLICIES}
    policies["trend"] = dataclasses.replace(policies["trend"], speculation_length=TREND_STARTS)
    return {**fixed_lengths, **policies}


def hopeless_contestants() -> Mapping[str, SpeculationConfig]:
    """For an SSM with negated logits: plain decoding, and `goodput` with this SSM alone."""
    configs = contestants()
    return {
        name: dataclasses.replace(configs[name], drafters=("all",)) for name in (PLAIN, GOODPUT)
    }


BEST, OWN = "best fixed", "the domain's own best fixed"
RIVALS = (BEST, OWN, *OTHERS, PLAIN)
OVERALL = "over all"
# The least ratios of `goodput`'s speed: to the best fixed length in each domain and over all
# domains; with a hopeless SSM, to plain decoding.
EACH_DOMAIN, ALL_DOMAINS, HOPELESS = 0.97, 1.03, 0.97
BASE = "base"  # the name that a rival's rows get in a comparison
LEARNING_PROMPTS = 5  # after this many, an engine has measured that an SSM is hopeless


class LengthContest:
    """The rows of one dtype and temperature."""

    def __init__(self, samples: Iterable[Row], prompts: Sequence[Prompt]) -> None:
        self.rows = long_rows(samples)
        self._chosen: dict[tuple[int, str], str] = {}
        measured = {row["prompt"] for row in self.rows}
        self._domain = {prompt.id: prompt.domain for prompt in prompts}
        self._half = _halves([prompt for prompt in prompts if prompt.id in measured])
        self.domains = tuple(d for d in domains(tuple(prompts)) if self.of("", d).rows)

    def of(self, name: str, domain: str = OVERALL) -> Group:
        """A contestant's rows; all rows if `name` is empty. For BEST and OWN: rows of the fixed
        length that was chosen for the prompt."""
        rows = [row for row in self.rows if domain in (OVERALL, self._domain[row["prompt"]])]
        return Group(
            [r for r in rows if not name or r["contestant"] == self._fixed_name_of(name, r)]
        )

    def against(self, name: str, rival: str, domain: str = OVERALL) -> Estimate | None:
        """The ratio of two speeds for the same prompt and repeat."""
        # The rows of BEST have the names of several fixed lengths.
        base = [{**row, "contestant": BASE} for row in self.of(rival, domain).rows]
        return Group(self.of(name, domain).rows, base).ratio(contestant=BASE)

    def best_fixed(self, half: int, domain: str = OVERALL) -> str:
        """The fixed length with the largest geometric mean of speeds on the prompts of the *other*
        half; empty if there are no such prompts."""
        if (half, domain) not in self._chosen:
            gain: dict[str, float] = {}
            for name in FIXED:
                rows = self.of(name, domain).rows
                speeds = [speed(row) for row in rows if self._half[row["prompt"]] != half]
                if speeds:
                    gain[name] = float(np.mean(np.log(speeds)))
            self._chosen[half, domain] = max(gain, key=lambda name: gain[name], default="")
        return self._chosen[half, domain]

    def lengths(self, name: str) -> list[float]:
        """The mean chosen length by round, for rounds that at least half of the runs reach."""
        runs = [row["lengths"] for row in self.of(name).rows]
        longer_half = sorted((len(run) for run in runs), reverse=True)[: (len(runs) + 1) // 2]
        num_rounds = min(longer_half, default=0)
        return [float(np.mean([run[i] for run in runs if len(run) > i])) for i in range(num_rounds)]

    def _fixed_name_of(self, name: str, row: Row) -> str:
        if name not in (BEST, OWN):
            return name
        prompt = row["prompt"]
        return self.best_fixed(self._half[prompt], self._domain[prompt] if name == OWN else OVERALL)


def contests(
    results: Results, prompts: Sequence[Prompt]
) -> Iterator[tuple[str, float, LengthContest]]:
    """Yields dtype, temperature and contest, for contests with samples. `prompts`: all prompts."""
    keys = [(each["dtype"], each["temperature"]) for each in results.where(part="contest")]
    for dtype, temperature in dict.fromkeys(keys):
        samples = results.where(part="contest", dtype=dtype, temperature=temperature)
        yield dtype, temperature, LengthContest(samples, prompts)


def tables(context: Context) -> tuple[str, ...]:
    texts: list[str] = []
    claims: list[list[str]] = []
    for dtype, temperature, contest in contests(context.results, context.all_prompts):
        where = f"{dtype}, T = {temperature:g}"
        texts += [_contestants(contest, where), _rivals(contest, where)]
        claims += _claims(contest, where)
    for dtype in context.settings.dtypes:
        rows = _rows_by_place(context.results.where(part="hopeless", dtype=dtype))
        if rows:
            texts.append(_hopeless_table(rows, dtype))
            later = Group([row for row in rows if row["place"] >= LEARNING_PROMPTS])
            gain = later.of(contestant=GOODPUT).ratio(contestant=PLAIN)
            name = f"a hopeless SSM / plain decoding, after {LEARNING_PROMPTS} prompts, {dtype}"
            claims.append(claim_row(name, gain, HOPELESS))
    note = f"Medians of ratios within blocks. `{BEST}`: chosen on half of the prompts for the rest."
    return (*texts, claims_table(claims, note))


def _halves(prompts: Sequence[Prompt]) -> dict[str, int]:
    """0 or 1 for each prompt, alternating within each domain."""
    halves: dict[str, int] = {}
    for number, domain in enumerate(domains(tuple(prompts))):
        of_domain = [prompt.id for prompt in prompts if prompt.domain == domain]
        # The domains' first prompts alternate too: with one per domain, both halves have prompts.
        halves |= {name: (number + i) % 2 for i, name in enumerate(of_domain)}
    return halves


def _contestants(contest: LengthContest, where: str) -> str:
    def against_plain(domain: str, group: Group) -> str:
        return ratio(contest.against(group["contestant"], PLAIN, domain))

    def per_round(field: str, group: Group) -> str:
        return f"{sum(sum(row[field]) for row in group.rows) / _rounds(group):.1f}"

    columns: dict[str, Callable[[Group], object]] = {
        "length": lambda group: group["contestant"],
        "tokens/s": lambda group: figure(group.median(), 1),
        f"/ {PLAIN}": partial(against_plain, OVERALL),
        "tokens per pass": lambda group: f"{1 + group.sum('accepted') / _rounds(group):.2f}",
        "chosen length": partial(per_round, "lengths"),
        "depth": partial(per_round, "depths"),
        "nodes": partial(per_round, "nodes"),
        **{domain: partial(against_plain, domain) for domain in contest.domains},
    }
    blocks = len(contest.of(PLAIN).rows)
    note = (
        f"{number_of(blocks, 'block')}; `{PLAIN}` is plain decoding. All other settings are equal. "
        "`chosen length`, `depth` and `nodes` of the trees verified: means over rounds. By domain: "
        f"against `{PLAIN}`."
    )
    title = f"Length policies, {where}"
    return str(Table(title, contest.rows, ("contestant",), columns, note))


def _rounds(group: Group) -> int:
    return sum(len(row["lengths"]) for row in group.rows)


def _rivals(contest: LengthContest, where: str) -> str:
    lines = []
    for domain in (OVERALL, *contest.domains):
        chosen = "" if domain == OVERALL else f" ({', '.join(_choices(contest, domain))})"
        ratios = [ratio(contest.against(GOODPUT, rival, domain)) for rival in RIVALS]
        # RIVALS[1] is OWN.
        ratios[1] = NOTHING if domain == OVERALL else ratios[1] + chosen
        lines.append([domain, *ratios])
    note = f"`{BEST}`: {' and '.join(_choices(contest, OVERALL))}, each chosen on the other half."
    heads = ("prompts", *(f"/ {rival}" for rival in RIVALS))
    return table(f"`{GOODPUT}` against the others, {where}", heads, lines, note)


def _choices(contest: LengthContest, domain: str) -> list[str]:
    return [name for half in (0, 1) if (name := contest.best_fixed(half, domain))]


def _claims(contest: LengthContest, where: str) -> list[list[str]]:
    wanted = [(BEST, domain, EACH_DOMAIN) for domain in contest.domains]
    wanted += [(BEST, OVERALL, ALL_DOMAINS), ("trend", OVERALL, 1.0)]
    return [
        claim_row(
            f"{GOODPUT} / {rival}, {domain}, {where}",
            contest.against(GOODPUT, rival, domain),
            target,
            above=rival == "trend",
        )
        for rival, domain, target in wanted
    ]


def _rows_by_place(samples: Iterable[Row]) -> list[Row]:
    """Rows with `place`: the number of prompts that the engine ran before."""
    return [
        {**row, "place": place, "repeat": sample["repeat"]}
        for sample in samples
        for place, block in enumerate(sample["blocks"])
        for row in long_rows([block])
    ]


def _hopeless_table(rows: Sequence[Row], dtype: str) -> str:
    total = 1 + max(row["place"] for row in rows)
    groups = [(start, min(start + 11, total)) for start in range(LEARNING_PROMPTS, total, 11)]
    lines = []
    for start, end in [(0, min(LEARNING_PROMPTS, total)), (LEARNING_PROMPTS, total), *groups]:
        if in_range := [row for row in rows if start <= row["place"] < end]:
            runs = Group(in_range).of(contestant=GOODPUT)
            depths = [depth for row in runs.rows for depth in row["depths"]]
            num_drafted, accepted = sum(depth > 0 for depth in depths), int(runs.sum("accepted"))
            gain = ratio(runs.ratio(contestant=PLAIN))
            lines.append([f"{start + 1} to {end}", gain, len(depths), num_drafted, accepted])
    note = (
        "One engine, one SSM with negated logits; greedy. Plain "
        "decoding and `goodput` in turn, prompt by prompt."
    )
    heads = ("prompts", f"{GOODPUT} / {PLAIN}", "rounds", "rounds that drafted", "accepted tokens")
    return table(f"A hopeless SSM, {dtype}", heads, lines, note)
