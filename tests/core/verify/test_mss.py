"""`mss` on small trees made by hand."""

import pytest

from core.trees.tree import ROOT
from core.trees.verify import Verdict, verify
from tests.core.verify.cases import Refusing, case_of, certain, drawn_proposal, tree_of, walks
from tests.laws.enumeration import WalkNoise

pytestmark = pytest.mark.parametrize("rule", ["mss", "traversal"])


def test_proposals_are_tried_by_drafter_then_by_draw(rule: str) -> None:
    tree = tree_of(
        (2, ROOT, [drawn_proposal(1, 0, 2), drawn_proposal(0, 1, 2)]),
        (1, ROOT, [drawn_proposal(0, 0, 1), drawn_proposal(0, 2, 1)]),
        (0, ROOT, [certain(2)]),
    )
    trials = verify(rule, case_of(tree, Refusing(), *[[1e-9, 1e-9, 1 - 2e-9]] * 4)).trials
    assert [(t.drafter, t.node) for t in trials] == [(0, 1), (0, 0), (0, 1), (1, 0), (2, 2)]


def test_a_drawn_token_is_accepted_with_the_ratio_and_leaves_the_residual(rule: str) -> None:
    result = walks(rule, tree_of((1, ROOT, [drawn_proposal(0, 0, 1)])))
    accepted = sum(probability for probability, verdict in result if verdict.path)
    assert accepted == pytest.approx(0.3 / 0.5, abs=1e-7)
    recovered = {v.own_token_id: prob for prob, v in result if not v.path}
    # p - q = (0.3, -0.2, -0.1): only token 0 is left.
    assert recovered == {0: pytest.approx(0.4, abs=1e-7)}
    assert {v.own_kind for _, v in result} == {"bonus", "recovered"}


def test_a_deterministic_proposal_is_accepted_with_p(rule: str) -> None:
    result = walks(rule, tree_of((1, ROOT, [certain(2)])))
    assert sum(prob for prob, v in result if v.path) == pytest.approx(0.3, abs=1e-7)
    recovered = {v.own_token_id: prob for prob, v in result if not v.path}
    assert recovered == {0: pytest.approx(0.5, abs=1e-7), 2: pytest.approx(0.2, abs=1e-7)}


def test_draws_without_replacement_are_tried_with_q_of_the_remaining_tokens(rule: str) -> None:
    tree = tree_of((1, ROOT, [drawn_proposal(0, 0, 1)]), (0, ROOT, [drawn_proposal(0, 1, 0)]))
    rows = [[0.1, 0.1, 0.8]] * 3
    distinct = verify(rule, case_of(tree, Refusing(), *rows, distinct=True)).trials
    assert [t.q for t in distinct] == pytest.approx([0.5, 0.2 / 0.5])
    independent = verify(rule, case_of(tree, Refusing(), *rows)).trials
    assert [t.q for t in independent] == pytest.approx([0.5, 0.2])


def test_an_accepted_end_of_text_has_no_token_after_it(rule: str) -> None:
    tree = tree_of((1, ROOT, [certain(2)]))
    verdict = verify(rule, case_of(tree, WalkNoise(), *[[0.0, 1.0, 0.0]] * 2, eos=(1,)))
    assert verdict == Verdict((0,), None, "none", verdict.trials)
