"""Markdown tables, and how figures are written in them."""

from __future__ import annotations

from collections.abc import Sequence

from lab.figures import Estimate

__all__ = ["figure", "ratio", "table"]

NOTHING = "-"


def table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
) -> str:
    """A titled table; `note` stands between title and table."""
    lines = [f"### {title}", ""]
    if note:
        lines += [note, ""]
    lines += [_line(heads), _line(["---"] * len(heads)), *(_line(row) for row in rows), ""]
    return "\n".join(lines)


def figure(found: Estimate | None, digits: int = 2) -> str:
    """`4.12 (3.90 to 4.35)`; a dash for nothing."""
    if found is None:
        return NOTHING
    value, low, high = (f"{x:.{digits}f}" for x in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def ratio(found: Estimate | None) -> str:
    """`1.52x (1.47 to 1.60)`."""
    if found is None:
        return NOTHING
    return f"{found.value:.2f}x ({found.low:.2f} to {found.high:.2f})"


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
