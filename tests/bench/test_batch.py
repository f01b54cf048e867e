"""The `batch` and `passes` suites: every size decodes the same requests; other ids than alone are
a failure; rows are given back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch

from bench.contestants import decode
from bench.suites.batch import BatchSizes, failures
from bench.suites.passes import Passes, contestants
from core.errors import EngineError
from core.models.loading.load import LoadedModels


def test_other_ids_than_alone_are_a_failure(
    make_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(engine: Any, cases: Any, speculation: Any, together: int = 1) -> list[Any]:
        result = decode(engine, cases, speculation, together)
        if together > 1:
            result[1]["token_ids"][-1] += 1
        return list(result)

    monkeypatch.setattr("bench.suites.batch.decode", wrong)
    context = make_context()
    BatchSizes(sizes=(1, 2), presets=("autoregressive",)).measure(context)
    other = context.prompts[1].id
    assert failures(context.results) == tuple(
        f"autoregressive, T={t}, 2 at a time: other ids than alone for {other}"
        for t in ("0", "0.8")
    )


def test_a_table_says_medians_and_growth(make_context: Any) -> None:
    context = make_context()
    for repeat, (one, four) in enumerate([(1.0, 3.0), (2.0, 4.0), (9.0, 5.0)]):
        for tokens, ms in ((1, one), (4, four)):
            results: dict[str, Any] = {"ms": {"reading": 0.5 + repeat, "LLM": ms}}
            key = {"dtype": "float32", "tokens": tokens, "repeat": repeat}
            context.results.add({**key, **results})
    (shown,) = Passes().report(context).tables
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
