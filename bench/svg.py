"""Pictures of figures as SVG text: bars with intervals, lines, axes. Knows nothing of what they
mean, and needs no library, so that a picture can be drawn wherever a table can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from lab.figures import Estimate

__all__ = ["COLOURS", "Panel", "bars", "legend", "line", "svg"]

# Told apart by readers who see few colours (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#6b7280", "#009e73", "#cc79a7")
TEXT = "#222222"
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle of the picture in pixels, and the values its edges stand for."""

    title: str
    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> Point:
        """The pixel of a value."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, self.top + (1 - up) * self.height

    def frame(self, y_ticks: Iterable[float], x_ticks: Sequence[tuple[float, str]]) -> list[str]:
        """Title, grid lines with their values, and the marks of the x axis."""
        parts = [text(self.left, self.top - 10, self.title, weight="bold")]
        right, bottom = self.left + self.width, self.top + self.height
        for tick in y_ticks:
            _, y = self.at(self.x[0], tick)
            parts.append(_segment((self.left, y), (right, y), "#dddddd"))
            parts.append(text(self.left - 6, y + 4, f"{tick:g}", anchor="end"))
        for x, label in x_ticks:
            parts.append(text(self.at(x, self.y[0])[0], bottom + 16, label, anchor="middle"))
        return [*parts, _segment((self.left, bottom), (right, bottom), TEXT)]


def bars(
    panel: Panel, x: float, width: float, found: Estimate | None, colour: str, base: float
) -> list[str]:
    """A bar from `base` to the value, centred on `x`, with its interval; nothing for nothing."""
    if found is None:
        return []
    left, at_value = panel.at(x - width / 2, found.value)
    right, at_base = panel.at(x + width / 2, base)
    # A bar of no height is still there.
    top, high = min(at_value, at_base), max(2.0, abs(at_base - at_value))
    middle, above = panel.at(x, found.high)
    _, below = panel.at(x, found.low)
    tip = escape(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
    return [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{high:.1f}" '
        f'fill="{colour}"><title>{tip}</title></rect>',
        _segment((middle, above), (middle, below), TEXT, 1.5),
    ]


def line(panel: Panel, points: Sequence[Point], colour: str) -> str:
    """A line through values."""
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in (panel.at(*point) for point in points))
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'


def legend(left: float, top: float, names: Sequence[str], step: float = 190) -> list[str]:
    """A coloured square and a name each, side by side."""
    parts = []
    for i, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        x = left + i * step
        parts.append(f'<rect x="{x}" y="{top - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(text(x + 18, top, name))
    return parts


def text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    """One line of words."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{TEXT}">{escape(words)}</text>'
    )


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """The whole picture on white; `title` is what a screen reader says."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>", ""])


def _segment(start: Point, end: Point, colour: str, width: float = 1.0) -> str:
    (x1, y1), (x2, y2) = start, end
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )
