"""A suite's report as one HTML page: its tables, with a bar and its interval in each cell of
figures.

Read from the Markdown, so that both say the same. Needs no library, no script and no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Figure", "chart", "figure_of"]

# 1.52x (1.47 to 1.60); 877.3 (739.0 to 1095.7); 0.75 (1.36x); 38.0 %
FIGURE = re.compile(
    r"^(?P<value>-?[\d,]*\.?\d+)(?P<ratio>x?)"
    r"(?: \((?P<low>-?[\d.]+)x? to (?P<high>-?[\d.]+)x?\))?(?=$|[ ,%(])"
)
COMMAND = re.compile(r"`([^`]*)`")
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem; }
table { border-collapse: collapse; margin: 0 0 2rem; }
th, td { text-align: left; padding: 3px 14px 6px 0; border-bottom: 1px solid #ddd; }
th { vertical-align: bottom; }
td { vertical-align: top; white-space: nowrap; }
code { background: #f2f2f2; padding: 0 3px; }
svg { display: block; margin-top: 2px; }
ul { margin: 0; padding-left: 1.2em; }
p, li { max-width: 60rem; }
"""
WIDTH, HEIGHT = 150, 9  # of a bar's room, pixels
BAR, INK, ONE = "#0072b2", "#222222", "#b5b5b5"


@dataclass(frozen=True, slots=True)
class Figure:
    """What a cell says: a value with its interval, where it has one; `ratio`: against 1."""

    value: float
    low: float
    high: float
    ratio: bool


def figure_of(cell: str) -> Figure | None:
    """The figure that a cell begins with; None of other words."""
    found = FIGURE.match(cell.strip())
    if found is None:
        return None
    value = float(found["value"].replace(",", ""))
    low, high = (float(found[end]) if found[end] else value for end in ("low", "high"))
    return Figure(value, low, high, bool(found["ratio"]))


def chart(markdown: str) -> str:
    """The page of a report's Markdown: headings, lists, paragraphs and tables."""
    lines = markdown.splitlines()
    title = next((line.lstrip("# ") for line in lines if line.startswith("#")), "bench")
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join(_parts(lines))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _parts(lines: Sequence[str]) -> Iterator[str]:
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        if line.startswith("| "):
            rows.append([cell.replace("\\|", "|") for cell in re.split(r" \| ", line[2:-2])])
            continue
        if rows:
            yield _table(rows[0], [row for row in rows[1:] if set(row) != {"---"}])
            rows = []
        if line.startswith("#"):
            level = min(len(line) - len(line.lstrip("#")), 6)
            yield f"<h{level}>{_words(line.lstrip('# '))}</h{level}>"
        elif line.startswith("- "):
            yield f"<ul><li>{_words(line[2:])}</li></ul>"
        elif line.strip():
            yield f"<p>{_words(line)}</p>"


def _words(text: str) -> str:
    return COMMAND.sub(r"<code>\1</code>", escape(text, quote=False))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = [[row[i] if i < len(row) else "" for row in rows] for i in range(len(heads))]
    drawn = [_column(column, first=i == 0) for i, column in enumerate(columns)]
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in zip(*drawn, strict=True))
    head = "".join(f"<th>{_words(name)}</th>" for name in heads)
    return f"<table><tr>{head}</tr>\n" + "\n".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _column(cells: Sequence[str], first: bool) -> list[str]:
    """With bars where two cells or more hold figures, all to one scale."""
    found = [None if first else figure_of(cell) for cell in cells]
    known = [each for each in found if each is not None]
    top = max((each.high for each in known), default=0.0)
    if len(known) < 2 or top <= 0:
        return [_words(cell) for cell in cells]
    pairs = zip(cells, found, strict=True)
    return [_words(cell) + ("" if each is None else _bar(each, top)) for cell, each in pairs]


def _bar(figure: Figure, top: float) -> str:
    """From 0, with its interval; of ratios a mark at 1."""
    value, low, high, one = (
        WIDTH * min(max(x, 0.0), top) / top for x in (figure.value, figure.low, figure.high, 1.0)
    )
    middle = HEIGHT / 2
    parts = [f'<rect width="{value:.1f}" height="{HEIGHT}" fill="{BAR}"/>']
    if high > low:
        parts.append(
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{INK}" stroke-width="1.5"/>'
        )
    if figure.ratio and top >= 1.0:
        parts.append(f'<path d="M{one:.1f} 0V{HEIGHT}" stroke="{ONE}" stroke-width="2"/>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg {size} aria-hidden="true">{"".join(parts)}</svg>'
