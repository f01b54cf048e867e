"""The rows of the `acceptance` suite: single SSMs, their union, chains, and trees by width.

Every row is deterministic: fixed seeds, node budgets given or uncut, never measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import COMBINES, SpeculationConfig
from core.drafters.ngram import NGRAM

__all__ = ["KINDS", "PAPER", "TEMPERATURE", "WIDTHS", "Kind", "Row", "acceptance_rows"]

TEMPERATURE = 0.8
PAPER = (1, 1, 3, 1, 1, 1, 1, 1)
CHAIN = (1,) * 8
WIDTHS = (1, 2, 3, 4, 5)
EQUAL_NODES = 60  # what three SSMs' uncut <1,1,3,1,1,1,1,1> hold before they are merged


@dataclass(frozen=True, slots=True)
class Kind:
    """How tokens are proposed and verified, and at which temperature."""

    temperature: float
    draft: str
    verify: str

    def __str__(self) -> str:
        return f"{self.draft}, {self.verify}, T = {self.temperature:g}"


KINDS = (
    Kind(0.0, "topk", "greedy"),
    Kind(TEMPERATURE, "coupled", "match"),
    Kind(TEMPERATURE, "topk", "match"),
    Kind(TEMPERATURE, "sampled", "mss"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration. `part` groups rows into tables; `name` tells them apart within a kind."""

    part: str
    name: str
    kind: Kind
    speculation: SpeculationConfig

    @property
    def key(self) -> dict[str, Any]:
        """What tells its sample apart; rows of one configuration share a sample."""
        return {"temperature": self.kind.temperature, "config": self.speculation.to_plain()}


def acceptance_rows(ssms: Sequence[str]) -> tuple[Row, ...]:
    """All rows for these SSMs."""
    return tuple(row for kind in KINDS for row in _of_kind(kind, tuple(ssms)))


def _of_kind(kind: Kind, ssms: tuple[str, ...]) -> Iterator[Row]:
    for combine in COMBINES:
        for ssm in ssms:
            yield _row("same", ssm, kind, PAPER, (ssm,), combine)
        yield _row("same", f"{combine} of {len(ssms)}", kind, PAPER, ssms, combine)
        if kind.draft in ("topk", "coupled"):
            yield _row("more", f"{combine}, with n-gram", kind, PAPER, (*ssms, NGRAM), combine)
        for ssm in ssms:
            yield _row("chain", ssm, kind, CHAIN, (ssm,), combine)
        for width in WIDTHS:
            shape = (width, *CHAIN[1:])
            yield _row("width", f"{combine}, width {width}", kind, shape, ssms, combine)
    if kind.verify == "greedy" or kind.draft == "coupled":
        best = Kind(kind.temperature, "best_first", kind.verify)
        yield _row("more", f"best first, {EQUAL_NODES} nodes", best, PAPER, ssms, "union")


def _row(
    part: str,
    name: str,
    kind: Kind,
    expansion: tuple[int, ...],
    drafters: tuple[str, ...],
    combine: str,
) -> Row:
    config = SpeculationConfig(
        drafters=drafters,
        draft=kind.draft,
        expansion=expansion,
        max_tree_nodes=EQUAL_NODES if kind.draft == "best_first" else "uncut",
        combine=combine,
        speculation_length=len(expansion),
        verify=kind.verify,
    )
    return Row(part, name, kind, config.resolved(kind.temperature))
