"""Noise: seeds, keys and distributions."""

import hashlib
import math
from collections import Counter

import pytest
import torch

from core.trees.noise import CACHED_POSITIONS, SeededNoise, choose_distinct, gumbel_rows
from tests.laws.chi_square import pooled_chi_square
from tests.laws.enumeration import WalkNoise, every_walk

FALSE_ALARM = 1e-6


def uniformity(values: list[float], cells: int = 20) -> float:
    """The p-value of a chi-square test."""
    counts = Counter(min(int(value * cells), cells - 1) for value in values)
    return pooled_chi_square(counts, dict.fromkeys(range(cells), 1 / cells))[0]


def by_hand(seed: int, position: int, token_id: int) -> float:
    mask = (1 << 64) - 1
    key = repr((seed, "target", position)).encode()
    base = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
    x = (base + (token_id + 1) * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    x ^= x >> 31
    return -math.log(-math.log(max(x >> 11, 1) * 2.0**-53))


def test_the_target_noise_is_the_documented_hash() -> None:
    for seed, position in ((0, 0), (7, 3), (2**63 - 1, 1023)):
        got = SeededNoise(seed, 50).gumbel(position)
        expected = [by_hand(seed, position, token_id) for token_id in range(50)]
        assert got.dtype == torch.float64
        assert got.tolist() == pytest.approx(expected, rel=1e-13)


def test_a_smaller_vocabulary_has_a_prefix_of_the_noise() -> None:
    large = SeededNoise(3, 4096).gumbel(11)
    for size in (1, 2, 63, 4095):
        assert torch.equal(SeededNoise(3, size).gumbel(11), large[:size])


def test_the_noise_of_a_position_is_the_same_after_many_others() -> None:
    noise = SeededNoise(5, 16)
    first = noise.gumbel(0).clone()
    for position in range(1, CACHED_POSITIONS + 5):
        noise.gumbel(position)
    assert torch.equal(noise.gumbel(0), first)
    assert torch.equal(SeededNoise(5, 16).gumbel(0), first)


def test_the_arg_max_of_log_p_and_noise_is_drawn_from_p() -> None:
    p = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05], dtype=torch.float64)
    noise = SeededNoise(9, 5)
    counts = Counter(int((p.log() + noise.gumbel(i)).argmax()) for i in range(4000))
    assert pooled_chi_square(counts, dict(enumerate(p.tolist())))[0] > FALSE_ALARM


def test_the_noise_is_finite() -> None:
    values = gumbel_rows([0], 1_000_000)[0]
    assert bool(values.isfinite().all())


def test_coins_are_fair_and_strict() -> None:
    noise = SeededNoise(4, 3)
    keys = [("accept", i, (), 0) for i in range(4000)]
    assert not any(noise.coin(0.0, key) for key in keys)
    assert all(noise.coin(1.0, key) for key in keys)
    share = sum(noise.coin(0.3, key) for key in keys) / len(keys)
    assert share == pytest.approx(0.3, abs=0.035)
    assert [noise.coin(0.3, key) for key in keys] == [
        SeededNoise(4, 3).coin(0.3, key) for key in reversed(keys)
    ][::-1]


def test_a_coin_is_monotonic_in_its_probability() -> None:
    noise = SeededNoise(4, 3)
    for i in range(200):
        answers = [noise.coin(prob / 20, ("accept", i)) for prob in range(21)]
        assert answers == sorted(answers)


def test_the_uniforms_are_uniform() -> None:
    noise = SeededNoise(6, 3)
    values = [noise._uniform(("draft", i, 0, ())) for i in range(4000)]
    assert uniformity(values) > FALSE_ALARM
    assert all(0.0 <= value < 1.0 for value in values)


def test_every_part_of_a_key_counts() -> None:
    noise = SeededNoise(6, 3)
    keys = [
        (kind, position, drafter, path, attempt)
        for kind in ("draft", "accept", "final")
        for position in range(3)
        for drafter in range(3)
        for path in ((), (0,), (0, 1), (1, 0))
        for attempt in range(3)
    ]
    assert len({noise._uniform(key) for key in keys}) == len(keys)
    assert SeededNoise(7, 3)._uniform(keys[0]) != noise._uniform(keys[0])


def test_choices_follow_their_weights() -> None:
    noise, weights = SeededNoise(8, 4), torch.tensor([3.0, 0.0, 1.0, 6.0])
    counts = Counter(noise.choose(weights, ("final", i)) for i in range(4000))
    assert counts[1] == 0
    assert pooled_chi_square(counts, {0: 0.3, 2: 0.1, 3: 0.6})[0] > FALSE_ALARM


@pytest.mark.parametrize("weights", [[0.0, 0.0, 1e-30], [1e-30, 0.0, 0.0], [0.0, 5.0, 0.0]])
def test_tokens_without_weight_are_never_chosen(weights: list[float]) -> None:
    noise = SeededNoise(8, 3)
    only = max(range(3), key=weights.__getitem__)
    tensor = torch.tensor(weights, dtype=torch.float64)
    assert {noise.choose(tensor, ("final", i)) for i in range(200)} == {only}


def test_distinct_draws_have_the_sequential_distribution() -> None:
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    frequencies: Counter[tuple[int, ...]] = Counter()
    for noise, drawn in every_walk(lambda n: tuple(choose_distinct(n, weights, 2, ("draft",)))):
        frequencies[drawn] += noise.probability
    for (a, b), probability in frequencies.items():
        assert a != b
        drawn = float(weights[a] * weights[b] / (1 - weights[a]))
        assert probability == pytest.approx(drawn, abs=1e-12)
    assert len(frequencies) == 6
    assert weights.tolist() == [0.5, 0.3, 0.2], "the caller's weights are not changed"


def test_distinct_draws_stop_when_nothing_is_left() -> None:
    weights = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    drawn = choose_distinct(SeededNoise(1, 3), weights, 5, ("draft",))
    assert sorted(drawn) == [0, 2]
    assert choose_distinct(WalkNoise(), torch.zeros(3), 2, ("draft",)) == []
