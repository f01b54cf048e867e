"""Warm-up of the lookups' compiled functions."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters import count_table, suffix, table
from core.speculation_length.cost_model import ledger
from tests.core.engines import engine_of, tables

FUNCTIONS = (
    (suffix, "add_tokens"),
    (suffix, "find_tree"),
    (suffix, "likeliest_nodes"),
    (table, "grow_tree"),
    (count_table, "count_tokens"),
)


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> set[tuple[Any, ...]]:
    seen: set[tuple[Any, ...]] = set()

    def note(module: Any, name: str) -> None:
        function = getattr(module, name)

        def noting(*arguments: Any) -> Any:
            seen.add((name, *map(numba.typeof, arguments)))
            return function(*arguments)

        monkeypatch.setattr(module, name, noting)

    for module_and_name in FUNCTIONS:
        note(*module_and_name)
    return seen


def test_warm_up_compiles_all_that_runs_call(
    signatures: set[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[object] = []
    measure = ledger.measure_verify_costs
    monkeypatch.setattr(
        ledger, "measure_verify_costs", lambda llm: timed.append(llm) or measure(llm)
    )
    engine: Engine = engine_of(*tables())
    engine.warm_up()
    compiled = set(signatures)
    assert {name for name, *_ in compiled} == {name for _, name in FUNCTIONS}
    for prompt in ((0, 1, 2, 3), (4, 5, 6), (0, 1, 2, 3)):
        config = SpeculationConfig(drafters=("ngram", "suffix", "table", "all"), length="goodput")
        request = Request("w0", SamplingParams(20, seed=1), config, prompt_token_ids=prompt)
        list(engine.generate(request))
    assert signatures == compiled
    assert timed == [engine.models.llm]


def test_warm_up_teaches_the_engines_drafters_nothing(signatures: set[tuple[Any, ...]]) -> None:
    engine = engine_of(*tables())
    engine.warm_up()
    _, suffixes, counts = engine._drafting.by_names(("ngram", "suffix", "table"))
    assert not suffixes._texts and not counts._text_hashes
