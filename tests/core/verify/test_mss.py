"""`mss` on small trees made by hand: the order of trying, the ratio, what is left."""

import pytest

from core.trees.sampling import Target
from core.trees.tree import ROOT
from core.trees.verify import Verdict, VerifyInput, verify
from tests.core.verify.cases import DRAWN, Q, Refusing, certain, drawn, logits, tree_of
from tests.laws.enumeration import WalkNoise, every_walk


def test_mss_tries_proposals_by_drafter_then_by_draw() -> None:
    tree = tree_of(
        (2, ROOT, [drawn(1, 0, 2), drawn(0, 1, 2)]),
        (1, ROOT, [drawn(0, 0, 1), drawn(0, 2, 1)]),
        (0, ROOT, [certain(2)]),
    )
    p = [1e-9, 1e-9, 1 - 2e-9]
    case = VerifyInput(
        tree, Target(logits(p, p, p, p), DRAWN), 9, Refusing(), qs={0: Q, 1: Q, 2: None}
    )
    tried = verify("mss", case).trials
    assert [(t.drafter, t.node) for t in tried] == [(0, 1), (0, 0), (0, 1), (1, 0), (2, 2)]


def test_mss_accepts_with_the_ratio_and_keeps_the_residual() -> None:
    tree = tree_of((1, ROOT, [drawn(0, 0, 1)]))
    p = [0.5, 0.3, 0.2]

    def run(noise: WalkNoise) -> Verdict:
        return verify("mss", VerifyInput(tree, Target(logits(p, p), DRAWN), 9, noise, qs={0: Q}))

    walks = [(noise.probability, verdict) for noise, verdict in every_walk(run)]
    accepted = sum(probability for probability, verdict in walks if verdict.path)
    assert accepted == pytest.approx(0.3 / 0.5, abs=1e-7)
    recovered = {v.own_token_id: prob for prob, v in walks if not v.path}
    # p - q = (0.3, -0.2, -0.1): only token 0 is left.
    assert recovered == {0: pytest.approx(0.4, abs=1e-7)}
    assert {v.own_kind for _, v in walks} == {"bonus", "recovered"}


def test_a_deterministic_proposal_is_accepted_with_p() -> None:
    tree = tree_of((1, ROOT, [certain()]))
    p = [0.5, 0.3, 0.2]

    def run(noise: WalkNoise) -> Verdict:
        return verify("mss", VerifyInput(tree, Target(logits(p, p), DRAWN), 9, noise, qs={0: None}))

    walks = [(noise.probability, verdict) for noise, verdict in every_walk(run)]
    assert sum(prob for prob, v in walks if v.path) == pytest.approx(0.3, abs=1e-7)
    recovered = {v.own_token_id: prob for prob, v in walks if not v.path}
    assert recovered == {0: pytest.approx(0.5, abs=1e-7), 2: pytest.approx(0.2, abs=1e-7)}


def test_draws_without_replacement_are_tried_with_what_was_left() -> None:
    tree = tree_of((1, ROOT, [drawn(0, 0, 1)]), (0, ROOT, [drawn(0, 1, 0)]))
    p = [0.1, 0.1, 0.8]
    target = Target(logits(p, p, p), DRAWN)
    distinct = verify(
        "mss", VerifyInput(tree, target, 9, Refusing(), qs={0: Q}, distinct=True)
    ).trials
    assert [t.q for t in distinct] == pytest.approx([0.5, 0.2 / 0.5])
    independent = verify("mss", VerifyInput(tree, target, 9, Refusing(), qs={0: Q})).trials
    assert [t.q for t in independent] == pytest.approx([0.5, 0.2])


def test_mss_ends_at_an_end_of_text() -> None:
    tree = tree_of((1, ROOT, [certain()]))
    p = [0.0, 1.0, 0.0]
    case = VerifyInput(
        tree, Target(logits(p, p), DRAWN), 9, WalkNoise(), frozenset({1}), qs={0: None}
    )
    assert verify("mss", case) == Verdict((0,), None, "none", verify("mss", _again(case)).trials)


def _again(case: VerifyInput) -> VerifyInput:
    return VerifyInput(
        case.tree, case.target, case.root_position, WalkNoise(), case.eos_ids, case.qs
    )
