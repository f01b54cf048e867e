"""Tables of measurements as Markdown.

Medians and ratios have bootstrap intervals from `lab.figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lab.figures import Estimate, estimate, median, middle, pooled_length, pooled_ratio

T = TypeVar("T")
NOTHING = "-"
CLAIM_HEADS = ("claim", "target", "measured", "verdict")

Row = Mapping[str, Any]
"""One measurement: the fields that identify it, and its figures."""
Value = str | Callable[[Row], float]
"""A field's name, or a function of a row."""


def long_rows(
    samples: Iterable[Row], field: str = "figures", name: str = "contestant"
) -> list[Row]:
    """A row for each entry of the samples' mapping `field`, with the sample's other fields. `name`:
    the row's field for the entry's key. An entry that is no mapping becomes the field `value`."""
    return [
        {
            **{key: value for key, value in sample.items() if key != field},
            **(value if isinstance(value, Mapping) else {"value": value}),
            name: key,
        }
        for sample in samples
        for key, value in sample[field].items()
    ]


def speed(row: Row) -> float:
    """Tokens a second, prefill included."""
    return float(row["tokens"] / row["seconds"])


def per_pass(row: Row) -> float:
    """Tokens per LLM pass."""
    return float(row["tokens"] / row["rounds"])


def column(rows: Iterable[Row], value: Value) -> list[float]:
    """The values of the rows; rows without the field `value` are left out."""
    if isinstance(value, str):
        return [row[value] for row in rows if row.get(value) is not None]
    return [value(row) for row in rows]


@dataclass(frozen=True)
class Group:
    """The rows of one line. `among`: all rows of the table, from which a ratio takes its base.
    `block`: the fields that identify a block (see `bench.interleave`); `over`: the field whose
    values are resampled for intervals."""

    rows: Sequence[Row]
    among: Sequence[Row] = ()
    block: tuple[str, ...] = ("prompt", "repeat")
    over: str = "prompt"

    def __getitem__(self, field: str) -> Any:
        """A field that is the same in all rows."""
        return self.rows[0][field]

    def of(self, **fields: Any) -> Group:
        rows = [row for row in self.rows if _has(row, fields)]
        return Group(rows, self.among or self.rows, self.block, self.over)

    def median(self, value: Value = speed) -> Estimate | None:
        """The median; None without rows."""
        return estimate(
            self._groups((row[self.over], x) for row, x in self._row_values(value)), middle
        )

    def ratio(self, value: Value = speed, **base: Any) -> Estimate | None:
        """The median ratio of a row's value to the value of the base row: the row of the same block
        whose fields have the values `base`. Rows without a base row are left out."""
        # Within a block: a machine's speed drifts over minutes by more than contestants differ.
        bases = Group([row for row in self.among or self.rows if _has(row, base)], (), self.block)
        by_block = {self._block(row): x for row, x in bases._row_values(value)}
        return estimate(
            self._groups(
                (row[self.over], x / by_block[self._block(row)])
                for row, x in self._row_values(value)
                if self._block(row) in by_block
            ),
            middle,
        )

    def tokens_per_pass(self) -> Estimate | None:
        """All tokens over all LLM passes; None without rows."""
        return estimate(
            self._groups((row[self.over], _acceptance(row)) for row in self.rows), pooled_length
        )

    def tokens_per_pass_ratio(self, **base: Any) -> Estimate | None:
        """`tokens_per_pass` of the rows, divided by `tokens_per_pass` of the base rows (see
        `ratio`). A loss on a few prompts changes this ratio, but not a median ratio."""
        bases = {self._block(row): row for row in self.among or self.rows if _has(row, base)}
        return estimate(
            self._groups(
                (row[self.over], (*_acceptance(row), *_acceptance(bases[self._block(row)])))
                for row in self.rows
                if self._block(row) in bases
            ),
            pooled_ratio,
        )

    def middle(self, value: Value = speed) -> float:
        return median(column(self.rows, value))

    def sum(self, value: Value) -> float:
        return float(sum(column(self.rows, value)))

    def _row_values(self, value: Value) -> Iterator[tuple[Row, float]]:
        for row in self.rows:
            yield from ((row, x) for x in column([row], value))

    def _block(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(field) for field in self.block)

    @staticmethod
    def _groups(pairs: Iterable[tuple[Any, T]]) -> list[list[T]]:
        groups: dict[Any, list[T]] = {}
        for name, value in pairs:
            groups.setdefault(name, []).append(value)
        return list(groups.values())


def _acceptance(row: Row) -> tuple[float, float]:
    """Accepted tokens and passes."""
    return row["tokens"] - row["rounds"], row["rounds"]


def _has(row: Row, fields: Mapping[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in fields.items())


def group_rows(rows: Sequence[Row], by: Sequence[str], **options: Any) -> list[Group]:
    """Groups of rows with equal fields `by`, in order of appearance."""
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[field] for field in by), []).append(row)
    return [Group(group, rows, **options) for group in by_key.values()]


@dataclass(frozen=True)
class Table:
    """A line for each group of rows with equal fields `by`; `columns`: functions of the group.
    `options`: other fields of Group."""

    title: str
    rows: Sequence[Row]
    by: Sequence[str]
    columns: Mapping[str, Callable[[Group], object]]
    note: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        groups = group_rows(self.rows, self.by, **self.options)
        lines = [[cell(group) for cell in self.columns.values()] for group in groups]
        return table(self.title, list(self.columns), lines, self.note)


def table(
    title: str, heads: Sequence[str], lines: Iterable[Sequence[object]], note: str = ""
) -> str:
    """`note` is between title and table. `bench.chart` parses this Markdown."""
    parts = [f"### {title}", ""]
    if note:
        parts += [note, ""]
    parts += [_line(heads), _line(["---"] * len(heads)), *map(_line, lines), ""]
    return "\n".join(parts)


def _line(cells: Sequence[object]) -> str:
    # A cell's own `|` would begin a column.
    return "| " + " | ".join(_cell(cell).replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: object) -> str:
    if cell is None:
        return NOTHING
    return figure(cell) if isinstance(cell, Estimate) else str(cell)


def figure(estimate: Estimate | None, digits: int = 2, unit: str = "") -> str:
    """`4.12 (3.90 to 4.35)`; a dash for None."""
    if estimate is None:
        return NOTHING
    value, low, high = (f"{x:.{digits}f}" for x in (estimate.value, estimate.low, estimate.high))
    return f"{value}{unit} ({low} to {high})"


def ratio(estimate: Estimate | None) -> str:
    """`1.52x (1.47 to 1.60)`."""
    return figure(estimate, unit="x")


def claim_row(
    claim: str, estimate: Estimate | None, target: float, *, above: bool = False
) -> list[str]:
    """`estimate` must be at least `target`, or above `target` with `above`."""
    bound = f"{'above' if above else 'at least'} {target:.2f}x"
    if estimate is None:
        return [claim, bound, NOTHING, NOTHING]
    # The verdict is on the point estimate, not on its interval.
    holds = estimate.value > target if above else estimate.value >= target
    # A narrowly missed claim must not read "by 0.00".
    verdict = "reached" if holds else f"not reached, by {max(0.01, target - estimate.value):.2f}"
    return [claim, bound, ratio(estimate), verdict]


def claims_table(lines: list[list[str]], note: str = "") -> str:
    return table("Claims", CLAIM_HEADS, lines, note)
