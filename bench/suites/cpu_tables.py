"""Contestants on the CPU, and their tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.contestants import TransformersLlm, load_module
from bench.context import Context
from bench.ggml.peer import Drafting, LlamaCpp, load_llama_cpp
from bench.results import Results
from bench.tables import Group, Row, Table, column, figure, group_rows, long_rows, ratio, speed
from core.engine.engine import Engine
from core.models.loading.catalog import bundled_ssms
from core.plurals import number_of

ASSISTED, LOOKUP = "transformers assisted", "transformers prompt lookup"
FAMILIES = (ASSISTED, LOOKUP)
LLAMA_ASSISTED, LLAMA_LOOKUP = "llama.cpp assisted", "llama.cpp prompt lookup"
LLAMA_FAMILIES = (LLAMA_ASSISTED, LLAMA_LOOKUP)
SCHEDULES = ("constant", "heuristic", "heuristic_transient")
COUNTS = (3, 5, 8)
LOOKUP_COUNTS = (3, 5, 10)


@dataclass(frozen=True, slots=True)
class Variant:
    """Assisted generation by one SSM, or prompt lookup without an SSM. `count`: the number of
    drafted tokens, at first. `schedule`: transformers' rule for changing this number."""

    family: str
    count: int
    ssm: str = ""
    schedule: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.family, self.ssm, self.schedule, str(self.count))))

    def options(self, transformers: TransformersLlm, modules: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of transformers' `generate`, with a new copy of the assistant model, if any."""
        if self.family == LOOKUP:
            return {"prompt_lookup_num_tokens": self.count}
        return {
            "assistant_model": transformers.assistant(modules[self.ssm], self.schedule, self.count)
        }

    def llama_drafting(self, llama: LlamaCpp) -> Drafting:
        if self.family == LLAMA_LOOKUP:
            return llama.lookup(self.count)
        return llama.drafting_with(self.ssm, self.count)


def all_variants(
    ssms: Iterable[str], llama_ssms: Iterable[str] | None = None
) -> tuple[Variant, ...]:
    """`llama_ssms`: the SSMs of llama.cpp; None: llama.cpp does not compete."""
    combinations = itertools.product(ssms, SCHEDULES, COUNTS)
    variants = [Variant(ASSISTED, count, ssm, schedule) for ssm, schedule, count in combinations]
    variants += [Variant(LOOKUP, count) for count in LOOKUP_COUNTS]
    if llama_ssms is not None:
        variants += [Variant(LLAMA_ASSISTED, count, ssm) for ssm in llama_ssms for count in COUNTS]
        variants += [Variant(LLAMA_LOOKUP, count) for count in LOOKUP_COUNTS]
    return tuple(variants)


def fastest_of_each_drafter(
    variants: Iterable[Variant], figures: Mapping[str, Mapping[str, float]], count: int
) -> tuple[Variant, ...]:
    """The `count` fastest variants of each drafter (family and SSM), by the `figures` of one
    prompt. If a variant has no figures, its drafter keeps all variants: the library may have been
    missing."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.family, variant.ssm), []).append(variant)

    def seconds_a_token(variant: Variant) -> float:
        measured = figures[str(variant)]
        return measured["seconds"] / measured["tokens"]

    fastest: list[Variant] = []
    for group in groups.values():
        all_measured = all(str(variant) in figures for variant in group)
        fastest += sorted(group, key=seconds_a_token)[:count] if all_measured else group
    return tuple(fastest)


@dataclass(frozen=True, slots=True)
class LoadedContestants:
    """All contestants have the same LLM. `engines`: this project's engines, by a description of
    their SSMs; a single engine has an empty description. `assistants`: SSMs for `transformers`, by
    name. `llama_note`: llama.cpp's version, or why llama.cpp is missing."""

    engines: Mapping[str, Engine]
    transformers: TransformersLlm
    assistants: Mapping[str, Any]
    llama: LlamaCpp | None = None
    llama_note: str = ""


ContestantLoader = Callable[[Context, str], LoadedContestants]


def load_bundled(context: Context, dtype: str) -> LoadedContestants:
    transformers = TransformersLlm(dtype)
    assistants = {path.name: load_module(path, transformers.dtype) for path in bundled_ssms()}
    peer = load_llama_cpp(transformers.module, assistants)
    return LoadedContestants({"": Engine(context.load(dtype))}, transformers, assistants, *peer)


GENERATE = "transformers generate"
PLAIN = "autoregressive"
LLAMA_PLAIN = "llama.cpp plain"


def sweep_figures(
    results: Results, dtype: str, temperature: float
) -> list[dict[str, dict[str, float]]]:
    """One mapping for each prompt: figures by variant."""
    samples = results.where(kind="sweep", dtype=dtype, temperature=temperature)
    return [sample["figures"] for sample in samples]


def best_variant(results: Results, dtype: str, temperature: float, family: str) -> str:
    """The name of a family's fastest variant, by all tokens over all seconds; empty if there is
    none."""
    per_prompt = [
        {name: figure for name, figure in figures.items() if name.startswith(family)}
        for figures in sweep_figures(results, dtype, temperature)
    ]
    prompts = [figures for figures in per_prompt if figures]

    def tokens_per_second(name: str) -> float:
        tokens = sum(figures[name]["tokens"] for figures in prompts)
        return tokens / sum(figures[name]["seconds"] for figures in prompts)

    # A sweep may go on with few variants: only a variant that was run on every prompt counts.
    # Sorted: a tie is always decided in the same way.
    run_on_all = sorted(set[str]().union(*prompts).intersection(*prompts))
    return max(run_on_all, key=tokens_per_second, default="")


def contest_table(
    results: Results, dtype: str, temperature: float, title: str = "", preface: str = ""
) -> str:
    """A row for each contestant; empty without measurements. `title` begins the table's title,
    `preface` its note."""
    samples = list(results.where(kind="block", dtype=dtype, temperature=temperature))
    rows = long_rows(samples)
    if not rows:
        return ""

    def against(base: str, group: Group) -> str:
        return ratio(group.ratio(contestant=base))

    columns: dict[str, Callable[[Group], object]] = {
        "contestant": lambda group: group["contestant"],
        "tokens/s": lambda group: figure(group.median(), 1),
        "tokens/pass": _tokens_a_pass,
        **{f"/ {base}": partial(against, base) for base in _bases(rows)},
    }
    names = {row["contestant"] for row in rows}
    families = [name for name in (*FAMILIES, *LLAMA_FAMILIES) if name in names]
    swept = [best_variant(results, dtype, temperature, family) for family in families]
    best = f"Swept first, the best competes: {', '.join(swept)}. " if swept else ""
    loads = column(results.where(dtype=dtype, temperature=temperature), "load") or [float("nan")]
    note = (
        f"{preface}{number_of(len(samples), 'block')}. Medians; ratios within blocks; 95 % "
        f"intervals over prompts. {best}`{PLAIN}` is this engine's plain decoding. "
        f"{_llama_note(samples)}"
        f"Load average {min(loads):g} to {max(loads):g}."
    )
    return str(Table(f"{title}{dtype}, T = {temperature:g}", rows, ("contestant",), columns, note))


def _tokens_a_pass(group: Group) -> object:
    """All tokens over all passes of the LLM; None for libraries that report no passes."""
    counted = [row for row in group.rows if row.get("passes")]
    if not counted:
        return None
    return f"{sum(row['tokens'] for row in counted) / sum(row['passes'] for row in counted):.2f}"


def _bases(rows: Sequence[Row]) -> Iterable[str]:
    """The contestants with which all are compared: plain decoding of transformers and of this
    engine; then, if they competed, the fastest of transformers' speculation, llama.cpp's plain
    decoding, and the fastest of llama.cpp's contestants."""
    speeds = {
        group["contestant"]: group.middle(speed) for group in group_rows(rows, ("contestant",))
    }
    bases = [GENERATE, PLAIN]
    for first, others in (([], FAMILIES), ([LLAMA_PLAIN], (LLAMA_PLAIN, *LLAMA_FAMILIES))):
        measured = [name for name in others if name in speeds]
        if measured:
            bases += [*first, max(measured, key=lambda name: speeds[name])]
    return dict.fromkeys(bases)


def _llama_note(samples: list[dict[str, Any]]) -> str:
    notes = "".join(
        f"{each} " for each in dict.fromkeys(s.get("llama_note") for s in samples) if each
    )
    shares = [s["figures"].get(LLAMA_PLAIN, {}).get("same") for s in samples]
    same = [share for share in shares if share is not None]
    if not same:
        return notes
    identical = sum(share == 1.0 for share in same)
    return (
        f"{notes}It adds floats in another order: {100 * sum(same) / len(same):.1f} % of its "
        f"plain-decoding token ids equal this engine's; {identical} of {len(same)} blocks are "
        "identical. "
    )
