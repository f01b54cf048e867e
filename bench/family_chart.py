"""The picture of a family: tokens per LLM pass by domain, before and after its SSMs were tuned.

`python -m bench.family_chart BEFORE.json AFTER.json [PICTURE.svg]`: results of the `acceptance`
suite of two families with the same LLM and settings. A panel for each temperature; a pair of bars
for the domain's best single SSM and for each combine rule, pale before and full after, with 95 %
intervals.
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
from bench.suites import acceptance_tables as figures
from bench.suites.acceptance_rows import MERGED_NODES, TEMPERATURE, UNMERGED_NODES, acceptance_rows
from core.config import WEIGHTS
from core.errors import ConfigError

OVERALL = "all"
ALONE = "best SSM alone"
# Rows of the bundled SSMs with about as many verified nodes, except for the vote's short chain; the
# legend has the numbers.
SHOWN = MappingProxyType(
    {
        "union": f"union, {UNMERGED_NODES} nodes drafted",
        "vote": f"vote, {WEIGHTS[0]}",
        "vote_tree": f"vote_tree, {MERGED_NODES} nodes",
        "log_pool": f"log_pool, {MERGED_NODES} nodes",
    }
)
NAMES = (ALONE, *SHOWN)
PALE = 0.4


def family_figure(before: Results, after: Results, names: Sequence[str]) -> go.Figure:
    """The picture; `names`: the domains. Raises ConfigError if a file has no samples of the
    suite."""
    if before.header.get("settings") != after.header.get("settings"):
        settings = str(after.header.get("settings"))
        raise ConfigError.of(
            "settings", settings, f"those of before, {before.header.get('settings')}"
        )
    both = [_measured_rows(results) for results in (before, after)]
    groups = {**{name: figures.of_domain(name) for name in names}, OVERALL: figures.is_fresh}
    temperatures = (0.0, TEMPERATURE)
    heading = "Tokens per LLM pass, T = {:g} (pale: before, full: after)"
    page = make_subplots(rows=2, subplot_titles=[heading.format(t) for t in temperatures])
    for row, temperature in enumerate(temperatures, start=1):
        for name, colour in zip(NAMES, COLOURS, strict=True):
            # With how many nodes are verified, at temperature 0 and over all domains.
            one = _best_row(both[1], name, 0.0, figures.is_fresh)
            label = name if one is None else f"{name} ({figures.nodes_of(both[1][one]):.0f} nodes)"
            for after_it, rows in enumerate(both):
                lengths = {
                    group: figures.length_of(rows[best], wanted)
                    for group, wanted in groups.items()
                    if (best := _best_row(rows, name, temperature, wanted)) is not None
                }
                shown = {"marker_color": colour, "opacity": 1.0 if after_it else PALE}
                legend = {"legendgroup": name, "showlegend": row == 1 and bool(after_it)}
                once = bar(label, list(groups), lengths, **shown, **legend)
                page.add_trace(once, row=row, col=1)
    return page


def _measured_rows(results: Results) -> figures.PromptsByRow:
    """The rows that were measured, for the SSMs that the samples name."""
    configs = [sample.get("config") for sample in results.samples]
    drafters = {name for c in configs if isinstance(c, dict) for name in c.get("drafters", ())}
    ssms = sorted(name for name in drafters if name.startswith("ssm-"))
    rows = figures.prompts_by_row(results, acceptance_rows(ssms))
    if not rows:
        allowed = "a file of the acceptance suite's samples"
        raise ConfigError.of("results", str(results.path), allowed)
    return rows


def _best_row(
    by_row: figures.PromptsByRow, name: str, temperature: float, wanted: figures.Selection
) -> Any:
    """A combine rule's row; for ALONE, the row of the best single SSM on the wanted continuations;
    None if there is none."""
    rows = [row for row in by_row if row.kind.temperature == temperature]
    if name == ALONE:
        alone = (row for row in rows if row.part == "more" and len(row.speculation.drafters) == 1)
        return max(alone, key=lambda row: figures.value_of(by_row[row], wanted), default=None)
    return next((row for row in rows if (row.part, row.name) == ("combine", SHOWN[name])), None)


def main(argv: Sequence[str] | None = None) -> int:
    draw = partial(family_figure, names=domains(load_prompts()))
    files = {"before": None, "after": None}
    return picture_command("family_chart", files, "artifacts/family.svg", draw, argv)


if __name__ == "__main__":
    sys.exit(main())
