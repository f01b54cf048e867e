"""The picture of an LLM with its SSMs (a family): tokens per LLM pass by domain, before and after
the SSMs were tuned.

`python -m bench.family_chart BEFORE.json AFTER.json [PICTURE.svg]`: both files are results of the
`acceptance` suite with the same settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bench.chart import COLOURS, bar, picture_command
from bench.prompts import domains, load_prompts
from bench.results import Results
from bench.suites import acceptance_tables as tables
from bench.suites.acceptance_rows import MERGED_NODES, TEMPERATURE, UNMERGED_NODES, acceptance_rows
from core.config import WEIGHTS
from core.errors import ConfigError

OVERALL = "all"
ALONE = "best SSM alone"
# For each combine rule, the row of the `acceptance` suite that is drawn.
DRAWN_RULES = MappingProxyType(
    {
        "union": f"union, {UNMERGED_NODES} nodes drafted",
        "vote": f"vote, {WEIGHTS[0]}",
        "vote_tree": f"vote_tree, {MERGED_NODES} nodes",
        "log_pool": f"log_pool, {MERGED_NODES} nodes",
    }
)
NAMES = (ALONE, *DRAWN_RULES)
PALE = 0.4


def family_figure(before: Results, after: Results, names: Sequence[str]) -> go.Figure:
    """`names`: the domains. Raises ConfigError if the settings differ or a file has no samples of
    the suite."""
    if before.header.get("settings") != after.header.get("settings"):
        settings = str(after.header.get("settings"))
        allowed = f"the settings of BEFORE.json, {before.header.get('settings')}"
        raise ConfigError.of("settings", settings, allowed)
    rows_before, rows_after = _measured_rows(before), _measured_rows(after)
    selections = {name: tables.of_domain(name) for name in names}
    selections[OVERALL] = tables.is_not_looping
    temperatures = (0.0, TEMPERATURE)
    heading = "Tokens per LLM pass, T = {:g} (pale: before, full: after)"
    picture = make_subplots(rows=2, subplot_titles=[heading.format(t) for t in temperatures])
    for panel, temperature in enumerate(temperatures, start=1):
        for name, colour in zip(NAMES, COLOURS, strict=True):
            # The label gives the verified tree nodes per round at temperature 0, over all domains.
            label = name
            if (row := _best_row(rows_after, name, 0.0, tables.is_not_looping)) is not None:
                label = f"{name} ({tables.nodes_of(rows_after[row]):.0f} nodes)"
            for by_row, is_after in ((rows_before, False), (rows_after, True)):
                lengths = {
                    group: tables.length_of(by_row[best], wanted)
                    for group, wanted in selections.items()
                    if (best := _best_row(by_row, name, temperature, wanted)) is not None
                }
                style = {"marker_color": colour, "opacity": 1.0 if is_after else PALE}
                legend = {"legendgroup": name, "showlegend": panel == 1 and is_after}
                bars = bar(label, list(selections), lengths, **style, **legend)
                picture.add_trace(bars, row=panel, col=1)
    return picture


def _measured_rows(results: Results) -> tables.PromptsByRow:
    """Raises ConfigError if no row was measured."""
    # The samples name the SSMs: a family has SSMs of its own.
    configs = [sample.get("config") for sample in results.samples]
    drafters = {name for c in configs if isinstance(c, dict) for name in c.get("drafters", ())}
    ssms = sorted(name for name in drafters if name.startswith("ssm-"))
    rows = tables.prompts_by_row(results, acceptance_rows(ssms))
    if not rows:
        allowed = "a file of the acceptance suite's samples"
        raise ConfigError.of("results", str(results.path), allowed)
    return rows


def _best_row(
    by_row: tables.PromptsByRow, name: str, temperature: float, wanted: tables.Selection
) -> Any:
    """The row that is drawn for `name`. ALONE: the single SSM with the most tokens per pass
    over the continuations that `wanted` selects."""
    rows = [row for row in by_row if row.kind.temperature == temperature]
    if name == ALONE:
        alone = (row for row in rows if row.part == "more" and len(row.speculation.drafters) == 1)
        return max(alone, key=lambda row: tables.value_of(by_row[row], wanted), default=None)
    return next(
        (row for row in rows if (row.part, row.name) == ("combine", DRAWN_RULES[name])), None
    )


def main(argv: Sequence[str] | None = None) -> int:
    draw = partial(family_figure, names=domains(load_prompts()))
    files = {"before": None, "after": None}
    return picture_command("family_chart", files, "artifacts/family.svg", draw, argv)


if __name__ == "__main__":
    sys.exit(main())
