"""The result of a grid: figures of each point, the best points, points as good as the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.figures import FEW, Estimate, estimate, pooled_length
from lab.grid import TEMPERATURE, Grid, grid_of
from lab.measured import Measured
from lab.order import Cell
from lab.study import Study
from lab.tables import ConfigurationRow, Results, best_of, configuration_row, group_of

__all__ = ["Tuned", "as_good", "tuning_result"]


@dataclass(frozen=True, slots=True)
class Tuned:
    """Figures of a grid; a point has the index of its configuration in `grid.configurations`.

    `lengths`: tokens per pass. `plains`: plain decoding's rows by temperature; the only key is None
    if the temperature is no axis. `bests`: the best point at each temperature; empty before
    anything is measured. `alike`: groups of points that drafted and accepted equally much in every
    run. `as_good`: points that are as good as the best point at their temperature; see the function
    `as_good`. `over`: the groups of all intervals, `prompt` or `repeat`.
    """

    grid: Grid
    plains: Mapping[float | None, ConfigurationRow]
    rows: tuple[ConfigurationRow, ...]
    lengths: tuple[Estimate | None, ...]
    bests: tuple[int, ...]
    as_good: tuple[int, ...]
    alike: tuple[tuple[int, ...], ...]
    over: str

    @property
    def temperatures(self) -> tuple[float | None, ...]:
        """The temperatures of the points, each once; (None,) if the temperature is no axis."""
        return tuple(dict.fromkeys(point.get(TEMPERATURE) for point in self.grid.points))

    def beside(self, point: int) -> tuple[int, ...]:
        """The points at the same temperature as `point`, including `point`."""
        return _beside(self.grid, point)


def tuning_result(study: Study, results: Results) -> Tuned:
    """The figures of a grid. Raises ConfigError for a study that was not made from a grid."""
    grid = grid_of(study)
    by_name: dict[str, dict[Cell, Measured]] = {}
    for cell, result in results.items():
        by_name.setdefault(cell.contestant, {})[cell] = result
    names = [one.name for one in grid.configurations]
    bases = set(map(study.base_of, names))
    by_point = [by_name.get(name, {}) for name in names]
    rows = tuple(
        # Each point is compared with plain decoding at its own temperature.
        configuration_row(study, {**by_name.get(study.base_of(name), {}), **own}, name)
        for name, own in zip(names, by_point, strict=True)
    )
    groups = {_beside(grid, i): None for i in range(len(rows))}
    firsts = (best_of([rows[i] for i in group], study.base) for group in groups)
    bests = tuple(rows.index(first) for first in firsts if first is not None)
    alike = _alike(by_point)
    return Tuned(
        grid=grid,
        plains={
            one.temperature: configuration_row(study, by_name.get(one.name, {}), one.name)
            for one in study.configurations
            if one.name in bases
        },
        rows=rows,
        lengths=tuple(_length(own) for own in by_point),
        bests=bests,
        as_good=tuple(
            sorted(
                i for best in bests for i in as_good(rows, best, alike) if i in _beside(grid, best)
            )
        ),
        alike=alike,
        over=group_of(study),
    )


def _beside(grid: Grid, point: int) -> tuple[int, ...]:
    temperatures = [one.get(TEMPERATURE) for one in grid.points]
    return tuple(i for i, at in enumerate(temperatures) if at == temperatures[point])


def as_good(
    rows: Sequence[ConfigurationRow], best: int, alike: Sequence[Sequence[int]] = ()
) -> tuple[int, ...]:
    """Indices of the other points whose ratio's interval reaches the interval of `best`, or that
    are `alike` with `best`. Intervals are not compared if `best` has a single measured ratio."""
    top = rows[best].ratio
    # Alike points are as good by definition, whatever their times.
    equal = {i for group in alike if best in group for i in group}
    if top is not None and top.groups > 1:
        equal |= {i for i, row in enumerate(rows) if row.ratio and row.ratio.high >= top.low}
    return tuple(sorted(equal - {best}))


def _alike(by_point: Sequence[Mapping[Cell, Measured]]) -> tuple[tuple[int, ...], ...]:
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, measured in enumerate(by_point):
        drafts = tuple(
            (
                cell.block,
                result.drafted_per_round,
                result.accepted_per_round,
                result.stats.num_draft_tokens,
                result.stats.num_verified_nodes,
            )
            for cell, result in sorted(measured.items())
        )
        if drafts:
            groups.setdefault(drafts, []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _length(measured: Mapping[Cell, Measured]) -> Estimate | None:
    """Tokens per pass over all rounds, with an interval over prompts."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for cell, result in measured.items():
        if result.stats.num_rounds:
            pair = (float(result.stats.num_accepted_tokens), float(result.stats.num_rounds))
            groups.setdefault(cell.item, []).append(pair)
    rows = list(groups.values())
    # One prompt: its repeats are the groups.
    parts = [[pair] for pair in rows[0]] if len(rows) == 1 else rows
    pooled = estimate(parts, pooled_length)
    if pooled is None or pooled.groups >= FEW:
        return pooled
    # With so few groups the interval is the range of the groups' figures.
    each = [float(pooled_length(np.asarray(part))) for part in parts]
    return replace(pooled, low=min(each), high=max(each), ends=True)
