"""Chooses which look-up tables to join into Cartesian products (MicroRec, arXiv 2010.05894).

A look-up in the product of two tables costs one random access instead of two. The price is size:
the product has rows a x rows b. The paper compares plans by rounds of accesses. Here plans are
compared by nanoseconds: a CPU has caches, and makes several reads at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["AccessTimes", "FeatureTable", "TablePlan", "join_tables", "plan_of", "plan_tables"]


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """A table with a row for each value of a feature, or for each pair of values of two features.
    `names`: the features."""

    names: tuple[str, ...]
    rows: int
    row_bytes: int

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class AccessTimes:
    """Nanoseconds to read a random row, by the table's bytes. `alone`: the time of one read;
    `beside`: the time that one more read at the same time adds."""

    alone: Mapping[int, float]
    beside: Mapping[int, float]

    def token_ns(self, tables: Sequence[FeatureTable]) -> float:
        """The predicted time to read a row of each table."""
        if not tables:
            return 0.0
        *others, largest = sorted(table.bytes for table in tables)
        rest = math.fsum(_at(size, self.beside) for size in others)
        return _at(largest, self.alone) + rest


def _at(size: int, measured_ns: Mapping[int, float]) -> float:
    """Interpolates the time linearly in the logarithm of the size."""
    sizes = sorted(measured_ns)
    # Outside the measured sizes, `np.interp` returns the time at the nearest size.
    return float(np.interp(np.log(size), np.log(sizes), [measured_ns[each] for each in sizes]))


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Tables with one access each; `ns`: the predicted nanoseconds of all accesses."""

    tables: tuple[FeatureTable, ...]
    ns: float

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)


def join_tables(a: FeatureTable, b: FeatureTable) -> FeatureTable:
    """The product of the tables: for each pair of rows, one row with both."""
    return FeatureTable((*a.names, *b.names), a.rows * b.rows, a.row_bytes + b.row_bytes)


def plan_tables(tables: Sequence[FeatureTable], times: AccessTimes, most_bytes: int) -> TablePlan:
    """The plan of least predicted time, then of least storage. A plan with joined tables must fit
    in `most_bytes`.

    The paper's heuristic: for each even k, the k smallest tables are joined in pairs, the smallest
    with the largest and so on. The heuristic may miss the least time, mostly if rows have unequal
    lengths.
    """
    by_size = sorted(tables, key=lambda table: table.bytes)
    best = plan_of(by_size, times)
    for count in range(2, len(by_size) + 1, 2):
        pairs = [join_tables(by_size[i], by_size[count - 1 - i]) for i in range(count // 2)]
        plan = plan_of([*pairs, *by_size[count:]], times)
        if plan.bytes <= most_bytes and (plan.ns, plan.bytes) < (best.ns, best.bytes):
            best = plan
    return best


def plan_of(tables: Sequence[FeatureTable], times: AccessTimes) -> TablePlan:
    """A plan of these tables, the largest first: its row takes longest to arrive."""
    by_size = sorted(tables, key=lambda table: table.bytes, reverse=True)
    return TablePlan(tuple(by_size), times.token_ns(tables))
