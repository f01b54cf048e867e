"""Parts of the suite `tables`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.row_reads import CACHE_LINE, _read_rows, new_memory, row_read_ns
from bench.suites import table_drafts, tables
from bench.suites.table_drafts import NODES, draft_figures
from bench.suites.tables_report import BOTH, lookup_tables, times_of
from bench.table_plan import FeatureTable
from core.drafters.count_table import add_text, new_table
from core.drafters.table import NUM_CONTEXTS
from core.models.loading.load import LoadedModels
from core.trees.draft import Draft

TEXT = [3, 4, 5, 6, 3, 4, 5, 7] * 6


@pytest.mark.parametrize("dependent", [False, True])
def test_later_reads_depend_on_the_values_read(dependent: bool) -> None:
    rows, lengths = np.array([1, 3, 16]), np.array([8, 4, 1])
    memory = new_memory(8 * (8 + 12 + 16))
    assert memory.ctypes.data % CACHE_LINE == 0 and len(memory) == 36
    first = _read_rows(memory, np.array([0, 8, 20]), rows, lengths, dependent, 200)
    memory[:] = 2
    assert _read_rows(memory, np.array([0, 8, 20]), rows, lengths, dependent, 200) != first


def test_tables_that_do_not_fit_the_memory_are_refused() -> None:
    tables = [FeatureTable((), 3, 24), FeatureTable((), 1, 8)]
    assert row_read_ns(new_memory(3 * CACHE_LINE), tables, 50) > 0
    with pytest.raises(ValueError, match="tables need 192 bytes; memory has 184"):
        row_read_ns(new_memory(3 * CACHE_LINE - 8), tables, 50)


def test_contexts_of_a_chain_of_nodes() -> None:
    """Token 7, an end of text, is not extended."""
    draft = Draft([5, 6, 7, 8], [-1, 0, 1, 1], contexts=(1, 2, 3, 1))
    assert table_drafts._contexts(draft, [7]) == [2, 3, 2]


def test_drafts_of_a_family(family: LoadedModels) -> None:
    """With four equal texts, one look-up finds a context's row; a table for each context
    length would need up to three look-ups."""
    result = draft_figures(family, [TEXT] * 4)
    assert result["looked"] == result["contexts"] > 0
    assert 2.5 < result["in_turn"] / result["contexts"] <= 3
    assert result["draft_nodes"] == NODES and result["timed"] > 0
    # After 3, 4, 5 come 6 or 7.
    assert result["covered"] == result["drafts"] > result["agreed"] >= result["drafts"] / 2


def test_drafts_read_a_table_with_all_counted_contexts(family: LoadedModels) -> None:
    result = draft_figures(replace(family, counts=None), [TEXT] * 4)
    assert result["table_bytes"] == 64 * NUM_CONTEXTS
    # A token follows each context.
    contexts = {tuple(TEXT[at - n : at]) for n in (1, 2, 3) for at in range(n, len(TEXT))}
    assert result["rows"] == len(contexts)


def test_drafts_use_the_counts_of_the_family(family: LoadedModels) -> None:
    """With a single text, the drafter itself has no other text to count."""
    table = new_table(64)
    add_text(table, np.array(TEXT, np.int64), 1)
    without, with_counts = (
        draft_figures(replace(family, counts=counts), [TEXT])
        for counts in (None, table[table[:, -1] > 0])
    )
    assert without["nodes"] == 0 and without["looked"] == 3 * without["contexts"]
    assert with_counts["nodes"] > 0 and with_counts["looked"] == with_counts["contexts"]


def run(tokens: int, rounds: int, distinct: float) -> dict[str, Any]:
    return {"tokens": tokens, "rounds": rounds, "distinct_4_grams": distinct, "id": str(tokens)}


def test_texts_that_loop_have_their_own_column(make_context: Any) -> None:
    results = make_context().results
    key = {"part": "passes", "family": "bundled", "temperature": 0.0, "contestant": BOTH}
    results.add({**key, "runs": [run(30, 10, 0.9), run(25, 10, 0.8), run(90, 10, 0.2)]})
    passes, claims = lookup_tables(results)
    (line,) = [line for line in passes.splitlines() if line.startswith(f"| {BOTH}")]
    assert "| 2.75 (2.50 to 3.00) | 9.00 (9.00 to 9.00) |" in line
    assert "1 of 3 texts loop" in passes
    assert "at least 2.8 | 2.75 (2.50 to 3.00) | not reached, by 0.05" in claims


def test_the_cost_of_back_off_in_turn_and_of_a_joined_row(make_context: Any) -> None:
    """2.4 reads in turn of 110 ns, compared with 1.2 single reads of 100 ns."""
    results = make_context().results
    times = {"1": 100.0, "2": 110.0, "4": 120.0, "8": 170.0, "2 in turn": 200, "3 in turn": 330.0}
    results.add({"part": "reads", "kb": 65_536, "repeat": 0, "figures": times})
    figures = {"looked": 12, "contexts": 10, "in_turn": 24, "nodes": 8, "us": 9.0}
    of_table = {"drafts": 8, "agreed": 3, "covered": 6, "rows": 77, "table_bytes": 16 << 20}
    drafts = {"table": {**figures, **of_table, "draft_nodes": 16}}
    results.add({"part": "drafts", "family": "smollm2", "repeat": 0, "figures": drafts})
    _, back_off, of_drafts, claims = lookup_tables(results)
    assert "| smollm2 | joined row | 1 | 1.20 | 1.20 | 120 " in back_off
    assert "| smollm2 | in turn | 3 | 2.40 | 2.40 | 264 " in back_off
    assert "| smollm2 | 77 | 16 | 37.5 | 75.0 | 16 | 9.0 " in of_drafts
    assert "smollm2: joined row, accesses a token | at most 1.05 | 1.20 | not reached" in claims
    assert "| at least 2.50x | 2.20x (2.20 to 2.20) | not reached, by 0.30 |" in claims
    assert "a draft of 16 nodes, us | at most 10 | 9.00 | reached" in claims
    measured = times_of(results)
    assert measured.alone == {65_536 * 1024: 100.0} and measured.beside == {65_536 * 1024: 10.0}


def test_smollm2_is_left_out_where_it_is_missing(
    make_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "local_smollm2", lambda: None)
    messages: list[str] = []
    assert tables._family(make_context(messages.append), "smollm2") is None
    assert messages == ["smollm2 is not on this machine and left out: `--llm smollm2` downloads it"]


def test_chat_prompts_are_those_of_smollm2(
    make_context: Any, monkeypatch: pytest.MonkeyPatch, family: LoadedModels
) -> None:
    monkeypatch.setattr(tables, "local_smollm2", lambda: "here")
    monkeypatch.setattr(tables, "load_models", lambda *_: family)
    context = make_context(prompts=5)
    result = tables._family(context, "smollm2")
    assert result is not None and result[0] is family
    chats = result[1]
    assert len(chats) == 5 and all(prompt.chat for prompt in chats)
    assert len({prompt.domain for prompt in chats}) == 5
    assert all(prompt.id.startswith("chat-") for prompt in chats)
    assert not any(prompt.id.startswith("chat-") for prompt in context.prompts)
