"""The page of a report: its tables, with bars as long as their figures."""

from __future__ import annotations

import pytest

from bench.chart import Figure, bars, chart, figure_of
from bench.tables import figure, ratio, table
from lab.figures import Estimate

FAST, SLOW = Estimate(2.0, 1.5, 2.5, 4), Estimate(0.5, 0.5, 0.5, 4)


@pytest.mark.parametrize(
    ("cell", "result"),
    [
        ("1.52x (1.47 to 1.60)", Figure(1.52, 1.47, 1.60, True)),
        ("877.3 (739.0 to 1095.7)", Figure(877.3, 739.0, 1095.7, False)),
        ("0.75 (1.36x)", Figure(0.75, 0.75, 0.75, False)),
        ("1,052", Figure(1052, 1052, 1052, False)),
        ("38.0 %", Figure(38, 38, 38, False)),
        ("-5.42 ms", Figure(-5.42, -5.42, -5.42, False)),
        ("883 (774 to 952), 1.14x (1.07 to 1.25)", Figure(883, 774, 952, False)),
        ("3 of 3", Figure(3, 3, 3, False)),
        ("-", None),
        ("", None),
        ("specinfer", None),
        ("4th", None),
    ],
)
def test_the_figure_at_the_beginning_of_a_cell(cell: str, result: Figure | None) -> None:
    assert figure_of(cell) == result


def test_a_page_has_the_tables_and_escapes_their_text() -> None:
    rows = [["ours", figure(FAST), ratio(FAST)], ["<b>theirs", figure(SLOW), ratio(SLOW)]]
    heads = ["contestant", "tokens/s", "/ `generate`"]
    page = chart(
        "\n".join(["## cpu", "", "- machine: A & B", "", table("Speed", heads, rows, "Note.")])
    )
    text = page.split("<script")[0]
    for fragment in ("<h2>cpu</h2>", "A &amp; B", "<h3>Speed</h3>", "<p>Note.</p>"):
        assert fragment in text
    assert "<b>theirs" not in text and "&lt;b&gt;theirs" in text
    assert "<code>generate</code>" in text
    assert "2.00 (1.50 to 2.50)" in text and "0.50x (0.50 to 0.50)" in text
    assert page.count("<table>") == 1 and page.count('class="plotly-graph-div"') == 1
    assert "<script src" not in page, "the page needs no network"


def test_two_tables_share_one_plotly_script() -> None:
    one = table("T", ["a", "b"], [["x", "1.0"], ["y", "2.0"]])
    page = chart(one + one)
    assert page.count('class="plotly-graph-div"') == 2
    assert len(page) < 1.5 * len(chart(one))


def test_a_bar_is_as_long_as_its_figure() -> None:
    heads = ["contestant", "kind", "tokens/s", "ratio"]
    rows = [["ours", "a", figure(FAST), ratio(FAST)], ["theirs", "b", figure(SLOW), ratio(SLOW)]]
    panels = bars(heads, rows)
    assert panels is not None
    speeds, ratios = panels.data  # columns without figures have no bars
    assert speeds.x == ratios.x == (2.0, 0.5) and speeds.y == ("1. ours", "2. theirs")
    assert speeds.error_x.array == (0.5, 0.0) and speeds.error_x.arrayminus == (0.5, 0.0)
    (line,) = panels.layout.shapes  # only the panel of ratios has a line at 1
    assert line.x0 == line.x1 == 1


def test_a_column_of_words_or_of_one_figure_has_no_bars() -> None:
    assert bars(["a", "b", "c"], [["x", "words", "1.0"], ["y", "more", "-"]]) is None
    assert bars(["a", "b"], [["x", "1.0"]] * 61) is None, "a table of more than 60 rows has no bars"
