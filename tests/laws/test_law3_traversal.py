"""Law 3 for `traversal`: proposals below a proposal that may be rejected."""

from importlib import import_module

import pytest
import torch

from core.trees.sampling import one_hot_residual, residual
from core.trees.verify.base import ChildProposal
from tests.laws.enumeration import WalkNoise
from tests.laws.law3_cases import (
    DEEP,
    EXACT,
    NOTICED,
    ONE_ROUND,
    SHOWN_BELOW,
    TWO_ROUNDS,
    case,
    deviation,
)
from tests.laws.shared_noise import SharedNoise
from tests.laws.traps import TRAPS
from tests.laws.whole_rounds import expected_accepted, joint_of_walks, plain_joint
from tests.laws.whole_rounds import total_variation as distance

# A function of the package has the same name and hides the module.
MODULE = import_module("core.trees.verify.traversal")
rest = MODULE._rest
Rest = tuple[float, torch.Tensor]


@pytest.mark.parametrize("name", DEEP)
def test_one_round_is_plain_sampling(name: str) -> None:
    assert deviation(DEEP[name](verify="traversal"), rounds=1, count=4) <= EXACT


def test_two_rounds_of_a_tree_are_plain_sampling() -> None:
    enumerated = case(
        1, "sampled_iid", (2, 1), 1, vocab=2, prompt_ids=(0, 1, 0), verify="traversal"
    )
    assert deviation(enumerated, rounds=2, count=4) <= EXACT


ALL = {**TWO_ROUNDS, **ONE_ROUND, **DEEP}
BY_A_TENTH = ("a chain of three", "a fork in the middle")


@pytest.mark.parametrize("name", ALL)
def test_no_fewer_tokens_are_accepted_than_by_mss(name: str) -> None:
    of_mss, accepted = (expected_accepted(ALL[name](verify=rule)) for rule in ("mss", "traversal"))
    print(f"{name}: mss {of_mss:.4f}, traversal {accepted:.4f}")
    assert accepted >= of_mss - EXACT
    assert accepted > of_mss + 0.1 or name not in BY_A_TENTH


@pytest.mark.parametrize("name", TRAPS)
def test_control_every_trap_below_a_draw_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch):
    TRAPS[name](monkeypatch)
    trapped = deviation(DEEP[SHOWN_BELOW[name]](verify="traversal"), rounds=1, count=4)
    print(name, round(trapped, 4))
    assert trapped > NOTICED


# The letters a, M, q, R and S: see the docstring of `core.trees.verify.traversal`.


def not_updated_without_mass(chance: float, left: torch.Tensor, offer: ChildProposal) -> Rest:
    """If the remaining mass S is 0, neither `left` (a M) nor `chance` (a) is updated."""
    updated = rest(chance, left, offer)
    return updated if updated[0] > 0.0 else (chance, left)


def chance_kept(chance: float, left: torch.Tensor, offer: ChildProposal) -> Rest:
    """M is updated, but `chance` (a) is not."""
    new_chance, weights = rest(chance, left, offer)
    return chance, weights * (chance / new_chance) if new_chance > 0.0 else left


def not_renormalised(chance: float, left: torch.Tensor, offer: ChildProposal) -> Rest:
    """A `chance` below 1 becomes S, the remaining mass, without conditioning on the branch's
    rejection."""
    if chance == 1.0:
        return rest(chance, left, offer)
    new_chance, weights = rest(chance, left, offer)
    total = new_chance * (1.0 - chance) / (1.0 - new_chance) if new_chance < 1.0 else new_chance
    return total, weights * (total / new_chance if new_chance > 0.0 else 0.0)


def without_weight(chance: float, left: torch.Tensor, offer: ChildProposal) -> Rest:
    """R = max(0, M - q) as in `mss`, not max(0, a M - q)."""
    new_chance, _ = rest(chance, left, offer)
    normalized = left / chance if chance > 0.0 else left
    after = (
        one_hot_residual(normalized, offer.token_id)
        if offer.q is None
        else residual(normalized, offer.q)
    )
    return new_chance, new_chance * after


@pytest.mark.parametrize(
    "wrong", [not_updated_without_mass, chance_kept, not_renormalised, without_weight]
)
def test_control_a_wrong_update_after_a_rejection_is_noticed(wrong, monkeypatch):
    monkeypatch.setattr(MODULE, "_rest", wrong)
    names = ("three draws below a draw", "an end of text below")
    results = [deviation(DEEP[name](verify="traversal"), rounds=1, count=4) for name in names]
    print(wrong.__name__, [round(tv, 4) for tv in results])
    assert max(results) > NOTICED


def test_control_keys_by_position_alone_are_noticed() -> None:
    """After `traversal` rejects a branch, the next round draws at the same positions again."""
    results = {}
    for rule in ("traversal", "mss"):
        enumerated = case(1, "sampled_iid", (1, 1), 1, vocab=2, prompt_ids=(0, 1, 0), verify=rule)
        plain = plain_joint(enumerated, 4)
        assert distance(joint_of_walks(enumerated, 2, 4, WalkNoise), plain) <= EXACT
        results[rule] = distance(joint_of_walks(enumerated, 2, 4, SharedNoise), plain)
    print({rule: round(tv, 4) for rule, tv in results.items()})
    assert results["traversal"] > NOTICED
    assert results["mss"] <= EXACT
