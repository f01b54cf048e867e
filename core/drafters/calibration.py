"""One temperature per drafter, fitted online, that makes its scores mean what they say.

A score is softmax(utilities / temperature). The temperature follows the likelihood of the tokens
that were committed, by a damped Newton step on beta = 1 / temperature a token.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch

__all__ = ["Calibration", "observed", "scores_of"]

STEP = 0.05
SLOWEST, FASTEST = 0.25, 4.0
MIN_CURVATURE = 0.05
# Instead of -inf, whose weight is 0 but whose product with that is no number.
IMPOSSIBLE = -1e4


class Calibration:
    """d/dbeta of -log softmax(beta u)[y] is E[u] - u_y, and the second derivative is Var[u]."""

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def copy(self) -> Calibration:
        return Calibration(self.temperature)

    def scores(self, utilities: torch.Tensor) -> torch.Tensor:
        """Utilities (..., V) to probabilities of the same shape; -inf stays at 0."""
        scaled = utilities if self.temperature == 1.0 else utilities / self.temperature
        return scaled.softmax(dim=-1)

    def observe(self, utilities: torch.Tensor, token_id: int) -> None:
        """One committed token `token_id` where the drafter's utilities (V,) were these."""
        seen = float(utilities[token_id])
        if seen == float("-inf"):
            return
        weights = self.scores(utilities)
        finite = utilities.clamp(min=IMPOSSIBLE)
        mean = float(weights.dot(finite))
        centred = finite - mean
        variance = float(weights.dot(centred * centred))
        beta = 1 / self.temperature
        beta -= STEP * (mean - seen) / max(variance, MIN_CURVATURE)
        self.temperature = 1 / min(max(beta, SLOWEST), FASTEST)


def scores_of(utilities: torch.Tensor, calibrations: Many[Calibration]) -> torch.Tensor:
    """`Calibration.scores` of utilities (n, V), each row by a calibration of its own."""
    temperatures = [one.temperature for one in calibrations]
    if any(temperature != 1.0 for temperature in temperatures):
        each = torch.tensor(temperatures, dtype=utilities.dtype, device=utilities.device)
        utilities = utilities / each[:, None]
    return utilities.softmax(dim=-1)


def observed(
    utilities: torch.Tensor, tokens: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """`Calibration.observe` of many at once, over tensors alone: the temperatures (rows,) float64
    after tokens (rows, n), negative where there is none, that were committed one after another
    where the utilities (rows, n, V) were these."""
    beta = 1 / temperature
    for place in range(tokens.shape[1]):
        beta = _newton(utilities[:, place], tokens[:, place], beta)
    return 1 / beta


def _newton(utilities: torch.Tensor, tokens: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    seen = utilities.gather(1, tokens.clamp(min=0)[:, None])[:, 0].double()
    weights = (utilities / (1 / beta)[:, None].to(utilities.dtype)).softmax(-1)
    finite = utilities.masked_fill(weights <= 0, 0.0)
    mean = (weights * finite).sum(-1)
    variance = (weights * (finite - mean[:, None]) ** 2).sum(-1).double()
    step = STEP * (mean.double() - seen) / variance.clamp(min=MIN_CURVATURE)
    told = (tokens >= 0) & (seen != float("-inf"))
    return torch.where(told, (beta - step).clamp(SLOWEST, FASTEST), beta)
