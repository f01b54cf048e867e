"""The `passes` suite: all contestants are timed at every count, rows given back, tables read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from bench.context import Context
from bench.suites.passes import contestants, tables
from core.errors import EngineError
from core.models.loading.load import LoadedModels

MakeContext = Callable[..., Context]


def test_a_table_says_medians_and_growth(make_context: MakeContext) -> None:
    results = make_context().results
    for repeat, (one, four) in enumerate([(1.0, 3.0), (2.0, 4.0), (9.0, 5.0)]):
        for tokens, ms in ((1, one), (4, four)):
            figures: dict[str, Any] = {"reading": 0.5 + repeat, "LLM": ms}
            results.add({"dtype": "float32", "tokens": tokens, "repeat": repeat, "ms": figures})
    (shown,) = tables(results)
    assert "| LLM | 2.00 | 4.00 (2.00x) |" in shown
    assert "| reading | 1.50 |  |" in shown


def test_rows_are_given_back_and_a_failing_pass_is_no_figure(
    family: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as leaving:
        passes = contestants(family, leaving)
        passes["5 SSMs, together"](2)

        def broken(*_: object) -> list[list[torch.Tensor]]:
            raise RuntimeError("no memory")

        stack: Any = next(iter(family.ssms.values())).stack  # type: ignore[attr-defined]
        monkeypatch.setattr(stack, "forward", broken)
        with pytest.raises(RuntimeError, match="no memory"):
            passes["5 SSMs, together"](2)
    for model in (family.llm, *family.ssms.values()):
        with pytest.raises(EngineError, match="not open"):
            model.length(0)
