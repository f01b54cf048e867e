"""The walk of `greedy` and `match` on small trees made by hand."""

import pytest

from core.config import SamplingParams
from core.trees.noise import SeededNoise
from core.trees.sampling import Target
from core.trees.tree import ROOT, TokenTree
from core.trees.verify import Verdict, VerifyInput, verify
from tests.core.verify.cases import DRAWN, certain, logits, tree_of
from tests.laws.enumeration import WalkNoise


def greedy_case(tree: TokenTree, *rows: list[float], eos: tuple[int, ...] = ()) -> VerifyInput:
    target = Target(logits(*rows), SamplingParams())
    return VerifyInput(tree, target, 9, WalkNoise(), frozenset(eos))


# The index and the token of each node:
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
    for rule in ("greedy", "match", "mss", "traversal"):
        sampling = SamplingParams() if rule == "greedy" else DRAWN
        case = VerifyInput(TokenTree(), Target(logits(TWO), sampling), 0, SeededNoise(1, 3))
        verdict = verify(rule, case)
        assert (verdict.path, verdict.own_kind, verdict.trials) == ((), "plain", ())


def test_an_accepted_end_of_text_has_no_token_after_it() -> None:
    verdict = verify("greedy", greedy_case(FORK, TWO, ONE, ONE, ONE, eos=(2,)))
    assert verdict == Verdict((1,), None, "none", verdict.trials)


def test_trials_record_each_decision() -> None:
    verdict = verify("greedy", greedy_case(FORK, TWO, ZERO, ONE, TWO))
    assert [(t.node, t.drafter, t.accepted) for t in verdict.trials] == [
        (0, 0, False),
        (1, 1, True),
    ]
    assert [t.p for t in verdict.trials] == pytest.approx([0.1, 0.8])


def test_match_takes_the_target_noises_choice_at_each_position() -> None:
    noise = SeededNoise(3, 3)
    rows = logits(ONE, TWO, ZERO, ONE)
    verdict = verify("match", VerifyInput(FORK, Target(rows, DRAWN), 9, noise))
    node, depth = ROOT, 0
    for accepted in (*verdict.path, None):
        expected = int((rows[node + 1].double() + noise.gumbel(9 + depth + 1)).argmax())
        if accepted is None:
            assert verdict.own_token_id == expected
        else:
            assert FORK.token_ids[accepted] == expected
            node, depth = accepted, depth + 1


def test_match_does_not_depend_on_the_tree() -> None:
    for seed in range(30):
        noise = SeededNoise(seed, 3)
        firsts = set()
        for tree in (FORK, TokenTree(), tree_of((0, ROOT, [certain()]))):
            rows = logits(*([[0.2, 0.5, 0.3]] * (len(tree) + 1)))
            verdict = verify("match", VerifyInput(tree, Target(rows, DRAWN), 4, noise))
            committed = [tree.token_ids[i] for i in verdict.path]
            firsts.add((*committed, verdict.own_token_id)[0])
        assert len(firsts) == 1
