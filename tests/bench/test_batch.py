"""Parts of the suites `batch` and `passes`."""

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
    def decode_wrongly(engine: Any, cases: Any, speculation: Any, together: int = 1) -> list[Any]:
        result = decode(engine, cases, speculation, together)
        if together > 1:
            result[1]["token_ids"][-1] += 1
        return list(result)

    monkeypatch.setattr("bench.suites.batch.decode", decode_wrongly)
    context = make_context()
    BatchSizes(sizes=(1, 2), presets=("autoregressive",)).measure(context)
    other = context.prompts[1].id
    assert failures(context.results) == tuple(
        f"autoregressive, T={t}, 2 at a time: other ids than alone for {other}"
        for t in ("0", "0.8")
    )


def test_the_passes_table_has_medians_and_ratios_to_one_token(make_context: Any) -> None:
    context = make_context()
    for repeat, (one, four) in enumerate([(1.0, 3.0), (2.0, 4.0), (9.0, 5.0)]):
        for tokens, ms in ((1, one), (4, four)):
            results: dict[str, Any] = {"ms": {"reading": 0.5 + repeat, "LLM": ms}}
            key = {"dtype": "float32", "tokens": tokens, "repeat": repeat}
            context.results.add({**key, **results})
    (passes_table,) = Passes().report(context).tables
    assert "| LLM | 2.00 | 4.00 (2.00x) |" in passes_table
    assert "| reading | 1.50 |  |" in passes_table


def test_rows_are_closed_and_a_failing_pass_raises(
    family: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as cleanup:
        passes = contestants(family, cleanup)
        passes["5 SSMs, together"](2)

        def raise_no_memory(*_: object) -> list[list[torch.Tensor]]:
            raise RuntimeError("no memory")

        stack: Any = next(iter(family.ssms.values())).stack  # type: ignore[attr-defined]
        monkeypatch.setattr(stack, "forward", raise_no_memory)
        with pytest.raises(RuntimeError, match="no memory"):
            passes["5 SSMs, together"](2)
    for model in (family.llm, *family.ssms.values()):
        with pytest.raises(EngineError, match="not open"):
            model.length(0)
