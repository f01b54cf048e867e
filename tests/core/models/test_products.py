"""Products with a laid out matrix are plain ones, for any number of tokens, and it is in their
memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.models import hf_model, products
from core.models.hf_model import HfModel
from core.models.products import Product, pack
from core.models.tree_check import checked_model
from tests.core.models.test_lean import said
from tests.fakes import info_of, tiny_module

has_it = pytest.mark.skipif(not torch._C._has_mkldnn, reason="this torch has no oneDNN")


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@has_it
@pytest.mark.parametrize("stored", ["wide", "tall"])
@pytest.mark.parametrize("biased", [False, True])
def test_it_multiplies(
    threads: int, stored: str, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LARGE", 1)
    draw = torch.Generator().manual_seed(3)
    matrix = torch.randn((24, 40), generator=draw)
    if stored == "tall":
        matrix = matrix.t().contiguous().t()
    bias = torch.randn(40, generator=draw) if biased else None
    laid = pack(matrix)
    assert laid is not None
    with torch.inference_mode():
        for count in (1, 2, 3, 7, 16, 33):
            x, y = (
                torch.randn((count, 40), generator=draw),
                torch.randn((count, 24), generator=draw),
            )
            wanted = y @ matrix + (bias if bias is not None else 0.0)
            for product in (Product(matrix, bias), Product(matrix, bias, laid)):
                torch.testing.assert_close(product.times(y), wanted)
                torch.testing.assert_close(product.added(x, y), x + wanted)
    assert Product(matrix, bias, laid).packed_bytes == matrix.nbytes
    assert Product(matrix, bias).packed_bytes == 0


@has_it
def test_small_matrices_on_one_core_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = torch.zeros(8, 8), torch.zeros(products.LARGE // 8, 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert pack(small) is None and pack(large) is not None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert pack(small) is not None
    assert pack(small.double()) is None


def test_what_a_machine_lacks_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lacking)
    assert pack(torch.zeros(products.LARGE // 8, 8)) is None


@has_it
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_an_llm_of_laid_out_matrices_says_the_same(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LARGE", 1)
    module = tiny_module(family, seed=3, dtype=torch.float32)
    llm = checked_model(module, replace(info_of(module, family), role="llm"))
    plain = HfModel(module, replace(llm.info, role="ssm"), llm.masks, llm.lean_weights)
    assert llm.weight_bytes > plain.weight_bytes
    for one, other in zip(said(llm), said(plain), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@has_it
def test_weights_are_there_twice_only_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", 1)
    module = tiny_module("llama", seed=3, dtype=torch.float32)
    info = replace(info_of(module, "llama"), role="llm")
    roomy = checked_model(module, info)
    own = sum(p.nbytes for p in module.parameters())
    monkeypatch.setattr(hf_model, "available_bytes", lambda _: 3 * own)
    assert checked_model(module, info).weight_bytes < roomy.weight_bytes
