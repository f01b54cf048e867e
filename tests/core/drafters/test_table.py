"""TableDrafter: learning, drafts, scores and memory."""

from __future__ import annotations

import tracemalloc
from itertools import count

import numpy as np
import pytest

from core.config import SpeculationConfig
from core.drafters import table as module
from core.drafters.base import DraftRequest
from core.drafters.count_table import add_text, new_table
from core.drafters.table import TableDrafter, fold_of
from core.sequence import TokenSequence
from core.trees.draft import Draft
from tests.core.drafters.held import held_bytes
from tests.fakes import sequence_of

CONFIG = SpeculationConfig(drafters=("table",))


FOLDS = tuple(
    next([number, 5] for number in count() if fold_of((number, 5)) == fold)
    for fold in range(module.FOLDS)
)
"""A prompt for each value of `fold_of`."""


def open_sequence(drafter: TableDrafter, prompt: list[int], run: str = "run") -> TokenSequence:
    sequence = sequence_of(prompt, CONFIG)
    sequence.run_id = run
    drafter.open(sequence)
    return sequence


def draft(
    drafter: TableDrafter, sequence: TokenSequence, shape: tuple[int, ...] = (2, 2, 2)
) -> Draft:
    (drafted,) = drafter.draft([DraftRequest(sequence, 0, "topk", shape, 16)])
    return drafted


def serve(drafter: TableDrafter, prompt: list[int], text: list[int], run: str = "run") -> None:
    sequence = open_sequence(drafter, prompt, run)
    sequence.tokens += text
    drafter.learn(sequence)
    drafter.close(sequence)


def test_an_empty_table_drafts_nothing() -> None:
    drafter = TableDrafter("table")
    assert len(draft(drafter, open_sequence(drafter, [1, 2, 3]))) == 0


def test_the_drafter_learns_from_texts_that_have_ended() -> None:
    drafter = TableDrafter("table")
    serve(drafter, FOLDS[0], [3, 4, 5, 3, 4, 5])
    for prompt in FOLDS[1:]:
        sequence = open_sequence(drafter, prompt)
        sequence.tokens.append(3)
        drafted = draft(drafter, sequence)
        assert drafted.token_ids[:3] == [4, 5, 3] and drafted.qs == [1.0] * len(drafted)


def test_the_prompt_is_context_and_is_not_counted() -> None:
    drafter = TableDrafter("table")
    serve(drafter, [*FOLDS[0], 8, 9], [1])
    of_prompt, of_text = [], []
    for prompt in FOLDS:
        for end, drafts in ((FOLDS[0][0], of_prompt), (9, of_text)):
            sequence = open_sequence(drafter, prompt)
            sequence.tokens.append(end)
            drafts += draft(drafter, sequence).token_ids
    assert of_prompt == [] and of_text == [1] * (module.FOLDS - 1)


def rows_of(drafter: TableDrafter, prompt: list[int]) -> np.ndarray:
    open_sequence(drafter, prompt)
    return drafter._states["run"].table.copy()


def test_a_repeated_run_reads_nothing_of_its_own_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUM_CONTEXTS", 256)  # few: rows are overwritten
    noise = np.random.default_rng(0)
    texts = [(noise.zipf(1.5, 400) % 50 + 10).tolist() for _ in range(9)]
    prompts = [[number, 5] for number in range(9)]
    for without in (0, 4):
        drafter, other = TableDrafter("table"), TableDrafter("table")
        for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            serve(drafter, prompt, text)
            if number != without:
                serve(other, prompt, text)
        own = prompts[without]
        assert np.array_equal(rows_of(drafter, own), rows_of(other, own))
        assert rows_of(other, own).any()


def test_a_run_does_not_read_another_run_of_its_prompt() -> None:
    drafter = TableDrafter("table")
    again = open_sequence(drafter, [1, 2], "again")
    serve(drafter, [1, 2], [3, 4, 5], "first")
    assert len(draft(drafter, again)) == 0


def test_a_repeated_text_counts_once() -> None:
    once, twice = TableDrafter("table"), TableDrafter("table")
    for drafter, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            serve(drafter, FOLDS[0], [3, 4])
    assert np.array_equal(rows_of(once, FOLDS[1]), rows_of(twice, FOLDS[1]))
    serve(twice, FOLDS[0], [3, 5])
    assert not np.array_equal(rows_of(once, FOLDS[1]), rows_of(twice, FOLDS[1]))


def test_the_drafter_begins_with_the_given_counts() -> None:
    table = new_table(64)
    add_text(table, np.array([1, 2, 3], np.int64), 1)
    drafter = TableDrafter("table", table[table[:, -1] > 0])
    assert draft(drafter, open_sequence(drafter, [1])).token_ids == [2, 3]


def test_scores_follow_the_acceptance_rate() -> None:
    drafter = TableDrafter("table")
    serve(drafter, FOLDS[0], [2, 3] * 20)
    sequence = open_sequence(drafter, FOLDS[1])
    sequence.tokens.append(2)
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
    serve(drafter, FOLDS[0], [2, 3, 4] * 9)
    sequence = open_sequence(drafter, FOLDS[1])
    sequence.tokens.append(2)
    before = draft(drafter, sequence, (1, 1)).scores
    # The run ended with the first drafted token: the second token was not verified.
    drafter.commit(sequence, draft(drafter, sequence, (1, 1)), (3,))
    assert draft(drafter, sequence, (1, 1)).scores == pytest.approx(before)


def test_memory_does_not_grow_with_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUM_CONTEXTS", 256)
    drafter, noise = TableDrafter("table"), np.random.default_rng(0)
    full, bytes_then = 2 * module.TEXTS, 0
    for run in range(10_000):
        sequence = open_sequence(drafter, [run, 5], str(run))
        drafted = draft(drafter, sequence)
        text = noise.integers(0, 90, 12).tolist()
        drafter.commit(sequence, drafted, (text[0],))
        sequence.tokens += text
        drafter.learn(sequence)
        drafter.close(sequence)
        if run == full:
            bytes_then = held_bytes(drafter)
    # One pickled hash may take one byte more than another.
    assert held_bytes(drafter) < bytes_then + module.TEXTS
    assert len(drafter._text_hashes) == module.TEXTS and drafter._states == {}
    drafted = draft(drafter, open_sequence(drafter, [3]))
    assert all(0 <= token < 90 for token in drafted.token_ids)


def test_no_memory_is_kept_for_long_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUM_CONTEXTS", 256)
    drafter = TableDrafter("table")
    serve(drafter, [0], [1])
    tracemalloc.start()
    try:
        for run in range(50):
            serve(drafter, list(range(1000 * run, 1000 * run + 4000)), [5, run])
        traced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One prompt, as a list of numbers, takes at least 32,000 bytes.
    assert traced_bytes < 30_000
