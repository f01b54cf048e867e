"""Which pass a model takes: compiled where it can be, else written out in torch."""

import builtins
import sys
from typing import Any

import pytest
import torch

from core.models import fastest
from core.models.hf_model import HfModel
from core.models.lean import LeanForward
from core.models.loading.tree_check import checked_model
from core.models.native.forward import CompiledForward
from core.models.stacked import StackedForward
from tests.core.models.test_stack import alike
from tests.fakes import info_of, tiny_module


def model(dtype: torch.dtype = torch.float32, **changes: Any) -> HfModel:
    module = tiny_module("llama", seed=3, dtype=dtype, **changes)
    return checked_model(module, info_of(module, "llama"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cpu_compiles(dtype: torch.dtype) -> None:
    assert isinstance(model(dtype)._forward, CompiledForward)


def test_double_precision_is_written_out() -> None:
    assert isinstance(model(torch.float64)._forward, LeanForward)


def test_without_a_compiler_it_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    assert isinstance(model()._forward, LeanForward)
    stack = alike(2)
    assert isinstance(stack._forward, StackedForward)
    assert all(isinstance(member._forward, LeanForward) for member in stack.members)


@pytest.mark.parametrize("error", [ImportError("another numpy"), RuntimeError("no cache")])
def test_a_compiler_that_does_not_work_is_done_without(error: Exception, monkeypatch):
    real = builtins.__import__

    def failing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "core.models.native.forward":
            raise error
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "core.models.native.forward")
    monkeypatch.setattr(builtins, "__import__", failing)
    assert isinstance(model()._forward, LeanForward)


def test_weights_are_there_twice_only_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    own = sum(p.nbytes for p in tiny_module("llama", dtype=torch.float32).parameters())
    for free, made in ((None, CompiledForward), (3 * own, CompiledForward), (own, LeanForward)):
        monkeypatch.setattr(fastest, "available_bytes", lambda _, free=free: free)
        assert isinstance(model()._forward, made)
