"""One figure, one value: the browser rounds as Python does, what lies in the middle included."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.synthetic import synthetic_run
from ui.components.assets import version
from ui.frame import Baseline, Frame
from ui.values import figures_value
from ui.view import reduce_all

FIXED = """async ([base, told]) => {
  const { fixed, percent } = await import(base + "text.js");
  const { format } = await import(base + "grid_words.js");
  return told.map(([value, digits]) =>
    [fixed(value, digits), percent(value, digits), format(value, "x"), format(value, "tokens/s")]);
}"""


def numbers() -> list[float]:
    """Middles of every kind, neighbours of middles, what cannot be told exactly, and large ones."""
    halves = [k / 8 for k in range(801)] + [k / 16 for k in range(1, 400, 2)]
    beside = [x + d for x in (0.125, 2.625, 2.375, 61.5) for d in (1e-15, -1e-15, 1e-9, -1e-9)]
    decimals = [k / 1000 for k in range(5, 4000, 10)]
    shares = [n / m for m in (3, 7, 8, 40, 64, 160, 4096) for n in range(1, 60)]
    chance = random.Random(4)
    some = [chance.uniform(0, 10**e) for e in (-3, 0, 1, 2, 4) for _ in range(200)]
    return [*halves, *beside, *decimals, *shares, *some, -2.625, -0.375, 1e12 + 0.5, 0.0]


@pytest.mark.browser
def test_the_browser_rounds_as_python_does(show: Callable[..., Any], gallery_url: str) -> None:
    page = show("verify")
    told = [(value, digits) for value in numbers() for digits in (0, 1, 2, 3)]
    base = f"{gallery_url}specscope/{version()}/"
    for (value, digits), shown in zip(told, page.evaluate(FIXED, [base, told]), strict=True):
        expected = [
            f"{value:.{digits}f}",
            f"{value:.{digits}%}".replace("%", " %"),
            f"{value:.2f}x",
            f"{value:.1f}",
        ]
        assert shown == expected, (value, digits)


def test_figures_go_to_the_browser_unrounded() -> None:
    """2.62496 would be 2.625 with four digits, and then the other side of the middle."""
    view = reduce_all(synthetic_run(30, seed=4))
    value = figures_value(Frame(view=view, known=1, run_id="x"), Baseline(3.0, "plain", "measured"))
    for name in ("mean_acceptance_length", "tokens_per_second", "draft_acceptance_rate"):
        assert value[name] == getattr(view.stats, name)
    assert value["speedup"] == view.stats.tokens_per_second / 3.0
