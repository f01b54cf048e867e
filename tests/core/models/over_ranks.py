"""Models that run over several ranks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from core import load_models
from core.config.ranks import ranks_of
from core.models.hf_model import HfModel
from core.models.protocol import Feed, chain
from core.models.ranks.leader import RankedModel

NODES = [-1, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


@contextmanager
def over_ranks(name: str, split: str, dtype: str = "float32") -> Iterator[RankedModel]:
    model = load_models(name, [], dtype, "cpu", ranks=ranks_of(split)).llm
    assert isinstance(model, RankedModel)
    try:
        yield model
    finally:
        model.close()


def logits_of_trees(model: HfModel) -> torch.Tensor:
    row, results = model.open_row(), []
    model.forward([chain(row, range(10, 50), last_only=True)])
    model.commit(row, range(40))
    for _ in range(3):
        results += model.forward([Feed(row, list(range(16, 32)), NODES)])
        model.commit(row, [0, 1, 3, 6])
    model.close_row(row)
    return torch.cat(results)


def error_of(result: torch.Tensor, expected: torch.Tensor) -> float:
    return float((result - expected).abs().max() / expected.abs().max())


def pids_of(model: RankedModel) -> list[int]:
    """Process ids of the ranks except rank 0, in order."""
    return [process.pid for process in model._running.followers._processes.values()]


def is_running(pid: int) -> bool:
    """A zombie (state Z) is not running."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def all_end(pids: list[int], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_running, pids))
