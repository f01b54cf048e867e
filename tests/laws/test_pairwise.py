"""The generator of rows keeps its promise."""

from __future__ import annotations

from tests.laws.pairwise import Row, missing_pairs, pairwise

FIELDS = {"a": (0, 1, 2), "b": ("x", "y"), "c": (None, True, 3.5), "d": ((), (1,))}


def not_both(row: Row) -> bool:
    return not (row.get("a") == 1 and row.get("b") == "x")


def test_every_pair_is_covered_by_few_rows() -> None:
    rows = pairwise(FIELDS)
    assert missing_pairs(rows, FIELDS) == set()
    assert 9 <= len(rows) <= 14  # the full product has 36


def test_forbidden_pairs_do_not_occur() -> None:
    rows = pairwise(FIELDS, not_both)
    assert all(not_both(row) for row in rows)
    assert missing_pairs(rows, FIELDS, not_both) == set()


def test_control_a_missing_row_is_noticed() -> None:
    rows = pairwise(FIELDS)
    assert any(missing_pairs([r for r in rows if r is not row], FIELDS) for row in rows)
