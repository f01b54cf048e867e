"""Products with and without a bias, on their own and added to what is there."""

import pytest
import torch

from core.models.layer_ops import Projection, row_major


@pytest.mark.parametrize("biased", [False, True])
def test_it_multiplies(biased: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    matrix = torch.randn((24, 40), generator=draw)
    bias = torch.randn(40, generator=draw) if biased else None
    product = Projection(matrix, bias)
    for count in (1, 2, 7):
        x, y = (torch.randn((count, size), generator=draw) for size in (40, 24))
        wanted = y @ matrix + (bias if bias is not None else 0.0)
        torch.testing.assert_close(product.times(y), wanted)
        torch.testing.assert_close(product.residual(x, y), x + wanted)


def test_a_head_that_is_the_embedding_is_laid_wide_unless_it_is_large() -> None:
    embedding = torch.randn(40, 24)
    assert row_major(embedding.t()).is_contiguous()
    large = torch.zeros(1, 1).expand(1 << 12, 1 << 11).t()
    assert row_major(large).data_ptr() == large.data_ptr()
