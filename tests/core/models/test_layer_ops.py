"""Norms, projections and tied LM heads."""

import pytest
import torch
import torch.nn.functional as F

from core.models.layer_ops import Norm, Projection, row_major

EPS = 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 1.0, 1e4])
def test_norm_equals_torchs_rms_norm(dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = (torch.rand(96, generator=generator) + 0.5).to(dtype)
    x = (torch.randn((5, 96), generator=generator) * scale).to(dtype)
    expected = F.rms_norm(x.double(), (96,), weight.double(), EPS)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    result = Norm(weight, EPS)(x)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, atol=tolerance, rtol=tolerance)


def test_each_member_of_a_stack_has_its_own_weight() -> None:
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand((3, 8), generator=generator)
    x = torch.randn((3, 4, 8), generator=generator)
    result = Norm(weights[:, None], EPS)(x)
    for i in range(3):
        torch.testing.assert_close(result[i], F.rms_norm(x[i], (8,), weights[i], EPS))


def test_norm_does_not_change_its_input() -> None:
    x = torch.ones((2, 4))
    Norm(torch.full((4,), 2.0), EPS)(x)
    assert x.eq(1.0).all()


@pytest.mark.parametrize("biased", [False, True])
def test_projections_add_a_bias_and_a_residual(biased: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn((24, 40), generator=generator)
    bias = torch.randn(40, generator=generator) if biased else None
    product = Projection(matrix, bias)
    for count in (1, 2, 7):
        x, y = (torch.randn((count, size), generator=generator) for size in (40, 24))
        expected = y @ matrix + (bias if bias is not None else 0.0)
        torch.testing.assert_close(product.times(y), expected)
        torch.testing.assert_close(product.residual(x, y), x + expected)


def test_a_tied_head_is_copied_to_row_major_unless_it_is_large() -> None:
    embedding = torch.randn(40, 24)
    assert row_major(embedding.t()).is_contiguous()
    large = torch.zeros(1, 1).expand(1 << 12, 1 << 11).t()
    assert row_major(large).data_ptr() == large.data_ptr()
