"""The `batch` suite: every size decodes the same requests; other ids than alone are a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.context import Context
from bench.ours import decode
from bench.suites.batch import Batch, failures, tables

MakeContext = Callable[..., Context]


def test_other_ids_than_alone_are_a_failure(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(engine: Any, cases: Any, speculation: Any, together: int = 1) -> list[Any]:
        found = decode(engine, cases, speculation, together)
        if together > 1:
            found[1]["token_ids"][-1] += 1
        return list(found)

    monkeypatch.setattr("bench.suites.batch.decode", wrong)
    context = make_context()
    Batch(sizes=(1, 2), presets=("autoregressive",)).measure(context)
    other = context.prompts[1].id
    assert failures(context.results) == tuple(
        f"autoregressive, T={t}, 2 at a time: other ids than alone for {other}"
        for t in ("0", "0.8")
    )


def test_a_table_says_totals_and_gains(make_context: MakeContext) -> None:
    results = make_context().results
    for repeat, seconds in enumerate((2.0, 4.0)):
        figures = {
            "1": {"tokens": 64, "seconds": seconds, "differ": []},
            "4": {"tokens": 64, "seconds": seconds / 2, "differ": []},
        }
        key = {"dtype": "float32", "temperature": 0.0, "preset": "best", "repeat": repeat}
        results.add({**key, "figures": figures})
    (shown,) = tables(results)
    assert "| best | 24 (16 to 32) | 48 (32 to 64), 2.00x (2.00 to 2.00) |" in shown
    assert "those they have alone: 0." in shown
