"""`traversal` on small trees made by hand."""

from collections.abc import Callable
from importlib import import_module

import pytest
import torch

from core.trees.noise import Key
from core.trees.sampling import Target
from core.trees.tree import ROOT
from core.trees.verify import Verdict, VerifyInput, verify
from core.trees.verify.base import ChildProposal
from tests.core.verify.cases import (
    DRAWN,
    P,
    Q,
    Refusing,
    case_of,
    certain,
    drawn_proposal,
    logits,
    tree_of,
    walks,
)  # fmt: skip
from tests.laws.enumeration import WalkNoise, every_walk

rest = import_module(
    "core.trees.verify.traversal"
)._rest  # in the package, the function `traversal` hides the module
FIRST = Q[0].tolist()  # 0.2 0.5 0.3; Q[1] is 0.6 0.2 0.2


def chance(result: list[tuple[float, Verdict]], counts: Callable[[Verdict], bool]) -> float:
    return sum(probability for probability, verdict in result if counts(verdict))


def near(value: float) -> object:
    return pytest.approx(value, abs=1e-7)


#  0:"1" ── 2:"0" ── 3:"0"       1:"2"
#                 └─ 4:"2"
BRANCHED = tree_of(
    (1, ROOT, [drawn_proposal(0, 0, 1)]),
    (2, ROOT, [drawn_proposal(1, 0, 2)]),
    (0, 0, [drawn_proposal(0, 0, 0, 1)]),
    (0, 2, [drawn_proposal(0, 0, 0, 1)]),
    (2, 2, [drawn_proposal(1, 0, 2, 1)]),
)


def test_leaves_are_tried_before_their_parents() -> None:
    trials = verify("traversal", case_of(BRANCHED, Refusing())).trials
    assert [t.node for t in trials] == [3, 4, 2, 0, 1]
    assert not any(t.accepted for t in trials)


class Recording(Refusing):
    def coin(self, prob: float, key: Key) -> bool:
        assert key not in self.asked
        self.asked.add(key)
        return super().coin(prob, key)


def test_every_node_has_its_own_coin_keyed_by_its_draws() -> None:
    noise = Recording()
    tree = tree_of(
        (1, ROOT, [certain(2)]),
        (2, ROOT, [certain(2, 1)]),
        (0, 0, [certain(2)]),
        (0, 2, [certain(2)]),
        (2, 2, [certain(2, 1)]),
    )
    verify("traversal", case_of(tree, noise))
    first = (2, 0)
    assert noise.asked == {
        ("accept", 9, (), 0),
        ("accept", 9, (), 1),
        ("accept", 9, (first,), 0),
        ("accept", 9, (first, first), 0),
        ("accept", 9, (first, first), 1),
        ("final", 9, ()),
    }


def test_a_probable_continuation_raises_the_chance_of_its_path() -> None:
    """The leaf's chance is min(1, 0.6 * 0.5 / 0.2) = 1."""
    tree = tree_of((1, ROOT, [drawn_proposal(0, 0, 1)]), (0, 0, [drawn_proposal(0, 0, 0)]))
    result = walks("traversal", tree)
    assert chance(result, lambda v: v.path == (0, 1)) == near(1.0)
    record = result[0][1].trials
    assert [(t.node, t.accepted) for t in record] == [(1, True), (0, True)]
    assert [t.p for t in record] == pytest.approx([0.6 * 0.5, 0.3], abs=1e-7)
    assert [t.q for t in record] == [0.2, 0.5]


def test_a_rejected_leaf_passes_its_chance_to_its_parent() -> None:
    """The chances are 0.6 and 0.6 * 0.3 / 0.5 = 0.36. After the leaf's rejection max(0, 0.6 p - q)
    is (0.1, 0, 0), and the first token's chance is 0.1 / (0.1 + 1 - 0.6) = 0.2."""
    tree = tree_of((1, ROOT, [drawn_proposal(0, 0, 1)]), (1, 0, [drawn_proposal(0, 0, 1)]))
    result = walks("traversal", tree)
    assert chance(result, lambda v: v.path == (0, 1)) == near(0.36)
    assert chance(result, lambda v: v.path == (0,)) == near(0.64 * 0.2)
    assert {v.own_token_id for _, v in result if v.path == (0,)} == {0}
    assert {v.own_kind for _, v in result if v.path == (0,)} == {"recovered"}
    # At the root max(0, p - q) = (0.3, 0, 0).
    assert {v.own_token_id for _, v in result if not v.path} == {0}


def test_a_repeated_proposal_is_rejected_and_its_q_is_subtracted() -> None:
    """After the first rejection p becomes M = norm(max(0, p - q)) = (0.75, 0, 0.25)."""
    q = torch.tensor([[0.2, 0.6, 0.2], [0.3, 0.3, 0.4]], dtype=torch.float64)
    tree = tree_of((1, ROOT, [drawn_proposal(0, 0, 1), drawn_proposal(1, 0, 1, 1)]))
    target = Target(logits([0.5, 0.2, 0.3], P), DRAWN)
    refused = verify(
        "traversal", VerifyInput(tree, target, 9, Refusing(), draft_distributions={0: q, 1: q})
    )
    assert [(t.drafter, t.accepted) for t in refused.trials] == [(0, False), (1, False)]
    assert [t.p for t in refused.trials] == pytest.approx([0.2, 0.0], abs=1e-7)

    def run(noise: WalkNoise) -> Verdict:
        return verify(
            "traversal", VerifyInput(tree, target, 9, noise, draft_distributions={0: q, 1: q})
        )

    walked = [(noise.probability, verdict) for noise, verdict in every_walk(run)]
    # max(0, M - q') for q' = (0.3, 0.3, 0.4) is positive for token 0 alone.
    assert {v.own_token_id for _, v in walked if not v.path} == {0}
    assert chance(walked, lambda v: not v.path) == near(1 - 0.2 / 0.6)


def test_a_branch_is_walked_once_however_often_it_is_proposed() -> None:
    """With q = p, the residual is p: a second walk of the branch could accept the branch."""
    tree = tree_of(
        (1, ROOT, [drawn_proposal(0, 0, 1), drawn_proposal(1, 0, 1)]),
        (0, 0, [drawn_proposal(0, 0, 0)]),
    )
    trials = verify("traversal", case_of(tree, Refusing(), FIRST, P, P)).trials
    assert [(t.node, t.drafter) for t in trials] == [(1, 0), (0, 0), (0, 1)]


@pytest.mark.parametrize("epsilon", [1e-2, 1e-5, 1e-8, 1e-11])
def test_the_roots_chance_stays_exactly_1(epsilon: float) -> None:
    q = torch.tensor([0.2 - epsilon, 0.5 + epsilon, 0.3], dtype=torch.float64)
    new_chance, residual = rest(
        1.0, torch.tensor(FIRST, dtype=torch.float64), ChildProposal(0, 1, 0, 0, q)
    )
    assert new_chance == 1.0
    assert residual.tolist() == [1.0, 0.0, 0.0]


def test_a_node_is_tried_once_whoever_drafted_below_it() -> None:
    tree = tree_of(
        (1, ROOT, [drawn_proposal(0, 0, 1), drawn_proposal(1, 0, 1)]),
        (0, 0, [drawn_proposal(1, 0, 0)]),
    )
    result = walks("traversal", tree)
    assert chance(result, lambda v: v.path == (0, 1)) == near(1.0)
    assert {t.drafter for _, v in result for t in v.trials if t.node == 0} == {0}


def test_full_acceptance_has_a_bonus_from_the_leafs_own_p() -> None:
    tree = tree_of((1, ROOT, [certain(2)]), (0, 0, [certain(2)]))
    sure, then = [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]
    result = walks("traversal", tree, sure, then, P)
    assert {(v.path, v.own_kind) for _, v in result} == {((0, 1), "bonus")}
    assert {v.own_token_id: p for p, v in result} == {0: near(0.5), 1: near(0.3), 2: near(0.2)}


def test_nothing_below_an_end_of_text_is_tried() -> None:
    tree = tree_of((1, ROOT, [certain(2)]), (0, 0, [certain(2)]))
    result = walks("traversal", tree, P, P, P, eos=(1,))
    assert {(v.path, v.own_kind) for _, v in result} == {((0,), "none"), ((), "recovered")}
    assert {t.node for _, v in result for t in v.trials} == {0}


def test_trials_below_a_rejected_branch_are_reported() -> None:
    verdict = verify("traversal", case_of(BRANCHED, Refusing()))
    assert verdict.outcomes(BRANCHED) == ("rejected",) * 5
    accepting = verify("traversal", case_of(BRANCHED, WalkNoise()))
    assert accepting.path == (0, 2, 3)
    outcomes = ("accepted", "rejected", "accepted", "accepted", "rejected")
    assert accepting.outcomes(BRANCHED) == outcomes
    assert [t.node for t in accepting.trials] == [3, 2, 0]
