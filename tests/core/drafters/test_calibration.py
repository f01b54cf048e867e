"""Calibration on synthetic logits."""

import pytest
import torch

from core.drafters.calibration import MAX_BETA, MIN_BETA, Calibration


def observe(calibration: Calibration, logits: torch.Tensor, token_id: int) -> None:
    calibration.observe([float(logits[token_id])], [calibration.moments(logits)])


def fit(true_temperature: float, steps: int = 3000, vocab: int = 8) -> Calibration:
    generator = torch.Generator().manual_seed(1)
    calibration = Calibration()
    for _ in range(steps):
        logits = 2 * torch.randn(vocab, generator=generator)
        truth = (logits / true_temperature).softmax(dim=0)
        token_id = int(torch.multinomial(truth, 1, generator=generator))
        observe(calibration, logits, token_id)
    return calibration


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.8, 3.0])
def test_the_true_temperature_is_found(temperature: float) -> None:
    assert fit(temperature).temperature == pytest.approx(temperature, rel=0.3)


@pytest.mark.parametrize("temperature", [0.6, 2.0])
def test_scores_become_acceptance_rates(temperature: float) -> None:
    calibration, generator = fit(temperature), torch.Generator().manual_seed(2)
    claimed = hits = 0.0
    for _ in range(2000):
        logits = 2 * torch.randn(8, generator=generator)
        scores = calibration.scores(logits)
        best = int(scores.argmax())
        claimed += float(scores[best])
        truth = (logits / temperature).softmax(dim=0)
        hits += int(torch.multinomial(truth, 1, generator=generator)) == best
    assert claimed / 2000 == pytest.approx(hits / 2000, abs=0.06)


def test_the_temperature_stays_within_bounds() -> None:
    wrong, right = Calibration(), Calibration()
    logits = torch.tensor([0.5, 0.0, -0.5])
    for _ in range(500):
        observe(wrong, logits, 2)
        observe(right, logits, 0)
    assert wrong.temperature == pytest.approx(1 / MIN_BETA)
    assert right.temperature == pytest.approx(1 / MAX_BETA)


def test_scores_are_a_softmax_in_which_excluded_tokens_have_0() -> None:
    logits = torch.tensor([[1.0, float("-inf"), 0.0]])
    assert torch.equal(Calibration().scores(logits), logits.softmax(-1))
    scores = Calibration(2.0).scores(logits)
    assert float(scores[0, 1]) == 0.0
    assert torch.allclose(scores, (logits / 2).softmax(-1))


def test_an_excluded_token_does_not_change_the_temperature() -> None:
    calibration = Calibration()
    observe(calibration, torch.tensor([1.0, float("-inf"), 0.0]), 1)
    assert calibration.temperature == 1.0
    observe(calibration, torch.tensor([1.0, float("-inf"), 0.0]), 2)
    assert calibration.temperature > 1.0


def test_a_copy_changes_independently() -> None:
    calibration = Calibration(1.5)
    copy = calibration.copy()
    observe(copy, torch.tensor([3.0, 0.0]), 1)
    assert calibration.temperature == 1.5 != copy.temperature


@pytest.mark.parametrize("moments", [(float("nan"), 1.0), (0.0, float("nan"))])
def test_nan_does_not_change_the_temperature(moments: tuple[float, float]) -> None:
    calibration = Calibration(1.5)
    calibration.observe([float("nan")], [(0.0, 1.0)])
    calibration.observe([1.0], [moments])
    assert calibration.temperature == pytest.approx(1.5)
