"""The laws' tools: pairwise rows, walks, and noise."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from core.config import LENGTHS
from core.config.mechanisms import WEIGHTS
from tests.laws import test_law1_bundled as law1
from tests.laws import test_law2_match as law2
from tests.laws.enumeration import KeyAskedTwiceError, WalkNoise, every_walk
from tests.laws.pairwise import NEVER, Row, missing_pairs, of_effect, pairwise
from tests.laws.shared_noise import SharedNoise, by_position

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


WITHOUT_EFFECT: tuple[Row, ...] = (
    {"pipeline": "auto", "drafters": ("ngram",)},
    {"pipeline": "across", "mode": "alone"},
    {"schedule": "shared", "mode": "alone"},
    {"pipeline": "ahead", "combine": "log_pool"},
    {"combine": "vote", "draft": "best_first"},
    {"combine": "union", "weights": "paper"},
)


@pytest.mark.parametrize("law", [law1, law2], ids=["law 1", "law 2"])
def test_every_allowed_pair_is_covered_by_rows_in_which_it_has_an_effect(law: Any) -> None:
    assert missing_pairs(law.PAIRS, law.FIELDS, law.is_allowed) == set()
    assert not any(map(of_effect, WITHOUT_EFFECT))
    rows = law.ROWS
    drafting = [row for row in rows if row["drafters"] and row["speculation_length"]]
    assert len(rows) - len(drafting) == len(NEVER)
    assert all(map(of_effect, drafting))
    for pipeline in ("across", "ahead", "auto"):
        own_rows = [row for row in drafting if row["pipeline"] == pipeline]
        assert {row["length"] for row in own_rows} == set(LENGTHS)
        assert {row["weights"] for row in own_rows} == set(WEIGHTS)
        assert "best_first" in {row["draft"] for row in own_rows}
        assert "uncut" in {row["max_tree_nodes"] for row in own_rows}


KINDS = (WalkNoise, SharedNoise)


def test_control_the_noise_refuses_a_repeated_key() -> None:
    noise = WalkNoise()
    noise.coin(0.5, ("accept", 3))
    with pytest.raises(KeyAskedTwiceError):
        noise.coin(0.5, ("accept", 3))


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_all_walks_add_up_to_1(kind: Callable[[Sequence[int]], WalkNoise]):
    def run(noise: WalkNoise) -> bool:
        coins = ((0.25, ()), (1.0, ((0, 0),)), (0.5, ((0, 0), (0, 0))))
        return all(noise.coin(prob, ("accept", 4, path, 0)) for prob, path in coins)

    results = [(noise.probability, answer) for noise, answer in every_walk(run, kind=kind)]
    assert results == [(0.125, True), (0.125, False), (0.75, False)]


def test_by_position_gives_the_position_of_the_decided_token() -> None:
    assert by_position(("draft", 7, 0, (0, 1), 2)) == ("draft", 10)
    assert by_position(("accept", 7, ((0, 0),), 1)) == ("accept", 9)
    assert by_position(("final", 7, ())) == ("final", 8)


def test_shared_noise_restricts_later_answers() -> None:
    """All answers read one uniform number u: the coins are u < 0.25 and u < 0.5."""

    def run(noise: WalkNoise) -> tuple[bool, bool, int]:
        accepted, later = noise.coin(0.25, ("accept", 4, ((0, 0),), 0)), ("accept", 5, (), 0)
        weights = torch.tensor([1.0, 1.0, 2.0])
        return accepted, noise.coin(0.5, later), noise.choose(weights, ("accept", 5, (), 1))

    results = {answer: noise.probability for noise, answer in every_walk(run, kind=SharedNoise)}
    assert results == {(True, True, 0): 0.25, (False, True, 1): 0.25, (False, False, 2): 0.5}
