"""The tables of a study, in a real Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.components.bare import Pictures

pytestmark = pytest.mark.browser

SHOWN = 24
# Pixels that are out of sight, and the visible share of the row at the box's lower edge.
CUT = """(css) => {
  const box = document.querySelector(css);
  const bottom = box.getBoundingClientRect().bottom;
  const row = [...box.querySelectorAll("tbody tr")].map((one) => one.getBoundingClientRect())
    .find((one) => one.top < bottom - 1 && one.bottom > bottom + 1);
  return [box.scrollHeight - box.clientHeight, row ? (bottom - row.top) / row.height : null];
}"""


def prompts_value(count: int) -> dict[str, Any]:
    figures = {"mean": 3.0, "rate": 0.5, "speed": 100.0, "ratio": 1.5, "rejected": 1, "slot": 0}
    texts = {"domain": "", "settings": "specinfer", "detail": "64 tokens", "best": "ssm-code"}
    rest = {"drafters": {}, "positions": {"0": 0.8, "1": 0.4}, "against": "", "plain": 1}
    row = {**figures, **texts, **rest, "same": "identical", "idle": "", "runs": 1, "run": "r"}
    rows = {str(i): {**row, "id": str(i), "prompt": f"Prompt {i} " * 12} for i in range(count)}
    return {"of": "study", "words": "", "chosen": "", "rows": rows}


def points_value(count: int) -> dict[str, Any]:
    heads = ["Length", "speed-up", "spread", "tokens / s", "tokens / pass", "accepted"]
    heads += ["same text?", "runs"]
    cells = {str(i): {"t": str(i), "v": i} for i in range(len(heads))}
    row = {"mark": "", "found": "", "cells": cells}
    rows = {str(i): {**row, "point": i - 1} for i in range(count)}
    named = {str(i): head for i, head in enumerate(heads)}
    return {"study": "s", "words": "", "heads": named, "spread": "", "rows": rows, "best": 0}


def test_a_table_is_as_high_as_its_rows_and_a_long_one_shows_half_of_the_next(
    pictures: Pictures,
) -> None:
    for name, value in (("prompts", prompts_value), ("points", points_value)):
        check_table(pictures, name, value)


def check_table(pictures: Pictures, name: str, value: Any) -> None:
    page = pictures.page
    page.evaluate("(name) => pictures.build({ [name]: name })", name)

    def cut_of(count: int) -> Any:
        page.evaluate("(values) => pictures.show(values)", {name: value(count)})
        pictures.rest()
        return page.evaluate(CUT, f"#picture-{name} .ss-{name}-box")

    hidden, row = cut_of(SHOWN)
    assert hidden <= 1 and row is None, name
    hidden, row = cut_of(SHOWN + 6)
    assert hidden > 100 and row == pytest.approx(0.5, abs=0.15), name
    hidden, row = cut_of(SHOWN - 2)
    assert hidden <= 1 and row is None, name


def test_where_most_drafts_were_rejected_is_said_in_the_cell(pictures: Pictures) -> None:
    page, value = pictures.page, prompts_value(2)
    value["rows"]["1"]["rejected"] = None
    page.evaluate("() => pictures.build({ prompts: 'prompts' })")
    page.evaluate("(prompts) => pictures.show({ prompts })", value)
    pictures.rest()
    heads = page.locator("#picture-prompts thead th").all_text_contents()
    column = page.locator(f"#picture-prompts tbody td:nth-child({heads.index('rejected at') + 1})")
    assert column.all_text_contents() == ["token 2", "–"]
    assert column.first.get_attribute("title") == "Most rejections came at token 2 of a draft"
