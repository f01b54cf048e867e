"""How a picture's command ends: the plotly figure written as SVG or HTML, or one line saying what
is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import plotly.graph_objects as go

from bench.results import Results, write_text
from core.errors import SpecScopeError
from lab.figures import Estimate

# Told apart by readers who see few colours (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#6b7280", "#009e73", "#cc79a7")
WIDTH, HEIGHT = 1120, 640
TO_SVG = "(figure) => Plotly.toImage(figure, { format: 'svg' })"


def bar(
    name: str, groups: Sequence[str], found: Mapping[str, Estimate | None], **options: Any
) -> go.Bar:
    """A bar with its interval for each group that has an estimate; `base`: where they begin."""
    known = {group: each for group in groups if (each := found.get(group)) is not None}
    base = options.get("base", 0.0)
    spread = {
        "array": [each.high - each.value for each in known.values()],
        "arrayminus": [each.value - each.low for each in known.values()],
        "thickness": 1,
        "width": 2,
    }
    return go.Bar(
        name=name,
        x=list(known),
        y=[each.value - base for each in known.values()],
        error_y={"type": "data", **spread},
        **options,
    )


def picture_command(
    name: str,
    files: Mapping[str, Path | None],
    picture: str,
    draw: Callable[..., go.Figure],
    argv: Sequence[str] | None,
) -> int:
    """`python -m bench.NAME`: draws what is made of `files` of results (arguments with their
    defaults), writes the picture and prints where; exit status 0, or 2 with one line on standard
    error. A path that ends with .html is a page with plotly.js in it; SVG is made by a Chromium."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}")
    for argument, default in {**files, "picture": Path(picture)}.items():
        nargs = None if default is None else "?"
        parser.add_argument(argument, nargs=nargs, type=Path, default=default)
    given = vars(parser.parse_args(argv))
    path = given.pop("picture")
    try:
        _write(path, draw(*map(Results.load, given.values())))
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(path)
    return 0


def _write(path: Path, figure: go.Figure) -> None:
    figure.update_layout(template="simple_white", width=WIDTH, height=HEIGHT)
    picture = figure.to_html() if path.suffix == ".html" else _svg(figure)
    write_text("picture", path, picture)


def _svg(figure: go.Figure) -> str:
    from bench.page.browser import chromium

    with chromium("picture") as browser:
        page = browser.new_page()
        page.add_script_tag(path=str(files("plotly") / "package_data" / "plotly.min.js"))
        address = str(page.evaluate(TO_SVG, figure.to_plotly_json()))
    return unquote(address.partition(",")[2])
