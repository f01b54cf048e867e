"""The order of training windows: epochs, domains, resuming."""

import numpy as np
import pytest

from core.errors import ConfigError
from zoo.data_order import DataOrder

TOKENS = {"a": np.arange(1003, dtype=np.uint16), "b": np.arange(2000, 2500, dtype=np.uint16)}


def test_windows_are_rows_of_consecutive_tokens() -> None:
    batch = DataOrder(TOKENS, (("a", 1.0),), seed=3).next_batch(5, 16)
    assert (batch.shape, batch.dtype) == ((5, 17), np.int64)
    assert (np.diff(batch, axis=1) == 1).all()


def test_an_epoch_has_each_window_once_and_the_next_epoch_has_other_windows() -> None:
    order = DataOrder(TOKENS, (("a", 1.0),), seed=3)
    first, second = (np.sort(order.next_batch(99, 10)[:, 0]) for _ in range(2))
    assert (np.diff(first) == 10).all()
    assert (np.diff(second) == 10).all()
    assert first[0] != second[0]


def test_domains_have_their_share_of_windows() -> None:
    batch = DataOrder(TOKENS, (("a", 3.0), ("b", 1.0)), seed=0).next_batch(4000, 8)
    assert (batch[:, 0] < 2000).mean() == pytest.approx(0.75, abs=0.03)


def test_a_loaded_order_continues_after_its_last_batch() -> None:
    mixture = (("a", 0.5), ("b", 0.5))
    uninterrupted = DataOrder(TOKENS, mixture, seed=7)
    batches = [uninterrupted.next_batch(8, length) for length in (10, 10, 20, 20, 10)]
    interrupted = DataOrder(TOKENS, mixture, seed=7)
    for length in (10, 10, 20):
        interrupted.next_batch(8, length)
    resumed = DataOrder(TOKENS, mixture, seed=7)
    resumed.load_state(interrupted.state())
    assert np.array_equal(resumed.next_batch(8, 20), batches[3])
    assert np.array_equal(resumed.next_batch(8, 10), batches[4])
    assert not np.array_equal(batches[3], DataOrder(TOKENS, mixture, seed=7).next_batch(8, 20))


def test_seeds_give_different_orders() -> None:
    one, other = (DataOrder(TOKENS, (("a", 1.0),), seed).next_batch(8, 10) for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_a_missing_or_too_small_domain_is_named() -> None:
    with pytest.raises(ConfigError, match="mixture is 'math': prepared domains: a, b"):
        DataOrder(TOKENS, (("a", 0.5), ("math", 0.5)), seed=0)
    with pytest.raises(ConfigError, match="corpora is 'b': at least 1000 training tokens, not 499"):
        DataOrder({"b": TOKENS["b"][:499]}, (("b", 1.0),), seed=0).next_batch(1, 500)
    with pytest.raises(ConfigError, match="at least 501 training tokens, not 499"):
        DataOrder({"b": TOKENS["b"][:499]}, (("b", 1.0),), seed=0, shifts=False).next_batch(1, 500)
    assert DataOrder(TOKENS, (("b", 1.0),), seed=0).next_batch(1, 250).shape == (1, 251)
