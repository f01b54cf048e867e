"""The recipe on a CUDA device: bfloat16 products, float32 weights, and a state that moves between
devices.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.zoo.small import SMALL
from zoo.losses import autocast
from zoo.train import Run, train_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
ONE = replace(SMALL, models=SMALL.models[1:2])


def test_products_are_bfloat16() -> None:
    device = torch.device("cuda")
    one = torch.ones(8, 8, device=device)
    with autocast(device):
        assert (one @ one).dtype == torch.bfloat16


def test_a_run_begun_on_the_device_goes_on_on_the_cpu(ticking_run: Callable[..., Run]) -> None:
    begun = train_model(ONE.models[0], ticking_run(ONE, 60, device=torch.device("cuda")))
    assert begun.training_loss < 6.0
    resumed = train_model(ONE.models[0], ticking_run(ONE, 80))
    assert resumed.num_steps == 80
    assert resumed.training_loss < begun.training_loss
