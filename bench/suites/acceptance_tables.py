"""The tables of the `acceptance` suite.

Continuations that repeat themselves are easy to draft: their tokens per pass have their own column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.context import Context
from bench.prompts import domains
from bench.results import Results
from bench.suites.acceptance_rows import (
    KINDS,
    LENGTHS,
    MOST_NODES,
    WIDTHS,
    AcceptanceRow,
    DecodingKind,
)
from bench.tables import NOTHING, claim_row, claims_table, ratio, table
from core.config.mechanisms import SUFFIX, TABLE, is_model_free
from lab.figures import Estimate, estimate, pooled_length, pooled_ratio

# A continuation repeats itself if its share of distinct 4-grams is below this.
LOOPING = 0.7
BLOCK_WISE = (
    "Tokens per LLM pass, T > 0, sampled drafts: in each round `traversal` accepts in expectation "
    "at least as many tokens as `mss` (tested in tests/laws); here texts differ by chance."
)
Prompts = list[dict[str, Any]]
Selection = Callable[[dict[str, Any]], bool]
PromptsByRow = Mapping[AcceptanceRow, Prompts]
Column = Callable[[AcceptanceRow, Prompts], object]


def is_looping(prompt: dict[str, Any]) -> bool:
    return bool(prompt["distinct_4_grams"] < LOOPING)


def is_not_looping(prompt: dict[str, Any]) -> bool:
    return not is_looping(prompt)


def of_domain(domain: str) -> Selection:
    return lambda prompt: is_not_looping(prompt) and prompt["domain"] == domain


def length_of(prompts: Prompts, wanted: Selection = is_not_looping) -> Estimate | None:
    """Tokens per LLM pass: 1 + accepted tokens / rounds, pooled over prompts. The interval is over
    prompts."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for prompt in filter(wanted, prompts):
        groups.setdefault(prompt["id"], []).append((prompt["accepted"], prompt["rounds"]))
    return estimate(list(groups.values()), pooled_length)


def value_of(prompts: Prompts, wanted: Selection = is_not_looping) -> float:
    return length.value if (length := length_of(prompts, wanted)) else 0.0


def paired_ratio(one: Prompts, other: Prompts) -> Estimate | None:
    """Tokens per pass of `one` divided by those of `other`, paired by prompt and seed. Pairs in
    which a continuation repeats itself are left out."""
    base = {(p["id"], p["seed"]): p for p in other if is_not_looping(p)}
    groups: dict[str, list[tuple[int, ...]]] = {}
    for prompt in filter(is_not_looping, one):
        if (same := base.get((prompt["id"], prompt["seed"]))) is not None:
            values = (prompt["accepted"], prompt["rounds"], same["accepted"], same["rounds"])
            groups.setdefault(prompt["id"], []).append(values)
    return estimate(list(groups.values()), pooled_ratio)


def nodes_of(prompts: Prompts) -> float:
    """Verified nodes per round."""
    return float(sum(p["nodes"] for p in prompts) / max(1, sum(p["rounds"] for p in prompts)))


def prompts_by_row(results: Results, rows: Iterable[AcceptanceRow]) -> dict[AcceptanceRow, Prompts]:
    """Each row's prompts; rows without a sample are left out."""
    samples = {row: next(results.where(**row.key), None) for row in rows}
    return {row: sample["prompts"] for row, sample in samples.items() if sample is not None}


def tables(context: Context, rows: Sequence[AcceptanceRow]) -> tuple[str, ...]:
    """All tables; rows without a sample are left out."""
    by_row, names = prompts_by_row(context.results, rows), domains(context.all_prompts)
    return (
        _by_row(by_row, names),
        _comparisons(by_row),
        *_widths(by_row, names),
        _by_length(by_row, names),
        _combine_table(by_row, names),
        _loops(by_row, names),
        claims_table(_block_wise(by_row), BLOCK_WISE),
    )


def _table(
    title: str,
    by_row: PromptsByRow,
    rows: Iterable[AcceptanceRow],
    columns: Mapping[str, Column],
    note: str,
) -> str:
    lines = [[cell(row, by_row[row]) for cell in columns.values()] for row in rows]
    return table(title, list(columns), lines, note)


def _lengths(names: Iterable[str], nodes: str = "nodes verified") -> dict[str, Column]:

    def tokens_per_pass(wanted: Selection) -> Column:
        return lambda _, prompts: length_of(prompts, wanted)

    return {
        nodes: lambda _, prompts: f"{nodes_of(prompts):.1f}",
        "tokens per LLM pass": tokens_per_pass(is_not_looping),
        **{name: tokens_per_pass(of_domain(name)) for name in names},
    }


def _by_row(by_row: PromptsByRow, names: Iterable[str]) -> str:
    columns: dict[str, Column] = {
        "T": lambda row, _: f"{row.kind.temperature:g}",
        "draft, verify": lambda row, _: f"{row.kind.draft}, {row.kind.verify}",
        "expansion": lambda row, _: _shape(row),
        "drafters": lambda row, _: row.name,
        **_lengths(names, "nodes"),
        "looping": lambda _, prompts: length_of(prompts, is_looping),
    }
    rows = (row for row in by_row if row.part not in ("width", "length", "combine"))
    note = (
        "1 + accepted tokens / rounds, pooled, with bootstrap 95 % intervals over prompts; "
        f"continuations with fewer than {LOOPING:.0%} distinct 4-grams are in the last column "
        f"only. Rows with `{SUFFIX}` or `{TABLE}` have a new engine each: `{TABLE}` "
        f"begins with the shipped counts, `{SUFFIX}` empty; both learn from earlier prompts."
    )
    return _table("Tokens per LLM pass", by_row, rows, columns, note)


def _shape(row: AcceptanceRow) -> str:
    return f"<{','.join(map(str, row.speculation.expansion))}>"


def _by_length(by_row: PromptsByRow, names: Iterable[str]) -> str:
    columns: dict[str, Column] = {
        "kind": lambda row, _: row.kind,
        "length": lambda row, _: len(row.speculation.expansion),
        **_lengths(names),
    }
    rows = (row for kind in KINDS for row in _rows(by_row, "length", kind))
    chains = f"{', '.join(map(str, LENGTHS[:-1]))} and {LENGTHS[-1]}"
    return _table("By length", by_row, rows, columns, f"Union of all SSMs' chains of {chains}.")


def _combine_table(by_row: PromptsByRow, names: Iterable[str]) -> str:
    columns: dict[str, Column] = {
        "T": lambda row, _: f"{row.kind.temperature:g}",
        "combine rule": lambda row, _: row.name,
        "draft": lambda row, _: row.kind.draft,
        **_lengths(names),
        "/ union of about as many nodes": lambda row, _: _against_union(by_row, row),
    }
    rows = [row for row in by_row if row.part == "combine"]
    rows.sort(key=lambda row: row.kind.temperature)
    note = (
        "The same SSMs each time. Last column: against the union whose number of verified nodes is "
        "nearest, over the same prompts and seeds."
    )
    return _table("By combine rule", by_row, rows, columns, note)


def _against_union(by_row: PromptsByRow, row: AcceptanceRow) -> str:
    alike = [other for other in by_row if other.part == "combine" and other.kind == row.kind]
    unions = [other for other in alike if other.speculation.combine == "union"]
    if row.speculation.combine == "union" or not unions:
        return NOTHING
    # A larger tree accepts more tokens: `row` is compared with the union of the closest size.
    base = min(unions, key=lambda other: abs(nodes_of(by_row[other]) - nodes_of(by_row[row])))
    return f"{ratio(paired_ratio(by_row[row], by_row[base]))} ({nodes_of(by_row[base]):.1f} nodes)"


def _comparisons(by_row: PromptsByRow) -> str:
    lines: list[list[object]] = []

    def against_best(name: str, row: AcceptanceRow, others: list[AcceptanceRow]) -> None:
        if others:
            base = max(others, key=lambda other: value_of(by_row[other]))
            cell = ratio(paired_ratio(by_row[row], by_row[base]))
            lines.append([row.kind, name, cell, base.name])

    for kind in KINDS:
        same = _rows(by_row, "same", kind)
        for row in same:
            if len(row.speculation.drafters) > 1:
                alone = [other for other in same if len(other.speculation.drafters) == 1]
                against_best(f"{row.name} / best single SSM", row, alone)
        if trees := [row for row in by_row if _is_small_tree(row, kind)]:
            best = max(trees, key=lambda row: value_of(by_row[row]))
            name = f"best tree ({best.name} {_shape(best)}) / best single chain"
            against_best(name, best, _rows(by_row, "chain", kind))
    for row, base in _counterparts(by_row, KINDS[1], KINDS[2]):
        name = f"coupled / plain top-k, {row.name} {_shape(row)}"
        cell = ratio(paired_ratio(by_row[row], by_row[base]))
        lines.append([f"match, T = {row.kind.temperature:g}", name, cell, "topk"])
    heads = ("kind", "comparison", "ratio", "base")
    note = (
        "Ratios over the same prompts and seeds, neither looping. The best tree is drafted by SSMs "
        f"only, under any combine rule, with at most {MOST_NODES} nodes to verify."
    )
    return table("Comparisons", heads, lines, note)


def _counterparts(
    by_row: PromptsByRow, kind: DecodingKind, other: DecodingKind
) -> list[tuple[AcceptanceRow, AcceptanceRow]]:
    """Pairs of rows with the same part and name."""
    base = {(row.part, row.name): row for row in by_row if row.kind == other}
    pairs = [(row, base.get((row.part, row.name))) for row in by_row if row.kind == kind]
    return [(row, same) for row, same in pairs if same is not None]


def _block_wise(by_row: PromptsByRow) -> list[list[str]]:
    """`traversal` against `mss`, row by row, then with all rows pooled."""
    mss, traversal = (next(k for k in KINDS if k.verify == v) for v in ("mss", "traversal"))
    lines: list[list[str]] = []
    pools: tuple[Prompts, Prompts] = ([], [])
    for number, pair in enumerate(_counterparts(by_row, traversal, mss)):
        row, name = pair[0], f"traversal / mss, {pair[0].name} {_shape(pair[0])}"
        lines.append(claim_row(name, paired_ratio(by_row[row], by_row[pair[1]]), 1.0))
        for pool, one in zip(pools, pair, strict=True):
            # With the row's number in each seed, pooled rows stay distinct.
            pool += [{**prompt, "seed": (number, prompt["seed"])} for prompt in by_row[one]]
    if lines:
        lines.append(claim_row("traversal / mss, all of these rows", paired_ratio(*pools), 1.0))
    return lines


def _rows(by_row: PromptsByRow, part: str, kind: DecodingKind) -> list[AcceptanceRow]:
    return [row for row in by_row if row.part == part and row.kind == kind]


def _is_small_tree(row: AcceptanceRow, kind: DecodingKind) -> bool:
    """Whether a row is a candidate for the best tree of `kind`."""
    # `acceptance_rows` has best-first rows for these kinds only.
    kinds = [kind]
    if kind.verify == "greedy" or kind.draft == "coupled":
        kinds.append(DecodingKind(kind.temperature, "best_first", kind.verify))
    few = row.most_nodes <= MOST_NODES
    return row.kind in kinds and few and not any(map(is_model_free, row.speculation.drafters))


def _widths(by_row: PromptsByRow, names: Iterable[str]) -> Iterator[str]:
    overall, by_domain = [], []
    for kind in KINDS:
        rows = _rows(by_row, "width", kind)
        if len(rows) != len(WIDTHS):
            continue
        lengths = [length_of(by_row[row]) for row in rows]
        overall.append([kind, *lengths, *_monotone(lengths)])
        for name in names:
            in_domain = [length_of(by_row[row], of_domain(name)) for row in rows]
            values = [f"{length.value:.2f}" if length else NOTHING for length in in_domain]
            by_domain.append([kind, name, *values, *_monotone(in_domain)])
    widths = [f"width {width}" for width in WIDTHS]
    heads = ("kind", *widths, "no step falls by more than its interval", "width 5 above width 1")
    note = "Union of all SSMs, expansions <w,1,1,1,1,1,1,1>, nothing cut."
    yield table("By tree width", heads, overall, note)
    heads = ("kind", "domain", *widths, "no step falls", "5 above 1")
    yield table("By tree width and domain", heads, by_domain)


def _monotone(lengths: Sequence[Estimate | None]) -> list[str]:
    known = [length for length in lengths if length is not None]
    if len(known) != len(WIDTHS):
        return [NOTHING, NOTHING]
    pairs = zip(known, known[1:], strict=False)
    steps = all(b.value >= a.value - a.half_width for a, b in pairs)
    return ["yes" if steps else "NO", "yes" if known[-1].value > known[0].value else "NO"]


def _loops(by_row: PromptsByRow, names: Sequence[str]) -> str:
    lines = []
    for kind in KINDS:
        rows = [row for row in _rows(by_row, "same", kind) if len(row.speculation.drafters) > 1]
        for prompts in [by_row[row] for row in rows[:1]]:
            shares = [p["distinct_4_grams"] for p in prompts]
            by_domain = [
                [p["distinct_4_grams"] for p in prompts if p["domain"] == name] for name in names
            ]
            looping = sum(map(is_looping, prompts))
            means = [f"{sum(s) / len(s):.0%}" if s else NOTHING for s in (shares, *by_domain)]
            lines.append([kind, len(prompts), looping, *means])
    heads = ("kind", "continuations", f"looping (< {LOOPING:.0%})", "mean share", *names)
    note = (
        "Continuations of the union with the single SSMs' expansion. Under `mss` and `traversal` "
        "other rows have other continuations."
    )
    return table("Distinct 4-grams of the continuations", heads, lines, note)
