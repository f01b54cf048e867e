"""The picture of the `length` suite: `goodput`, `trend` and the best fixed length on one chart.

`python -m bench.length_chart [RESULTS.json] [PICTURE.svg]`. Speeds have 95 % intervals.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bench.chart import COLOURS, bar, picture_command
from bench.prompts import Prompt, load_prompts
from bench.results import Results
from bench.suites.length_tables import BEST, GOODPUT, OVERALL, PLAIN, contests
from core.errors import ConfigError

DRAWN_POLICIES = (GOODPUT, "trend", BEST)
RESULTS = Path("artifacts/bench-length.json")


def length_figure(results: Results, prompts: Sequence[Prompt]) -> go.Figure:
    """Raises ConfigError if there are no samples."""
    all_contests = list(contests(results, prompts))
    if not all_contests:
        raise ConfigError.of("results", str(results.path), "a file of the length suite's samples")
    titles = [
        f"Tokens a second / plain decoding, {dtype}, T = {t:g}" for dtype, t, _ in all_contests
    ]
    titles += ["Mean chosen length by round (if half of the runs reach it)"] * len(all_contests)
    picture = make_subplots(rows=2, cols=len(all_contests), subplot_titles=titles)
    for col, (_, _, contest) in enumerate(all_contests, start=1):
        groups = (OVERALL, *contest.domains)
        for name, colour in zip(DRAWN_POLICIES, COLOURS, strict=False):
            speeds = {group: contest.against(name, PLAIN, group) for group in groups}
            options = {"marker_color": colour, "legendgroup": name, "showlegend": col == 1}
            picture.add_trace(bar(name, groups, speeds, base=1.0, **options), row=1, col=col)
            lengths = contest.lengths(name)
            line = go.Scatter(y=lengths, mode="lines", line_color=colour, showlegend=False)
            picture.add_trace(line, row=2, col=col)
        picture.add_hline(y=1, row=1, col=col)
    return picture


def main(argv: Sequence[str] | None = None) -> int:
    files, draw = {"results": RESULTS}, partial(length_figure, prompts=load_prompts())
    return picture_command("length_chart", files, "artifacts/bench-length.svg", draw, argv)


if __name__ == "__main__":
    sys.exit(main())
