"""The tables of the `cpu-bundled` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Results
from bench.suites.cpu_variants import FAMILIES, LLAMA_FAMILIES
from bench.tables import figure, ratio, table
from lab.figures import estimate, median, middle
from lab.order import within_blocks

__all__ = ["GENERATE", "LLAMA_PLAIN", "PLAIN", "best_variant", "swept", "tables"]

GENERATE = "transformers generate"
PLAIN = "autoregressive"
LLAMA_PLAIN = "llama.cpp plain"
Speeds = list[tuple[str, dict[str, float]]]


def tables(
    results: Results,
    dtypes: Sequence[str],
    temperatures: Sequence[float],
    title: str = "",
    told: str = "",
) -> tuple[str, ...]:
    """One table a dtype and temperature, as far as there are blocks; `title` begins its title, and
    `told` its note."""
    made = [_one(results, dtype, t, title, told) for dtype in dtypes for t in temperatures]
    return tuple(each for each in made if each)


def speeds(results: Results, **key: Any) -> Speeds:
    """Tokens per second of every contestant, a (prompt, speeds) pair a block."""
    return [
        (sample["prompt"], {n: f["tokens"] / f["seconds"] for n, f in sample["figures"].items()})
        for sample in results.where(**key)
    ]


def swept(results: Results, dtype: str, temperature: float) -> list[dict[str, dict[str, float]]]:
    """The figures of the sweep by variant, a dict a prompt."""
    found = results.where(kind="sweep", dtype=dtype, temperature=temperature)
    return [sample["figures"] for sample in found]


def best_variant(results: Results, dtype: str, temperature: float, family: str) -> str:
    """The fastest variant of a family among those swept on every prompt that any of the family was:
    all its tokens over all its seconds. Another time it may not have been installed."""
    found = [
        {name: figure for name, figure in figures.items() if name.startswith(family)}
        for figures in swept(results, dtype, temperature)
    ]
    prompts = [figures for figures in found if figures]

    def speed(name: str) -> float:
        tokens = sum(figures[name]["tokens"] for figures in prompts)
        return tokens / sum(figures[name]["seconds"] for figures in prompts)

    # Sorted, so that one of two alike is chosen the same way each time.
    throughout = sorted(set[str]().union(*prompts).intersection(*prompts))
    return max(throughout, key=speed, default="")


def _one(results: Results, dtype: str, temperature: float, title: str, told: str) -> str:
    key = {"kind": "block", "dtype": dtype, "temperature": temperature}
    measured = speeds(results, **key)
    if not measured:
        return ""
    names = list(dict.fromkeys(name for _, found in measured for name in found))
    rivals = [name for name in FAMILIES if name in names]
    rival = max(rivals, key=lambda name: _median(measured, name), default=None)
    llamas = [name for name in (LLAMA_PLAIN, *LLAMA_FAMILIES) if name in names]
    best_llama = max(llamas, key=lambda name: _median(measured, name), default=None)
    bases = [GENERATE, PLAIN, *([rival] if rival else [])]
    # Plain against plain, and against the best of them, which may be the same.
    bases += dict.fromkeys([LLAMA_PLAIN, best_llama]) if best_llama else []
    lines = [
        [
            name,
            figure(estimate(_by_prompt(measured, name), middle), 1),
            *(ratio(estimate(_against(measured, name, base), middle)) for base in bases),
        ]
        for name in names
    ]
    families = [name for name in (*FAMILIES, *LLAMA_FAMILIES) if name in names]
    chosen = [best_variant(results, dtype, temperature, family) for family in families]
    loads = [sample["load"] for sample in results.where(dtype=dtype, temperature=temperature)]
    best = f"Swept first, the best competes: {', '.join(chosen)}. " if chosen else ""
    note = (
        f"{told}{len(measured)} blocks. Medians; ratios within blocks; 95 % intervals over "
        "prompts. "
        f"{best}`{PLAIN}` is our plain decoding. {_of_llama(list(results.where(**key)))}"
        f"Load average {min(map(_number, loads)):g} to {max(map(_number, loads)):g}."
    )
    heads = ("contestant", "tokens/s", *(f"/ {base}" for base in bases))
    return table(f"{title}{dtype}, T = {temperature:g}", heads, lines, note)


def _of_llama(samples: list[dict[str, Any]]) -> str:
    """Why it is not here, or which it is, and how alike its text is to ours."""
    told = "".join(f"{each} " for each in dict.fromkeys(s.get("told") for s in samples) if each)
    found = [s["figures"].get(LLAMA_PLAIN, {}).get("same") for s in samples]
    same = [share for share in found if share is not None]
    if not same:
        return told
    whole = sum(share == 1.0 for share in same)
    return (
        f"{told}Its sums are made in another order: {100 * sum(same) / len(same):.1f} % of its "
        f"plain decoding's ids are ours, all of them in {whole} of {len(same)} blocks. "
    )


def _against(measured: Speeds, name: str, base: str) -> list[list[float]]:
    """Over the blocks that have both: another time a contestant may not have been installed."""
    both = [(prompt, found) for prompt, found in measured if name in found and base in found]
    return within_blocks(both, name, base)


def _by_prompt(measured: Speeds, name: str) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for prompt, found in measured:
        if name in found:
            groups.setdefault(prompt, []).append(found[name])
    return list(groups.values())


def _median(measured: Speeds, name: str) -> float:
    return median([found[name] for _, found in measured if name in found])


def _number(load: float | None) -> float:
    return load if load is not None else float("nan")
