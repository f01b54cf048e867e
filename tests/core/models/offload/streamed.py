"""Loads an LLM with streamed layers from a folder; compares the logits of two LLMs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from core import load_models
from core.config.offload import Offload
from core.errors import ModelLoadError
from core.models.hf_model import HfModel
from tests.core.models.test_lean import all_logits

Folder = Callable[..., Path]
LAYERS = 5
PROMPT = (3, 9, 27, 17)


def load(path: Path, mode: str = "disk", resident: int = 0, **options: Any) -> HfModel:
    llm = load_models(str(path), [], offload=Offload(mode, resident), **options).llm
    assert isinstance(llm, HfModel)
    return llm


def equal(one: HfModel, other: HfModel) -> bool:
    return all(torch.equal(a, b) for a, b in zip(all_logits(one), all_logits(other), strict=True))


def refusal_of(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)
