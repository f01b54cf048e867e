"""The tables of the `acceptance` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.claims import claims_table, judged
from bench.context import Context
from bench.prompts import domains
from bench.suites.acceptance_figures import (
    LOOPING,
    Prompts,
    fresh,
    length_of,
    nodes_of,
    of_domain,
    paired,
    size_of,
    value_of,
)
from bench.suites.acceptance_rows import KINDS, LENGTHS, MOST_NODES, WIDTHS, Kind, Row, most_nodes
from bench.tables import NOTHING, figure, ratio, table
from core.mechanisms import NGRAM
from lab.figures import Estimate

__all__ = ["tables"]

BLOCK_WISE = (
    "Tokens per LLM pass, T > 0, drafts drawn: `traversal` accepts at least what `mss` does, round "
    "for round in expectation (tests/laws prove it); here over texts that differ by chance."
)


def tables(context: Context, rows: Sequence[Row]) -> tuple[str, ...]:
    """Everything that can be made of the samples that are there."""
    found = {
        row: sample["prompts"]
        for row in rows
        if (sample := next(context.results.where(**row.key), None)) is not None
    }
    names = domains(context.all_prompts)
    return (
        _by_row(found, names),
        _comparisons(found),
        _widths(found),
        _width_domains(found, names),
        _lengths(found, names),
        _combining(found, names),
        _loops(found, names),
        claims_table(_block_wise(found), BLOCK_WISE),
    )


def _by_row(found: dict[Row, Prompts], names: Iterable[str]) -> str:
    names = tuple(names)
    lines = [
        [
            f"{row.kind.temperature:g}",
            f"{row.kind.draft}, {row.kind.verify}",
            _shape(row),
            row.name,
            nodes_of(prompts),
            figure(length_of(prompts)),
            *(figure(length_of(prompts, of_domain(name))) for name in names),
            figure(length_of(prompts, lambda prompt: not fresh(prompt))),
        ]
        for row, prompts in found.items()
        if row.part not in ("width", "length", "combine")
    ]
    heads = ("T", "draft, verify", "expansion", "drafters", "nodes", "tokens per LLM pass")
    note = (
        "1 + accepted tokens / rounds, pooled, with bootstrap 95 % intervals over prompts; "
        f"continuations with fewer than {LOOPING:.0%} distinct 4-grams are in the last column only."
    )
    return table("Tokens per LLM pass", (*heads, *names, "looping"), lines, note)


def _shape(row: Row) -> str:
    return f"<{','.join(map(str, row.speculation.expansion))}>"


def _comparisons(found: dict[Row, Prompts]) -> str:
    lines = []
    for kind in KINDS:
        singles = _rows(found, "same", kind)
        union = [row for row in singles if len(row.speculation.drafters) > 1]
        alone = [row for row in singles if len(row.speculation.drafters) == 1]
        chains = _rows(found, "chain", kind)
        for row in union:
            lines += _against(found, f"{row.name} / best single SSM", row, alone)
        trees = [row for row in found if _like(row, kind) and _is_small(row)]
        if trees:
            best = max(trees, key=lambda row: value_of(found[row]))
            name = f"best tree ({best.name} {_shape(best)}) / best single chain"
            lines += _against(found, name, best, chains)
    lines += _coupling(found)
    heads = ("kind", "comparison", "ratio", "base")
    note = (
        "Ratios over the same prompts and seeds, neither looping. The best tree is that of SSMs "
        f"alone, by whichever combine rule, of at most {MOST_NODES} nodes to be verified."
    )
    return table("Comparisons", heads, lines, note)


def _against(found: dict[Row, Prompts], name: str, row: Row, others: list[Row]) -> list[list[str]]:
    """A row against the best of the others, if there are any."""
    if not others:
        return []
    base = max(others, key=lambda other: value_of(found[other]))
    return [[str(row.kind), name, ratio(paired(found[row], found[base])), base.name]]


def _coupling(found: dict[Row, Prompts]) -> list[list[str]]:
    return [
        [
            f"match, T = {row.kind.temperature:g}",
            f"coupled / plain top-k, {row.name} {_shape(row)}",
            ratio(paired(found[row], found[base])),
            "topk",
        ]
        for row, base in _counterparts(found, KINDS[1], KINDS[2])
    ]


def _counterparts(found: dict[Row, Prompts], kind: Kind, other: Kind) -> list[tuple[Row, Row]]:
    """The rows of one kind, each with the row that differs from it in its kind alone."""
    base = {(row.part, row.name): row for row in found if row.kind == other}
    pairs = [(row, base.get((row.part, row.name))) for row in found if row.kind == kind]
    return [(row, same) for row, same in pairs if same is not None]


def _block_wise(found: dict[Row, Prompts]) -> list[list[str]]:
    """`traversal` against `mss` on drafts drawn alike: one by one, and all of them as one."""
    mss, traversal = (next(k for k in KINDS if k.verify == v) for v in ("mss", "traversal"))
    pairs = _counterparts(found, traversal, mss)
    lines = [
        judged(f"traversal / mss, {row.name} {_shape(row)}", paired(found[row], found[base]), 1.0)
        for row, base in pairs
    ]
    if not pairs:
        return []
    one, other = ([_named(found[pair[i]], n) for n, pair in enumerate(pairs)] for i in (0, 1))
    pooled = paired([p for row in one for p in row], [p for row in other for p in row])
    return [*lines, judged("traversal / mss, all of these rows", pooled, 1.0)]


def _named(prompts: Prompts, row: int) -> Prompts:
    """Continuations of one row told apart from another's; a prompt stays one group."""
    return [{**prompt, "seed": (row, prompt["seed"])} for prompt in prompts]


def _rows(found: dict[Row, Prompts], part: str, kind: Kind) -> list[Row]:
    return [row for row in found if row.part == part and row.kind == kind]


def _like(row: Row, kind: Kind) -> bool:
    """Whether a row proposes and verifies as the kind does, or best first in its place."""
    if row.kind == kind:
        return True
    first = kind.verify == "greedy" or kind.draft == "coupled"
    return first and row.kind == Kind(kind.temperature, "best_first", kind.verify)


def _is_small(row: Row) -> bool:
    """Whether the best tree may be this: of SSMs, n-grams apart, and of few nodes."""
    few = most_nodes(row.speculation) <= MOST_NODES
    return few and NGRAM not in row.speculation.drafters


def _widths(found: dict[Row, Prompts]) -> str:
    lines = []
    for kind in KINDS:
        rows = _rows(found, "width", kind)
        if len(rows) != len(WIDTHS):
            continue
        lengths = [length_of(found[row]) for row in rows]
        lines.append([str(kind), *map(figure, lengths), *_monotone(lengths)])
    heads = ("kind", *(f"width {w}" for w in WIDTHS), "no step falls by more than its interval")
    note = "Union of all SSMs, expansions <w,1,1,1,1,1,1,1>, nothing cut."
    return table("By tree width", (*heads, "width 5 above width 1"), lines, note)


def _monotone(lengths: Sequence[Estimate | None]) -> list[str]:
    known = [length for length in lengths if length is not None]
    if len(known) != len(WIDTHS):
        return [NOTHING, NOTHING]
    pairs = zip(known, known[1:], strict=False)
    steps = all(b.value >= a.value - a.half_width for a, b in pairs)
    return ["yes" if steps else "NO", "yes" if known[-1].value > known[0].value else "NO"]


def _width_domains(found: dict[Row, Prompts], names: Iterable[str]) -> str:
    lines = []
    for kind in KINDS:
        rows = _rows(found, "width", kind)
        if len(rows) != len(WIDTHS):
            continue
        for name in names:
            lengths = [length_of(found[row], of_domain(name)) for row in rows]
            values = [f"{length.value:.2f}" if length else NOTHING for length in lengths]
            lines.append([str(kind), name, *values, *_monotone(lengths)])
    heads = ("kind", "domain", *(f"width {w}" for w in WIDTHS), "steps hold", "5 above 1")
    return table("By tree width and domain", heads, lines)


def _lengths(found: dict[Row, Prompts], names: Iterable[str]) -> str:
    """Chains of all SSMs, merged, by how long they are."""
    names = tuple(names)
    lines = [
        [
            str(row.kind),
            str(len(row.speculation.expansion)),
            nodes_of(found[row]),
            figure(length_of(found[row])),
            *(figure(length_of(found[row], of_domain(name))) for name in names),
        ]
        for kind in KINDS
        for row in _rows(found, "length", kind)
    ]
    heads = ("kind", "length", "nodes verified", "tokens per LLM pass", *names)
    return table("By length", heads, lines, f"Union of all SSMs' chains of {_said(LENGTHS)}.")


def _said(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _combining(found: dict[Row, Prompts], names: Iterable[str]) -> str:
    """The combine rules beside each other, and the pool against the union of as many nodes."""
    names = tuple(names)
    rows = sorted(
        (row for row in found if row.part == "combine"), key=lambda row: row.kind.temperature
    )
    lines = [
        [
            f"{row.kind.temperature:g}",
            row.name,
            row.kind.draft,
            nodes_of(found[row]),
            figure(length_of(found[row])),
            *(figure(length_of(found[row], of_domain(name))) for name in names),
            _against_pool(found, row),
        ]
        for row in rows
    ]
    heads = ("T", "combine rule", "draft", "nodes verified", "tokens per LLM pass", *names)
    note = (
        "The same SSMs each time. Last column: against the union whose number of verified nodes is "
        "nearest, over the same prompts and seeds."
    )
    return table("By combine rule", (*heads, "/ union of about as many nodes"), lines, note)


def _against_pool(found: dict[Row, Prompts], row: Row) -> str:
    unions = [
        other
        for other in found
        if other.part == "combine"
        and other.speculation.combine == "union"
        and other.kind.temperature == row.kind.temperature
        and other.kind.draft == row.kind.draft
    ]
    if row.speculation.combine == "union" or not unions:
        return NOTHING
    base = min(unions, key=lambda other: abs(size_of(found[other]) - size_of(found[row])))
    return f"{ratio(paired(found[row], found[base]))} ({nodes_of(found[base])} nodes)"


def _loops(found: dict[Row, Prompts], names: Iterable[str]) -> str:
    """Lossless rows share their text: one row a kind tells how much of it repeats."""
    names = tuple(names)
    lines = []
    for kind in KINDS:
        rows = [row for row in _rows(found, "same", kind) if len(row.speculation.drafters) > 1]
        for row in rows[:1]:
            prompts = found[row]
            shares = [p["distinct_4_grams"] for p in prompts]
            by = [[p["distinct_4_grams"] for p in prompts if p["domain"] == n] for n in names]
            looping = sum(not fresh(prompt) for prompt in prompts)
            means = [f"{sum(s) / len(s):.0%}" if s else NOTHING for s in (shares, *by)]
            lines.append([str(kind), len(prompts), looping, *means])
    heads = ("kind", "continuations", f"looping (< {LOOPING:.0%})", "mean share", *names)
    note = (
        "Of the union with the same expansion as the single SSMs; under `mss` and `traversal` "
        "every row has continuations of its own."
    )
    return table("Distinct 4-grams of the continuations", heads, lines, note)
