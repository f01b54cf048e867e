"""The tables of the `cpu-bundled` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from bench.results import Results
from bench.suites.cpu_variants import FAMILIES, LLAMA_FAMILIES
from bench.tables import Group, Row, Table, column, figure, group_rows, long_rows, ratio, speed

GENERATE = "transformers generate"
PLAIN = "autoregressive"
LLAMA_PLAIN = "llama.cpp plain"


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


def contest_table(
    results: Results, dtype: str, temperature: float, title: str = "", told: str = ""
) -> str:
    """A line a contestant; empty where there are no blocks. `title` begins the title, and `told`
    the note."""
    samples = list(results.where(kind="block", dtype=dtype, temperature=temperature))
    rows = long_rows(samples)
    if not rows:
        return ""
    columns: dict[str, Callable[[Group], object]] = {
        "contestant": lambda group: group["contestant"],
        "tokens/s": lambda group: figure(group.median(), 1),
        **{f"/ {base}": partial(_against, base) for base in _bases(rows)},
    }
    names = {row["contestant"] for row in rows}
    families = [name for name in (*FAMILIES, *LLAMA_FAMILIES) if name in names]
    chosen = [best_variant(results, dtype, temperature, family) for family in families]
    best = f"Swept first, the best competes: {', '.join(chosen)}. " if chosen else ""
    loads = column(results.where(dtype=dtype, temperature=temperature), "load") or [float("nan")]
    note = (
        f"{told}{len(samples)} blocks. Medians; ratios within blocks; 95 % intervals over prompts. "
        f"{best}`{PLAIN}` is our plain decoding. {_of_llama(samples)}"
        f"Load average {min(loads):g} to {max(loads):g}."
    )
    return str(Table(f"{title}{dtype}, T = {temperature:g}", rows, ("contestant",), columns, note))


def _against(base: str, group: Group) -> str:
    """Over the blocks that have both: another time a contestant may not have been installed."""
    return ratio(group.ratio(contestant=base))


def _bases(rows: Sequence[Row]) -> Iterable[str]:
    """What each is compared with: both plain ones, and the best of transformers' own speculation
    and of llama.cpp's, where they competed."""
    speeds = {
        group["contestant"]: group.middle(speed) for group in group_rows(rows, ("contestant",))
    }
    bases = [GENERATE, PLAIN]
    for first, others in (([], FAMILIES), ([LLAMA_PLAIN], (LLAMA_PLAIN, *LLAMA_FAMILIES))):
        there = [name for name in others if name in speeds]
        if there:
            bases += [*first, max(there, key=lambda name: speeds[name])]
    return dict.fromkeys(bases)


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
