"""A suite's report as an HTML page with tables and bars; plotly figures as SVG or HTML files."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.subplots import make_subplots

from bench.results import Results, write_file
from core.errors import SpecScopeError
from lab.figures import Estimate

# For example: 1.52x (1.47 to 1.60); 877.3 (739.0 to 1095.7); 0.75 (1.36x); 38.0 %
FIGURE = re.compile(
    r"^(?P<value>-?[\d,]*\.?\d+)(?P<ratio>x?)"
    r"(?: \((?P<low>-?[\d.]+)x? to (?P<high>-?[\d.]+)x?\))?(?=$|[ ,%(])"
)
COMMAND = re.compile(r"`([^`]*)`")
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid #ddd; }
p, li { max-width: 60rem; }
"""
MOST_ROWS = 60  # a table with more rows gets no bars
ROW_PX, MARGINS_PX = 24, 90  # height of a row, and of both margins together


@dataclass(frozen=True, slots=True)
class Figure:
    """`low`, `high`: the interval; both equal `value` if there is none. `ratio`: whether an `x`
    follows the number."""

    value: float
    low: float
    high: float
    ratio: bool


def figure_of(cell: str) -> Figure | None:
    """The figure at the beginning of a cell."""
    match = FIGURE.match(cell.strip())
    if match is None:
        return None
    value = float(match["value"].replace(",", ""))
    low, high = (float(match[end]) if match[end] else value for end in ("low", "high"))
    return Figure(value, low, high, bool(match["ratio"]))


def chart(markdown: str) -> str:
    """Markdown as HTML. Supports headings, lists, paragraphs and tables."""
    lines = markdown.splitlines()
    title = next((line.lstrip("# ") for line in lines if line.startswith("#")), "bench")
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join(_parts(lines))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def bars(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> go.Figure | None:
    """A panel for each column with at least two figures, except the first column. None without a
    panel, or with more than MOST_ROWS rows."""
    by_head = {head: [figure_of(row[i]) for row in rows] for i, head in enumerate(heads) if i}
    columns = {head: each for head, each in by_head.items() if len(each) - each.count(None) > 1}
    if not columns or len(rows) > MOST_ROWS:
        return None
    panels = make_subplots(cols=len(columns), shared_yaxes=True, subplot_titles=list(columns))
    # Numbered: plotly draws one bar for all rows that have the same name.
    names = [f"{number}. {row[0]}" for number, row in enumerate(rows, start=1)]
    for col, figures in enumerate(columns.values(), start=1):
        complete = {name: each for name, each in zip(names, figures, strict=True) if each}
        values = [each.value for each in complete.values()]
        options = {"orientation": "h", "error_x": _error_bars(complete), "marker_color": COLOURS[0]}
        bar = go.Bar(x=values, y=list(complete), **options)
        panels.add_trace(bar, row=1, col=col)
        if all(each.ratio for each in complete.values()):
            panels.add_vline(x=1, line_color="#777777", row=1, col=col)
    # Reversed: plotly draws the first category at the bottom.
    panels.update_yaxes(categoryorder="array", categoryarray=names[::-1])
    height = MARGINS_PX + ROW_PX * len(rows)
    panels.update_layout(height=height, showlegend=False, template="simple_white")
    return panels


def _parts(lines: Sequence[str]) -> Iterator[str]:
    rows: list[list[str]] = []
    with_script = True  # plotly.js is included once in a page
    for line in [*lines, ""]:  # the added empty line ends a table
        if line.startswith("| "):
            rows.append([cell.replace("\\|", "|") for cell in re.split(r" \| ", line[2:-2])])
            continue
        if rows:
            heads, *rest = [row for row in rows if set(row) != {"---"}]
            yield _table(heads, rest)
            if (panels := bars(heads, rest)) is not None:
                yield to_html(panels, full_html=False, include_plotlyjs=with_script)
                with_script = False
            rows = []
        if line.startswith("#"):
            level = min(len(line) - len(line.lstrip("#")), 6)
            yield f"<h{level}>{_inline_html(line.lstrip('# '))}</h{level}>"
        elif line.startswith("- "):
            yield f"<ul><li>{_inline_html(line[2:])}</li></ul>"
        elif line.strip():
            yield f"<p>{_inline_html(line)}</p>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{_inline_html(name)}</th>" for name in heads)]
    lines += ["".join(f"<td>{_inline_html(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _inline_html(text: str) -> str:
    return COMMAND.sub(r"<code>\1</code>", escape(text, quote=False))


# Distinguishable with colour blindness; all but the grey are of Okabe and Ito.
COLOURS = ("#0072b2", "#e69f00", "#6b7280", "#009e73", "#cc79a7")
WIDTH, HEIGHT = 1120, 640
TO_SVG = "(figure) => Plotly.toImage(figure, { format: 'svg' })"


def bar(
    name: str, groups: Sequence[str], estimates: Mapping[str, Estimate | None], **options: Any
) -> go.Bar:
    """A bar with its interval for each group that has an estimate. The option `base` is the value
    at which bars begin; 0 by default."""
    known_groups = {group: each for group in groups if (each := estimates.get(group)) is not None}
    values = [each.value - options.get("base", 0.0) for each in known_groups.values()]
    error = {**_error_bars(known_groups), "thickness": 1, "width": 2}
    return go.Bar(name=name, x=list(known_groups), y=values, error_y=error, **options)


def _error_bars(measured: Mapping[str, Any]) -> dict[str, Any]:
    # plotly takes distances from the value, not the ends of the interval.
    high = [each.high - each.value for each in measured.values()]
    return {
        "type": "data",
        "array": high,
        "arrayminus": [each.value - each.low for each in measured.values()],
    }


def picture_command(
    name: str,
    files: Mapping[str, Path | None],
    picture: str,
    draw: Callable[..., go.Figure],
    argv: Sequence[str] | None,
) -> int:
    """Runs `python -m bench.NAME`: draws a picture from result files. `files`: argument names with
    default paths; None: required. The picture is an HTML page if its path ends in .html, else an
    SVG. Returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}")
    for argument, default in {**files, "picture": Path(picture)}.items():
        nargs = None if default is None else "?"
        parser.add_argument(argument, nargs=nargs, type=Path, default=default)
    options = vars(parser.parse_args(argv))
    path = options.pop("picture")
    try:
        _write(path, draw(*(Results.load(file, name) for name, file in options.items())))
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(path)
    return 0


def _write(path: Path, figure: go.Figure) -> None:
    figure.update_layout(template="simple_white", width=WIDTH, height=HEIGHT)
    picture = figure.to_html() if path.suffix == ".html" else _svg(figure)
    write_file("picture", path, picture)


def _svg(figure: go.Figure) -> str:
    from bench.page.browser import chromium

    with chromium("picture") as browser:
        page = browser.new_page()
        page.add_script_tag(path=str(files("plotly") / "package_data" / "plotly.min.js"))
        address = str(page.evaluate(TO_SVG, figure.to_plotly_json()))
    # A data URL: the SVG follows its comma, percent-encoded.
    return unquote(address.partition(",")[2])
