"""TableDrafter: learns from texts that have ended, repeats no run to itself, calibrates."""

from __future__ import annotations

import numpy as np
import pytest

from core.config import SpeculationConfig
from core.drafters import table as module
from core.drafters.base import DraftRequest
from core.drafters.count_table import add_text, new_table
from core.drafters.table import TableDrafter
from core.sequence import TokenSequence
from core.trees.draft import Draft
from tests.fakes import sequence_of

CONFIG = SpeculationConfig(drafters=("table",))


def opened(drafter: TableDrafter, prompt: list[int], run: str = "run") -> TokenSequence:
    sequence = sequence_of(prompt, CONFIG)
    sequence.run_id = run
    drafter.open(sequence)
    return sequence


def draft(
    drafter: TableDrafter, sequence: TokenSequence, shape: tuple[int, ...] = (2, 2, 2)
) -> Draft:
    (drafted,) = drafter.draft([DraftRequest(sequence, 0, "topk", shape, 16)])
    return drafted


def served(drafter: TableDrafter, prompt: list[int], text: list[int], run: str = "run") -> None:
    sequence = opened(drafter, prompt, run)
    sequence.tokens += text
    drafter.close(sequence)


def test_an_empty_table_drafts_nothing() -> None:
    drafter = TableDrafter("table")
    assert len(draft(drafter, opened(drafter, [1, 2, 3]))) == 0


def test_it_learns_from_texts_that_have_ended() -> None:
    drafter = TableDrafter("table")
    served(drafter, [1, 2], [3, 4, 5, 3, 4, 5])
    drafted = draft(drafter, opened(drafter, [9, 3]))
    assert drafted.token_ids[:3] == [4, 5, 3] and drafted.qs == [1.0] * len(drafted)


def test_the_prompt_is_context_and_is_not_counted() -> None:
    drafter = TableDrafter("table")
    served(drafter, [7, 8, 9], [1])
    assert draft(drafter, opened(drafter, [5, 7], "other")).token_ids == []
    assert draft(drafter, opened(drafter, [5, 8, 9], "third")).token_ids == [1]


def test_a_repeated_run_does_not_draft_from_itself() -> None:
    drafter = TableDrafter("table")
    served(drafter, [1, 2], [3, 4, 5])
    again = opened(drafter, [1, 2])
    assert len(draft(drafter, again)) == 0
    drafter.close(again)
    served(drafter, [1, 6], [7])
    # Counted since another prompt ran; taken out while its own runs again.
    assert draft(drafter, opened(drafter, [9, 3], "probe")).token_ids == [4, 5]
    again = opened(drafter, [1, 2])
    assert len(draft(drafter, again)) == 0


def test_a_text_is_not_counted_while_its_prompt_runs_beside() -> None:
    drafter = TableDrafter("table")
    served(drafter, [1, 2], [3, 4, 5], "first")
    again = opened(drafter, [1, 2], "again")
    opened(drafter, [8, 8], "other")
    assert len(draft(drafter, again)) == 0


def test_it_begins_with_counts_that_came_along() -> None:
    table = new_table(64)
    add_text(table, np.array([1, 2, 3], np.int64), 1)
    drafter = TableDrafter("table", table[table[:, -1] > 0])
    assert draft(drafter, opened(drafter, [1])).token_ids == [2, 3]


def test_scores_follow_the_acceptance_rate() -> None:
    drafter = TableDrafter("table")
    served(drafter, [1], [2, 3] * 20)
    sequence = opened(drafter, [9, 2])
    first = draft(drafter, sequence, (1,))
    for _ in range(10):
        drafter.commit(sequence, draft(drafter, sequence, (1,)), (8,))
    wrong = draft(drafter, sequence, (1,))
    assert wrong.scores[0] < 0.5 * first.scores[0]
    for _ in range(60):
        drafter.commit(sequence, draft(drafter, sequence, (1,)), (3, 7))
    assert draft(drafter, sequence, (1,)).scores[0] > 1.5 * wrong.scores[0]


def test_an_unverified_level_is_not_counted_as_wrong() -> None:
    drafter = TableDrafter("table")
    served(drafter, [1], [2, 3, 4] * 9)
    sequence = opened(drafter, [9, 2])
    before = draft(drafter, sequence, (1, 1)).scores
    # The run ended with the first node: what hung under it was never looked at.
    drafter.commit(sequence, draft(drafter, sequence, (1, 1)), (3,))
    assert draft(drafter, sequence, (1, 1)).scores == pytest.approx(before)


def test_memory_does_not_grow_with_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXTS", 8)
    monkeypatch.setattr(module, "NUM_CONTEXTS", 256)
    drafter, noise = TableDrafter("table"), np.random.default_rng(0)
    for run in range(10_000):
        served(drafter, [run, 5], noise.integers(0, 90, 12).tolist())
    assert len(drafter._counted) <= 8 and len(drafter._uncounted) <= 1
    assert drafter._table.shape == (256, 16)
    drafted = draft(drafter, opened(drafter, [3]))
    assert all(0 <= token < 90 for token in drafted.token_ids)
