"""The shape of a Llama-like model, and the choice of a larger shape for a number of parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from core.errors import ConfigError
from core.plurals import number_of

# The largest deviation of the number of parameters, relative to the requested number.
TOLERANCE = 0.1
# Matrix kernels are fastest if the feed-forward size is a multiple of this.
FFN_MULTIPLE = 32
# Bounds of feed-forward size / hidden size.
MAX_FFN_RATIO, MIN_FFN_RATIO = 5.5, 0.5
MAX_EXTRA_LAYERS = 128
MAX_FACTOR = 256


@dataclass(frozen=True, slots=True)
class ModelShape:
    """`ffn`: the feed-forward size. `tied`: the head is the embedding. `qk_norms`: queries and
    keys are normed head by head (Qwen3)."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    qk_norms: bool = False

    @property
    def parameters(self) -> int:
        """The number of parameters; a tied head counts once."""
        embedding_and_head = self.vocabulary * self.hidden * (1 if self.tied else 2)
        last_norm = self.hidden
        return embedding_and_head + last_norm + self.layers * self._layer_parameters

    @property
    def _layer_parameters(self) -> int:
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        weights = 2 * self.hidden * (queries + keys) + 3 * self.hidden * self.ffn
        biases = self.qkv_bias * (queries + 2 * keys) + self.out_bias * self.hidden
        biases += self.ffn_bias * (2 * self.ffn + self.hidden)
        norms = 2 * self.hidden + self.qk_norms * 2 * self.head_size
        return weights + biases + norms

    def __str__(self) -> str:
        return (
            f"hidden {self.hidden}, {number_of(self.layers, 'layer')}, {self.heads} heads of "
            f"{self.head_size} ({self.kv_heads} of keys and values), feed-forward {self.ffn}"
        )


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """The shapes before and after. Hidden size, heads and KV heads grow by the same integer factor;
    the size of a head stays the same."""

    small: ModelShape
    large: ModelShape

    @property
    def factor(self) -> int:
        return self.large.hidden // self.small.hidden

    @property
    def norm_scale(self) -> float:
        """Scale of norm weights: added channels are zero, the mean square falls to 1 / factor."""
        return math.sqrt(1 / self.factor)

    @property
    def exact(self) -> bool:
        """Whether `norm_scale` is a power of two, which is exact in every dtype."""
        return _is_power_of_four(self.factor)


def plan_growth(small: ModelShape, params: int, field: str = "params") -> GrowthPlan:
    """A plan for about `params` parameters; factors of 4^k are preferred (see `GrowthPlan.exact`).

    Raises ConfigError, naming `field`, if `params` is not more than the small model has, or if no
    shape is within TOLERANCE.
    """
    if params <= small.parameters:
        raise ConfigError.of(field, params, f"more than the {small.parameters} of the small model")
    factors = range(1, MAX_FACTOR + 1)
    first = [factor for factor in factors if _is_power_of_four(factor)]
    rest = [factor for factor in factors if not _is_power_of_four(factor)]
    best = _best(small, params, first) or _best(small, params, rest)
    if best is None:
        raise ConfigError.of(
            field,
            params,
            f"a size within {TOLERANCE:.0%} of what some number of such layers comes to",
        )
    return GrowthPlan(small, best)


def _best(small: ModelShape, params: int, factors: Iterable[int]) -> ModelShape | None:
    """The shape most similar to `small`, with more parameters than `small` and within TOLERANCE of
    `params`."""
    fitting = [
        shape
        for shape in _candidates(small, params, factors)
        if shape.parameters > small.parameters
        and abs(shape.parameters - params) <= TOLERANCE * params
    ]
    return min(fitting, key=lambda shape: _dissimilarity(small, shape, params), default=None)


def _candidates(small: ModelShape, params: int, factors: Iterable[int]) -> Iterator[ModelShape]:
    for factor in factors:
        wide = replace(
            small,
            hidden=small.hidden * factor,
            heads=small.heads * factor,
            kv_heads=small.kv_heads * factor,
        )
        for layers in range(small.layers, small.layers + MAX_EXTRA_LAYERS + 1):
            yield _with_nearest_ffn(replace(wide, layers=layers), params)


def _with_nearest_ffn(shape: ModelShape, params: int) -> ModelShape:
    """`shape` with the allowed feed-forward size that comes closest to `params` parameters."""
    without_ffn = replace(shape, ffn=0).parameters
    per_ffn = replace(shape, ffn=1).parameters - without_ffn
    target = round((params - without_ffn) / per_ffn / FFN_MULTIPLE) * FFN_MULTIPLE
    # The size does not shrink: the small matrices are blocks of the grown ones.
    low = max(shape.ffn, _round_up_ffn(shape.hidden * MIN_FFN_RATIO))
    high = max(low, _round_up_ffn(shape.hidden * MAX_FFN_RATIO))
    return replace(shape, ffn=min(max(target, low), high))


def _dissimilarity(small: ModelShape, shape: ModelShape, params: int) -> float:
    width = math.log(shape.ffn / shape.hidden * small.hidden / small.ffn)
    depth = math.log(shape.layers / small.layers)
    miss = (shape.parameters / params - 1) / TOLERANCE
    return 2 * width**2 + depth**2 + miss**2


def _round_up_ffn(size: float) -> int:
    return math.ceil(size / FFN_MULTIPLE) * FFN_MULTIPLE


def _is_power_of_four(factor: int) -> bool:
    return factor.bit_count() == 1 and factor.bit_length() % 2 == 1
