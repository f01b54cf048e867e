"""Verification rules on small trees made by hand: the walk, the order of trying, the kinds."""

from __future__ import annotations

import pytest
import torch

from core.config import SamplingParams
from core.noise import SeededNoise
from core.sampling import Target
from core.tree import ROOT, Proposal, TokenTree
from core.verify import VERIFY_RULES, Case, Verdict, verify
from tests.laws.enumeration import WalkNoise, every_walk

DRAWN = SamplingParams(temperature=1.0)


def tree_of(*nodes: tuple[int, int, list[Proposal]]) -> TokenTree:
    """(token, parent, proposals) for each node."""
    parents = [parent for _, parent, _ in nodes]
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return TokenTree(
        tuple(token for token, _, _ in nodes),
        tuple(parents),
        tuple(depths),
        tuple(tuple(offered) for _, _, offered in nodes),
    )


def certain(drafter: int = 0, rank: int = 0) -> Proposal:
    return Proposal(drafter, 0.5, rank)


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log().float()


def greedy_case(tree: TokenTree, *rows: list[float], eos: tuple[int, ...] = ()) -> Case:
    return Case(tree, Target(logits(*rows), SamplingParams()), 9, WalkNoise(), frozenset(eos))


#  0:"1" ── 2:"0"       1:"2"
FORK = tree_of((1, ROOT, [certain()]), (2, ROOT, [certain(1)]), (0, 0, [certain()]))
ONE, TWO, ZERO = [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]


def test_greedy_walks_to_a_leaf_and_adds_its_bonus() -> None:
    verdict = verify("greedy", greedy_case(FORK, ONE, ZERO, ONE, TWO))
    assert verdict.path == (0, 2)
    assert (verdict.own_token_id, verdict.own_kind) == (2, "bonus")
    assert verdict.outcomes(FORK) == ("accepted", "rejected", "accepted")


def test_greedy_recovers_after_a_rejection() -> None:
    verdict = verify("greedy", greedy_case(FORK, ZERO, ONE, ONE, ONE))
    assert (verdict.path, verdict.own_token_id, verdict.own_kind) == ((), 0, "recovered")
    assert verdict.outcomes(FORK) == ("rejected", "rejected", "not_reached")


def test_greedy_recovers_in_the_middle() -> None:
    verdict = verify("greedy", greedy_case(FORK, ONE, TWO, ONE, ONE))
    assert (verdict.path, verdict.own_token_id, verdict.own_kind) == ((0,), 2, "recovered")


def test_an_empty_tree_is_plain_decoding() -> None:
    for rule in ("greedy", "match", "mss"):
        sampling = SamplingParams() if rule == "greedy" else DRAWN
        case = Case(TokenTree(), Target(logits(TWO), sampling), 0, SeededNoise(1, 3))
        verdict = verify(rule, case)
        assert (verdict.path, verdict.own_kind, verdict.tried) == ((), "plain", ())


def test_an_accepted_end_of_text_has_no_token_after_it() -> None:
    verdict = verify("greedy", greedy_case(FORK, TWO, ONE, ONE, ONE, eos=(2,)))
    assert verdict == Verdict((1,), None, "none", verdict.tried)


def test_trials_tell_what_was_decided() -> None:
    verdict = verify("greedy", greedy_case(FORK, TWO, ZERO, ONE, TWO))
    assert [(t.node, t.drafter, t.accepted) for t in verdict.tried] == [(0, 0, False), (1, 1, True)]
    assert [t.p for t in verdict.tried] == pytest.approx([0.1, 0.8])


def test_match_takes_the_target_noises_choice_at_each_position() -> None:
    noise = SeededNoise(3, 3)
    rows = logits(ONE, TWO, ZERO, ONE)
    verdict = verify("match", Case(FORK, Target(rows, DRAWN), 9, noise))
    node, depth = ROOT, 0
    for accepted in (*verdict.path, None):
        wanted = int((rows[node + 1].double() + noise.gumbel(9 + depth + 1)).argmax())
        if accepted is None:
            assert verdict.own_token_id == wanted
        else:
            assert FORK.token_ids[accepted] == wanted
            node, depth = accepted, depth + 1


def test_match_does_not_depend_on_the_tree() -> None:
    """The token after the root is the same with, without and with other children."""
    for seed in range(30):
        noise = SeededNoise(seed, 3)
        firsts = set()
        for tree in (FORK, TokenTree(), tree_of((0, ROOT, [certain()]))):
            rows = logits(*([[0.2, 0.5, 0.3]] * (len(tree) + 1)))
            verdict = verify("match", Case(tree, Target(rows, DRAWN), 4, noise))
            committed = [tree.token_ids[i] for i in verdict.path]
            firsts.add((*committed, verdict.own_token_id)[0])
        assert len(firsts) == 1


# -- mss --

Q = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]], dtype=torch.float64)


def drawn(drafter: int, rank: int, token: int, row: int = 0) -> Proposal:
    return Proposal(drafter, 0.5, rank, float(Q[row, token]), row)


def test_mss_tries_proposals_by_drafter_then_by_draw() -> None:
    tree = tree_of(
        (2, ROOT, [drawn(1, 0, 2), drawn(0, 1, 2)]),
        (1, ROOT, [drawn(0, 0, 1), drawn(0, 2, 1)]),
        (0, ROOT, [certain(2)]),
    )
    p = [1e-9, 1e-9, 1 - 2e-9]
    case = Case(tree, Target(logits(p, p, p, p), DRAWN), 9, _Refusing(), qs={0: Q, 1: Q, 2: None})
    tried = verify("mss", case).tried
    assert [(t.drafter, t.node) for t in tried] == [(0, 1), (0, 0), (0, 1), (1, 0), (2, 2)]


class _Refusing(WalkNoise):
    def coin(self, prob: float, key: tuple[object, ...]) -> bool:
        return False


def test_mss_accepts_with_the_ratio_and_keeps_the_residual() -> None:
    tree = tree_of((1, ROOT, [drawn(0, 0, 1)]))
    p = [0.5, 0.3, 0.2]

    def run(noise: WalkNoise) -> Verdict:
        return verify("mss", Case(tree, Target(logits(p, p), DRAWN), 9, noise, qs={0: Q}))

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
        return verify("mss", Case(tree, Target(logits(p, p), DRAWN), 9, noise, qs={0: None}))

    walks = [(noise.probability, verdict) for noise, verdict in every_walk(run)]
    assert sum(prob for prob, v in walks if v.path) == pytest.approx(0.3, abs=1e-7)
    recovered = {v.own_token_id: prob for prob, v in walks if not v.path}
    assert recovered == {0: pytest.approx(0.5, abs=1e-7), 2: pytest.approx(0.2, abs=1e-7)}


def test_draws_without_replacement_are_tried_with_what_was_left() -> None:
    tree = tree_of((1, ROOT, [drawn(0, 0, 1)]), (0, ROOT, [drawn(0, 1, 0)]))
    p = [0.1, 0.1, 0.8]
    target = Target(logits(p, p, p), DRAWN)
    distinct = verify("mss", Case(tree, target, 9, _Refusing(), qs={0: Q}, distinct=True)).tried
    assert [t.q for t in distinct] == pytest.approx([0.5, 0.2 / 0.5])
    independent = verify("mss", Case(tree, target, 9, _Refusing(), qs={0: Q})).tried
    assert [t.q for t in independent] == pytest.approx([0.5, 0.2])


def test_mss_ends_at_an_end_of_text() -> None:
    tree = tree_of((1, ROOT, [certain()]))
    p = [0.0, 1.0, 0.0]
    case = Case(tree, Target(logits(p, p), DRAWN), 9, WalkNoise(), frozenset({1}), qs={0: None})
    assert verify("mss", case) == Verdict((0,), None, "none", verify("mss", _again(case)).tried)


def _again(case: Case) -> Case:
    return Case(case.tree, case.target, case.root_position, WalkNoise(), case.eos_ids, case.qs)


def test_the_registry_cannot_be_changed() -> None:
    assert set(VERIFY_RULES) == {"greedy", "match", "mss"}
    with pytest.raises(TypeError):
        VERIFY_RULES["always"] = VERIFY_RULES["greedy"]  # type: ignore[index]
