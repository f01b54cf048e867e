"""Checks of what shapes a tree and weighs its drafters, and how large it may be."""

from __future__ import annotations

from core.config.checks import integer, number
from core.errors import ConfigError

__all__ = [
    "MAX_EXPANSION",
    "MAX_SPECULATION_LENGTH",
    "MAX_TREE_NODES",
    "expansion",
    "tree_nodes",
    "weight_bounds",
]

MAX_TREE_NODES = 256
MAX_SPECULATION_LENGTH = 64
MAX_EXPANSION = 16


def expansion(value: object) -> tuple[int, ...]:
    """<k1,...,km> as a tuple: 1 to 64 whole numbers from 1 to 16."""
    if not isinstance(value, (tuple, list)) or not 1 <= len(value) <= MAX_SPECULATION_LENGTH:
        raise ConfigError.of(
            "expansion", value, f"1 to {MAX_SPECULATION_LENGTH} whole numbers from 1"
        )
    for width in value:
        integer("expansion", width, 1, MAX_EXPANSION)
    return tuple(value)


def weight_bounds(value: object) -> tuple[float, float]:
    """The least and the greatest weight of a drafter, as two floats around 1."""
    allowed = "two numbers, the lower from 0.001 to 1 and the upper from 1 to 1000"
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ConfigError.of("weight_bounds", value, allowed)
    low, high = value
    # Their mean is 1, so the bounds must leave 1 between them.
    number("weight_bounds", low, 0.001, 1.0)
    number("weight_bounds", high, 1.0, 1000.0)
    return float(low), float(high)


def tree_nodes(value: object) -> None:
    """A node budget: `auto`, `uncut` or a number."""
    if isinstance(value, str):
        if value not in ("auto", "uncut"):
            raise ConfigError.of(
                "max_tree_nodes", value, f"auto, uncut, or a number from 1 to {MAX_TREE_NODES}"
            )
        return
    integer("max_tree_nodes", value, 1, MAX_TREE_NODES)
