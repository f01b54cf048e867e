"""Temperature scaling of a drafter's scores, fitted online to the committed tokens.

A score is softmax(utilities / temperature). Each committed token with a score above 0 gives one
damped Newton step on beta = 1 / temperature. All steps of one draft use the draft's temperature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

__all__ = ["Calibration", "updated_temperatures", "scores_of"]

# Damping of a Newton step: one token is one sample of a noisy gradient.
STEP = 0.05
# Bounds of beta.
MIN_BETA, MAX_BETA = 0.25, 4.0
# The least variance by which a step is divided: scores of 0 and 1 have variance 0.
MIN_CURVATURE = 0.05
# Replaces -inf, whose product with its weight 0 would be NaN.
MIN_UTILITY = -1e4


class Calibration:
    """One drafter's `temperature` for one run.

    With utilities u and a committed token y, d/dbeta of -log softmax(beta u)[y] is E[u] - u_y, and
    the second derivative is Var[u].
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def copy(self) -> Calibration:
        """A separate calibration of the same temperature."""
        return Calibration(self.temperature)

    def scores(self, utilities: torch.Tensor) -> torch.Tensor:
        """Utilities (..., V) to probabilities of the same shape; -inf gives 0."""
        scaled = utilities if self.temperature == 1.0 else utilities / self.temperature
        return scaled.softmax(dim=-1)

    def observe(self, utilities: Sequence[float], moments: Sequence[tuple[float, float]]) -> None:
        """Updates the temperature. `utilities`: of committed tokens; `moments`: for each token, of
        all utilities at the token's position."""
        # Beta is fitted: the log-likelihood is concave in beta, but not in the temperature.
        beta = 1 / self.temperature
        for one, (mean, variance) in zip(utilities, moments, strict=True):
            step = STEP * (mean - one) / max(variance, MIN_CURVATURE)
            if math.isfinite(step):  # infinite for a token of probability 0
                beta -= step
        self.temperature = 1 / min(max(beta, MIN_BETA), MAX_BETA)

    def moments(self, utilities: torch.Tensor) -> tuple[float, float]:
        """Mean and variance of utilities (V,) under their own scores."""
        weights, finite = self.scores(utilities), utilities.clamp(min=MIN_UTILITY)
        mean = float(weights.dot(finite))
        centred = finite - mean
        return mean, float(weights.dot(centred * centred))


def scores_of(utilities: torch.Tensor, calibrations: Sequence[Calibration]) -> torch.Tensor:
    """`Calibration.scores` of utilities (n, V), with one calibration per row."""
    temperatures = [one.temperature for one in calibrations]
    if any(temperature != 1.0 for temperature in temperatures):
        each = torch.tensor(temperatures, dtype=utilities.dtype, device=utilities.device)
        utilities = utilities / each[:, None]
    return utilities.softmax(dim=-1)


def updated_temperatures(
    utilities: torch.Tensor, tokens: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """Batched `Calibration.observe`. Returns temperatures (rows,) float64. `utilities` (rows, n,
    V); `tokens` (rows, n): the committed tokens, negative for none."""
    beta = 1 / temperature
    steps = torch.zeros_like(beta)
    for place in range(tokens.shape[1]):  # one place at a time: a place takes memory for (rows, V)
        steps = steps + _step(utilities[:, place], tokens[:, place], temperature)
    return 1 / (beta - steps).clamp(MIN_BETA, MAX_BETA)


def _step(utilities: torch.Tensor, tokens: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """The Newton step of beta (rows,) for one token of each row."""
    # `gather` takes no negative index: padding reads token 0, and its step is dropped below.
    token_utilities = utilities.gather(1, tokens.clamp(min=0)[:, None])[:, 0].double()
    weights = (utilities / temperature[:, None].to(utilities.dtype)).softmax(-1)
    # 0 x -inf would be NaN: utilities of weight 0 are replaced by 0.
    finite = utilities.masked_fill(weights <= 0, 0.0)
    mean = (weights * finite).sum(-1)
    variance = (weights * (finite - mean[:, None]) ** 2).sum(-1).double()
    step = STEP * (mean.double() - token_utilities) / variance.clamp(min=MIN_CURVATURE)
    # As in `observe`, a token of probability 0 gives no step.
    return torch.where((tokens >= 0) & (token_utilities != float("-inf")), step, 0.0)
