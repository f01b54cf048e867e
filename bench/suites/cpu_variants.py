"""What competes in the `cpu-` suites: our engines, and transformers and llama.cpp on the same
models, with every setting of their speculation that is swept before the best of each kind may.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.context import Context
from bench.ggml.peer import Drafting, LlamaCpp, load_llama_cpp
from bench.theirs import Theirs, load_module
from core.engine.engine import Engine
from core.models.loading.catalog import bundled_ssms

ASSISTED, LOOKUP = "transformers assisted", "transformers prompt lookup"
FAMILIES = (ASSISTED, LOOKUP)
LLAMA_ASSISTED, LLAMA_LOOKUP = "llama.cpp assisted", "llama.cpp prompt lookup"
LLAMA_FAMILIES = (LLAMA_ASSISTED, LLAMA_LOOKUP)
SCHEDULES = ("constant", "heuristic", "heuristic_transient")
COUNTS = (3, 5, 8)
LOOKUP_COUNTS = (3, 5, 10)


@dataclass(frozen=True, slots=True)
class Variant:
    """Assisted generation by one SSM with a schedule (llama.cpp has none), or prompt lookup (no
    SSM, no schedule)."""

    family: str
    count: int
    ssm: str = ""
    schedule: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.family, self.ssm, self.schedule, str(self.count))))

    def options(self, theirs: Theirs, modules: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of transformers' `generate`, with a new assistant model each time."""
        if self.family == LOOKUP:
            return {"prompt_lookup_num_tokens": self.count}
        return {"assistant_model": theirs.assistant(modules[self.ssm], self.schedule, self.count)}

    def drafting(self, llama: LlamaCpp) -> Drafting:
        """This variant's drafter in llama.cpp."""
        if self.family == LLAMA_LOOKUP:
            return llama.lookup(self.count)
        return llama.drafting_with(self.ssm, self.count)


def all_variants(
    ssms: Iterable[str], llama_ssms: Iterable[str] | None = None
) -> tuple[Variant, ...]:
    """Each SSM with each schedule and count, and prompt lookup with each of its counts; llama.cpp's
    (None: it does not compete) without schedules."""
    ways = itertools.product(ssms, SCHEDULES, COUNTS)
    found = [Variant(ASSISTED, count, ssm, schedule) for ssm, schedule, count in ways]
    found += [Variant(LOOKUP, count) for count in LOOKUP_COUNTS]
    if llama_ssms is not None:
        found += [Variant(LLAMA_ASSISTED, count, ssm) for ssm in llama_ssms for count in COUNTS]
        found += [Variant(LLAMA_LOOKUP, count) for count in LOOKUP_COUNTS]
    return tuple(found)


def fastest_of_each_drafter(
    variants: Iterable[Variant], figures: Mapping[str, Mapping[str, float]], count: int
) -> tuple[Variant, ...]:
    """For each family and SSM the settings that were fastest by the `figures` of one prompt: which
    settings suit a drafter depends less on the text than which drafter does. All settings of a
    family without figures, which was not installed then."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.family, variant.ssm), []).append(variant)

    def seconds_a_token(variant: Variant) -> float:
        found = figures[str(variant)]
        return found["seconds"] / found["tokens"]

    def fastest(group: list[Variant]) -> list[Variant]:
        if any(str(variant) not in figures for variant in group):
            return group
        return sorted(group, key=seconds_a_token)[:count]

    return tuple(variant for group in groups.values() for variant in fastest(group))


@dataclass(frozen=True, slots=True)
class Contenders:
    """Our engines over one LLM, by what is to be said of their SSMs (empty where there is one
    engine); transformers with the same LLM, and its assistants by name; llama.cpp with the same
    ones where it is installed, and a sentence about it."""

    engines: Mapping[str, Engine]
    theirs: Theirs
    assistants: Mapping[str, Any]
    llama: LlamaCpp | None = None
    told: str = ""


Summon = Callable[[Context, str], Contenders]
"""Loads the contenders of a dtype."""


def bundled_contenders(context: Context, dtype: str) -> Contenders:
    """The contenders of the bundled family."""
    theirs = Theirs(dtype)
    assistants = {path.name: load_module(path, theirs.dtype) for path in bundled_ssms()}
    peer = load_llama_cpp(theirs.module, assistants)
    return Contenders({"": Engine(context.load(dtype))}, theirs, assistants, *peer)
