"""The enumerating noises keep their promise: every walk once, no key twice."""

from collections.abc import Callable, Sequence

import pytest
import torch

from tests.laws.enumeration import KeyAskedTwiceError, WalkNoise, every_walk
from tests.laws.shared_noise import SharedNoise, by_position

KINDS = (WalkNoise, SharedNoise)


def test_control_the_noise_refuses_a_second_asking() -> None:
    noise = WalkNoise()
    noise.coin(0.5, ("accept", 3))
    with pytest.raises(KeyAskedTwiceError):
        noise.coin(0.5, ("accept", 3))


@pytest.mark.parametrize("kind", KINDS)
def test_the_walks_of_a_noise_have_all_the_probability(kind: Callable[[Sequence[int]], WalkNoise]):
    def run(noise: WalkNoise) -> bool:
        coins = ((0.25, ()), (1.0, ((0, 0),)), (0.5, ((0, 0), (0, 0))))
        return all(noise.coin(prob, ("accept", 4, path, 0)) for prob, path in coins)

    found = [(noise.probability, answer) for noise, answer in every_walk(run, kind=kind)]
    assert found == [(0.125, True), (0.125, False), (0.75, False)]


def test_the_position_of_a_key_is_where_its_token_will_stand() -> None:
    assert by_position(("draft", 7, 0, (0, 1), 2)) == ("draft", 10)
    assert by_position(("accept", 7, ((0, 0),), 1)) == ("accept", 9)
    assert by_position(("final", 7, ())) == ("final", 8)


def test_shared_noise_remembers_what_its_answers_tell() -> None:
    """One uniform number: u < 0.25, then u < 0.5 and the quarter of it are certain."""

    def run(noise: WalkNoise) -> tuple[bool, bool, int]:
        here, later = noise.coin(0.25, ("accept", 4, ((0, 0),), 0)), ("accept", 5, (), 0)
        weights = torch.tensor([1.0, 1.0, 2.0])
        return here, noise.coin(0.5, later), noise.choose(weights, ("accept", 5, (), 1))

    found = {answer: noise.probability for noise, answer in every_walk(run, kind=SharedNoise)}
    assert found == {(True, True, 0): 0.25, (False, True, 1): 0.25, (False, False, 2): 0.5}
