"""The generator of rows keeps its promise."""

import pytest

from core.config import LENGTHS
from core.config.mechanisms import WEIGHTS
from tests.laws import test_law1_bundled as law1
from tests.laws import test_law2_match as law2
from tests.laws.pairwise import NEVER, Row, missing_pairs, of_effect, pairwise

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


IDLE: tuple[Row, ...] = (
    {"pipeline": "auto", "drafters": ("ngram",)},
    {"pipeline": "across", "mode": "alone"},
    {"pipeline": "ahead", "combine": "log_pool"},
    {"combine": "vote", "draft": "best_first"},
    {"combine": "union", "weights": "paper"},
)


@pytest.mark.parametrize("rows", [law1.ROWS, law2.ROWS], ids=["law 1", "law 2"])
def test_pairs_are_covered_where_they_are_of_effect(rows: list[Row]) -> None:
    """A row in which nobody drafts, or a value is idle, covers no pair of it."""
    assert not any(map(of_effect, IDLE))
    drafting = [row for row in rows if row["drafters"] and row["speculation_length"]]
    assert len(rows) - len(drafting) == len(NEVER)
    assert all(map(of_effect, drafting))
    for pipeline in ("across", "ahead", "auto"):
        met = [row for row in drafting if row["pipeline"] == pipeline]
        assert {row["length"] for row in met} == set(LENGTHS)
        assert {row["weights"] for row in met} == set(WEIGHTS)
        assert "best_first" in {row["draft"] for row in met}
        assert "uncut" in {row["max_tree_nodes"] for row in met}
