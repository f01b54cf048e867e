"""The tables of the `acceptance` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.context import Context
from bench.prompts import domains
from bench.suites.acceptance_rows import (
    KINDS,
    LENGTHS,
    LOOPING,
    MOST_NODES,
    WIDTHS,
    AcceptanceRow,
    Kind,
    Prompts,
    fresh,
    length_of,
    most_nodes,
    nodes_of,
    of_domain,
    paired_ratio,
    value_of,
)
from bench.tables import NOTHING, claim_row, claims_table, ratio, table
from core.config.mechanisms import NGRAM
from lab.figures import Estimate

BLOCK_WISE = (
    "Tokens per LLM pass, T > 0, drafts drawn: `traversal` accepts at least what `mss` does, round "
    "for round in expectation (tests/laws prove it); here over texts that differ by chance."
)


def tables(context: Context, rows: Sequence[AcceptanceRow]) -> tuple[str, ...]:
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
        *_widths(found, names),
        _by_length(found, names),
        _combining(found, names),
        _loops(found, names),
        claims_table(_block_wise(found), BLOCK_WISE),
    )


Found = Mapping[AcceptanceRow, Prompts]
Column = Callable[[AcceptanceRow, Prompts], object]


def _lines(
    found: Found, rows: Iterable[AcceptanceRow], columns: Mapping[str, Column]
) -> list[list[object]]:
    return [[cell(row, found[row]) for cell in columns.values()] for row in rows]


def _lengths(names: Iterable[str], nodes: str = "nodes verified") -> dict[str, Column]:
    """Nodes, and tokens per LLM pass over all and by domain."""
    by_domain: dict[str, Column] = {
        name: lambda _, prompts, name=name: length_of(prompts, of_domain(name))  # type: ignore[misc]
        for name in names
    }
    return {
        nodes: lambda _, prompts: f"{nodes_of(prompts):.1f}",
        "tokens per LLM pass": lambda _, prompts: length_of(prompts),
        **by_domain,
    }


def _by_row(found: Found, names: Iterable[str]) -> str:
    columns: dict[str, Column] = {
        "T": lambda row, _: f"{row.kind.temperature:g}",
        "draft, verify": lambda row, _: f"{row.kind.draft}, {row.kind.verify}",
        "expansion": lambda row, _: _shape(row),
        "drafters": lambda row, _: row.name,
        **_lengths(names, "nodes"),
        "looping": lambda _, prompts: length_of(prompts, lambda prompt: not fresh(prompt)),
    }
    rows = (row for row in found if row.part not in ("width", "length", "combine"))
    note = (
        "1 + accepted tokens / rounds, pooled, with bootstrap 95 % intervals over prompts; "
        f"continuations with fewer than {LOOPING:.0%} distinct 4-grams are in the last column only."
    )
    return table("Tokens per LLM pass", list(columns), _lines(found, rows, columns), note)


def _shape(row: AcceptanceRow) -> str:
    return f"<{','.join(map(str, row.speculation.expansion))}>"


def _by_length(found: Found, names: Iterable[str]) -> str:
    """Chains of all SSMs, merged, by how long they are."""
    columns: dict[str, Column] = {
        "kind": lambda row, _: row.kind,
        "length": lambda row, _: len(row.speculation.expansion),
        **_lengths(names),
    }
    rows = (row for kind in KINDS for row in _rows(found, "length", kind))
    chains = f"{', '.join(map(str, LENGTHS[:-1]))} and {LENGTHS[-1]}"
    note = f"Union of all SSMs' chains of {chains}."
    return table("By length", list(columns), _lines(found, rows, columns), note)


def _combining(found: Found, names: Iterable[str]) -> str:
    """The combine rules beside each other, and the pool against the union of as many nodes."""
    columns: dict[str, Column] = {
        "T": lambda row, _: f"{row.kind.temperature:g}",
        "combine rule": lambda row, _: row.name,
        "draft": lambda row, _: row.kind.draft,
        **_lengths(names),
        "/ union of about as many nodes": lambda row, _: _against_union(found, row),
    }
    rows = [row for row in found if row.part == "combine"]
    rows.sort(key=lambda row: row.kind.temperature)
    note = (
        "The same SSMs each time. Last column: against the union whose number of verified nodes is "
        "nearest, over the same prompts and seeds."
    )
    return table("By combine rule", list(columns), _lines(found, rows, columns), note)


def _against_union(found: Found, row: AcceptanceRow) -> str:
    kind = (row.kind.temperature, row.kind.draft)
    unions = [
        other
        for other in found
        if other.part == "combine"
        and other.speculation.combine == "union"
        and (other.kind.temperature, other.kind.draft) == kind
    ]
    if row.speculation.combine == "union" or not unions:
        return NOTHING
    base = min(unions, key=lambda other: abs(nodes_of(found[other]) - nodes_of(found[row])))
    return f"{ratio(paired_ratio(found[row], found[base]))} ({nodes_of(found[base]):.1f} nodes)"


def _comparisons(found: Found) -> str:
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


def _against(
    found: Found, name: str, row: AcceptanceRow, others: list[AcceptanceRow]
) -> list[list[object]]:
    """A row against the best of the others, if there are any."""
    if not others:
        return []
    base = max(others, key=lambda other: value_of(found[other]))
    return [[row.kind, name, ratio(paired_ratio(found[row], found[base])), base.name]]


def _coupling(found: Found) -> list[list[object]]:
    return [
        [
            f"match, T = {row.kind.temperature:g}",
            f"coupled / plain top-k, {row.name} {_shape(row)}",
            ratio(paired_ratio(found[row], found[base])),
            "topk",
        ]
        for row, base in _counterparts(found, KINDS[1], KINDS[2])
    ]


def _counterparts(
    found: Found, kind: Kind, other: Kind
) -> list[tuple[AcceptanceRow, AcceptanceRow]]:
    """The rows of one kind, each with the row that differs from it in its kind alone."""
    base = {(row.part, row.name): row for row in found if row.kind == other}
    pairs = [(row, base.get((row.part, row.name))) for row in found if row.kind == kind]
    return [(row, same) for row, same in pairs if same is not None]


def _block_wise(found: Found) -> list[list[str]]:
    """`traversal` against `mss` on drafts drawn alike: one by one, and all of them as one."""
    mss, traversal = (next(k for k in KINDS if k.verify == v) for v in ("mss", "traversal"))
    pairs = _counterparts(found, traversal, mss)
    lines = [
        claim_row(
            f"traversal / mss, {row.name} {_shape(row)}", paired_ratio(found[row], found[base]), 1.0
        )
        for row, base in pairs
    ]
    if not pairs:
        return []
    one, other = ([_with_row(found[pair[i]], n) for n, pair in enumerate(pairs)] for i in (0, 1))
    pooled = paired_ratio([p for row in one for p in row], [p for row in other for p in row])
    return [*lines, claim_row("traversal / mss, all of these rows", pooled, 1.0)]


def _with_row(prompts: Prompts, row: int) -> Prompts:
    """Adds the row to each seed, so that pooled rows stay distinct; a prompt stays one group."""
    return [{**prompt, "seed": (row, prompt["seed"])} for prompt in prompts]


def _rows(found: Found, part: str, kind: Kind) -> list[AcceptanceRow]:
    return [row for row in found if row.part == part and row.kind == kind]


def _like(row: AcceptanceRow, kind: Kind) -> bool:
    """Whether a row proposes and verifies as the kind does, or best first in its place."""
    if row.kind == kind:
        return True
    first = kind.verify == "greedy" or kind.draft == "coupled"
    return first and row.kind == Kind(kind.temperature, "best_first", kind.verify)


def _is_small(row: AcceptanceRow) -> bool:
    """Whether the best tree may be this: of SSMs, n-grams apart, and of few nodes."""
    few = most_nodes(row.speculation) <= MOST_NODES
    return few and NGRAM not in row.speculation.drafters


def _widths(found: Found, names: Iterable[str]) -> Iterable[str]:
    """Over all prompts, and by domain."""
    whole, by_domain = [], []
    for kind in KINDS:
        rows = _rows(found, "width", kind)
        if len(rows) != len(WIDTHS):
            continue
        lengths = [length_of(found[row]) for row in rows]
        whole.append([kind, *lengths, *_monotone(lengths)])
        for name in names:
            own = [length_of(found[row], of_domain(name)) for row in rows]
            values = [f"{length.value:.2f}" if length else NOTHING for length in own]
            by_domain.append([kind, name, *values, *_monotone(own)])
    widths = [f"width {width}" for width in WIDTHS]
    heads = ("kind", *widths, "no step falls by more than its interval", "width 5 above width 1")
    note = "Union of all SSMs, expansions <w,1,1,1,1,1,1,1>, nothing cut."
    yield table("By tree width", heads, whole, note)
    heads = ("kind", "domain", *widths, "steps hold", "5 above 1")
    yield table("By tree width and domain", heads, by_domain)


def _monotone(lengths: Sequence[Estimate | None]) -> list[str]:
    known = [length for length in lengths if length is not None]
    if len(known) != len(WIDTHS):
        return [NOTHING, NOTHING]
    pairs = zip(known, known[1:], strict=False)
    steps = all(b.value >= a.value - a.half_width for a, b in pairs)
    return ["yes" if steps else "NO", "yes" if known[-1].value > known[0].value else "NO"]


def _loops(found: Found, names: Iterable[str]) -> str:
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
            lines.append([kind, len(prompts), looping, *means])
    heads = ("kind", "continuations", f"looping (< {LOOPING:.0%})", "mean share", *names)
    note = (
        "Of the union with the same expansion as the single SSMs; under `mss` and `traversal` "
        "every row has continuations of its own."
    )
    return table("Distinct 4-grams of the continuations", heads, lines, note)
