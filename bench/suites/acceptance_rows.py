"""The rows of the `acceptance` suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import WEIGHTS, SpeculationConfig
from core.config.budget import shape_nodes
from core.config.mechanisms import NGRAM, SUFFIX, TABLE, combine_rule
from core.plurals import number_of

TEMPERATURE = 0.8
PAPER = (1, 1, 3, 1, 1, 1, 1, 1)  # SpecInfer's expansion: three branches at its third step
CHAIN = (1,) * 8
WIDTHS = (1, 2, 3, 4, 5)
LENGTHS = (2, 4, 8, 12)
MOST_NODES = 64  # the report names the best row among trees of at most this size
EQUAL_NODES = 60
# UNMERGED_NODES nodes of the bundled SSMs merge to about MERGED_NODES.
MERGED_NODES, UNMERGED_NODES = 45, 80
LOOKUP_NODES = 16
LEARNING = frozenset((SUFFIX, TABLE))  # drafters that learn from the texts of earlier runs
NODE_BUDGETS = (8, 16, 32, MERGED_NODES, EQUAL_NODES)  # of `vote_tree` and `log_pool`


@dataclass(frozen=True, slots=True)
class DecodingKind:
    """How tokens are proposed and verified."""

    temperature: float
    draft: str
    verify: str

    def __str__(self) -> str:
        return f"{self.draft}, {self.verify}, T = {self.temperature:g}"


KINDS = (
    DecodingKind(0.0, "topk", "greedy"),
    DecodingKind(TEMPERATURE, "coupled", "match"),
    DecodingKind(TEMPERATURE, "topk", "match"),
    DecodingKind(TEMPERATURE, "sampled", "mss"),
    DecodingKind(TEMPERATURE, "sampled", "traversal"),
)


@dataclass(frozen=True, slots=True)
class AcceptanceRow:
    """`part`: the row's group; `name`: identifies the row within its part and kind."""

    part: str
    name: str
    kind: DecodingKind
    speculation: SpeculationConfig

    @property
    def key(self) -> dict[str, Any]:
        """The fields that identify the row's sample; equal configurations share a sample."""
        return {"temperature": self.kind.temperature, "config": self.speculation.to_plain()}

    @property
    def learns(self) -> bool:
        """Whether figures depend on earlier runs."""
        return not LEARNING.isdisjoint(self.speculation.drafters)

    @property
    def most_nodes(self) -> int:
        """An upper bound of the nodes that a round verifies."""
        config = self.speculation
        if "vote_nodes" in combine_rule(config.combine).fields:
            return config.vote_nodes
        if isinstance(config.max_tree_nodes, int):
            return config.max_tree_nodes
        # `uncut`: each drafter's whole shape.
        return len(config.drafters) * shape_nodes(config.expansion)


def acceptance_rows(ssms: Sequence[str]) -> tuple[AcceptanceRow, ...]:
    return tuple(row for kind in KINDS for row in _of_kind(kind, tuple(ssms)))


def _of_kind(kind: DecodingKind, ssms: tuple[str, ...]) -> Iterator[AcceptanceRow]:
    for ssm in ssms:
        yield _row("same", ssm, kind, PAPER, (ssm,))
    yield _row("same", f"union of {len(ssms)}", kind, PAPER, ssms)
    if kind.draft in ("topk", "coupled"):
        yield _row("more", "union, with n-gram", kind, PAPER, (*ssms, NGRAM))
    for ssm in ssms:
        yield _row("chain", ssm, kind, CHAIN, (ssm,))
    for width in WIDTHS:
        yield _row("width", f"union, width {width}", kind, (width, *CHAIN[1:]), ssms)
    if kind.verify == "greedy" or kind.draft == "coupled":
        best = DecodingKind(kind.temperature, "best_first", kind.verify)
        for length in LENGTHS:
            yield _row("length", f"union, length {length}", kind, (1,) * length, ssms)
        for drafters, name in ((ssms, "best first"), *(((ssm,), ssm) for ssm in ssms)):
            name, nodes = f"{name}, {EQUAL_NODES} nodes", EQUAL_NODES
            yield _row("more", name, best, PAPER, drafters, max_tree_nodes=nodes)
        yield from _combine_rows(kind, best, ssms)
        yield from _lookup_rows(best, ssms)


def _combine_rows(
    kind: DecodingKind, best: DecodingKind, ssms: tuple[str, ...]
) -> Iterator[AcceptanceRow]:
    for rule in WEIGHTS:
        yield _row("combine", f"vote, {rule}", kind, CHAIN, ssms, combine="vote", weights=rule)
    yield _row("combine", "union, chains", kind, CHAIN, ssms)
    for nodes in NODE_BUDGETS:
        vote = {"combine": "vote_tree", "vote_nodes": nodes, "max_tree_nodes": EQUAL_NODES}
        yield _row("combine", f"vote_tree, {number_of(nodes, 'node')}", best, PAPER, ssms, **vote)
        pool = {"combine": "log_pool", "max_tree_nodes": nodes}
        yield _row("combine", f"log_pool, {number_of(nodes, 'node')}", best, PAPER, ssms, **pool)
    for nodes in (12, 24, 48, EQUAL_NODES, UNMERGED_NODES):
        name = f"union, {number_of(nodes, 'node')} drafted"
        yield _row("combine", name, best, PAPER, ssms, max_tree_nodes=nodes)


def _lookup_rows(best: DecodingKind, ssms: tuple[str, ...]) -> Iterator[AcceptanceRow]:
    alone: tuple[tuple[str, ...], ...] = ((NGRAM,), (SUFFIX,), (TABLE,), (SUFFIX, TABLE))
    rows = [(" + ".join(each), each, LOOKUP_NODES) for each in alone]
    rows.append((f"SSMs + {SUFFIX} + {TABLE}", (*ssms, SUFFIX, TABLE), EQUAL_NODES))
    for name, drafters, nodes in rows:
        tree = {"combine": "vote_tree", "vote_nodes": nodes, "max_tree_nodes": nodes}
        yield _row("lookup", f"{name}, {number_of(nodes, 'node')}", best, PAPER, drafters, **tree)


def _row(
    part: str,
    name: str,
    kind: DecodingKind,
    shape: tuple[int, ...],
    ssms: tuple[str, ...],
    **fields: Any,
) -> AcceptanceRow:
    settings: dict[str, Any] = {"drafters": ssms, "draft": kind.draft, "verify": kind.verify}
    settings |= {"expansion": shape, "speculation_length": len(shape), "max_tree_nodes": "uncut"}
    config = SpeculationConfig(**{**settings, **fields})
    return AcceptanceRow(part, name, kind, config.resolve(kind.temperature))
