"""RMSNorm equals torch's, also for tiny, huge and zero vectors; products with and without a bias,
and added to a residual."""

import pytest
import torch
import torch.nn.functional as F

from core.models.layer_ops import Norm, Projection, row_major

EPS = 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 1.0, 1e4])
def test_it_is_the_norm(dtype: torch.dtype, scale: float) -> None:
    draw = torch.Generator().manual_seed(1)
    weight = (torch.rand(96, generator=draw) + 0.5).to(dtype)
    x = (torch.randn((5, 96), generator=draw) * scale).to(dtype)
    expected = F.rms_norm(x.double(), (96,), weight.double(), EPS)
    close = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    result = Norm(weight, EPS)(x)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, atol=close, rtol=close)


def test_a_weight_for_each_member() -> None:
    draw = torch.Generator().manual_seed(1)
    weights = torch.rand((3, 8), generator=draw)
    x = torch.randn((3, 4, 8), generator=draw)
    result = Norm(weights[:, None], EPS)(x)
    for i in range(3):
        torch.testing.assert_close(result[i], F.rms_norm(x[i], (8,), weights[i], EPS))


def test_what_it_is_given_stays() -> None:
    x = torch.ones((2, 4))
    Norm(torch.full((4,), 2.0), EPS)(x)
    assert x.eq(1.0).all()


@pytest.mark.parametrize("biased", [False, True])
def test_a_product_with_and_without_a_bias(biased: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    matrix = torch.randn((24, 40), generator=draw)
    bias = torch.randn(40, generator=draw) if biased else None
    product = Projection(matrix, bias)
    for count in (1, 2, 7):
        x, y = (torch.randn((count, size), generator=draw) for size in (40, 24))
        expected = y @ matrix + (bias if bias is not None else 0.0)
        torch.testing.assert_close(product.times(y), expected)
        torch.testing.assert_close(product.residual(x, y), x + expected)


def test_a_head_that_is_the_embedding_is_laid_wide_unless_it_is_large() -> None:
    embedding = torch.randn(40, 24)
    assert row_major(embedding.t()).is_contiguous()
    large = torch.zeros(1, 1).expand(1 << 12, 1 << 11).t()
    assert row_major(large).data_ptr() == large.data_ptr()
