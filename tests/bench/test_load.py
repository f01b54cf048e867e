"""Load on one engine: what a measurement leaves unchanged."""

import os

import torch

from bench.contestants import DecodeCase, request
from bench.load import closed_loop
from bench.prompts import load_prompts
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.models.loading.load import LoadedModels


def test_a_load_runs_with_the_threads_of_the_program(family: LoadedModels) -> None:
    threads, before = min(2, os.cpu_count() or 1), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        case = DecodeCase(load_prompts()[0], 0, 4, 0.0)
        closed_loop(Engine(family), [request(case, SpeculationConfig())] * 2, 1)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
