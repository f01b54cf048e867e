"""A teacher's most probable tokens are cached, and SSMs are distilled from the cache."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from core.errors import ConfigError
from zoo import teacher_cache
from zoo.data_order import DataOrder
from zoo.losses import Distillation, log_probabilities
from zoo.presets import PRESETS
from zoo.teacher_cache import BLOCK, TeacherCache
from zoo.trainer import new_model

VOCABULARY, LENGTH = 64, 8
MIXTURE = (("a", 0.5), ("b", 0.5))


@pytest.fixture(autouse=True)
def _float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches autocast off, so that cached values equal the teacher's."""
    monkeypatch.setattr(teacher_cache, "autocast", lambda _: nullcontext())


def model(seed: int) -> Any:
    """Large embeddings, so that no two tokens are equally probable."""
    result = new_model(PRESETS["smoke"].models[1], PRESETS["smoke"], VOCABULARY, seed).eval()
    with torch.no_grad():
        result.get_input_embeddings().weight.mul_(10)
    return result


class Counted(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.texts = inner, 0

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        self.texts += len(input_ids)
        return self.inner(input_ids=input_ids, use_cache=use_cache)


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    """The rows lack token 0, the padding, after which all tokens are equally probable."""
    noise = np.random.default_rng(0)
    sizes = {"a": (2 * BLOCK + 3) * LENGTH + 5, "b": 4 * LENGTH + 1}
    return {
        name: noise.integers(1, VOCABULARY, size=size).astype(np.uint16)
        for name, size in sizes.items()
    }


@pytest.fixture
def make_cache(tmp_path: Path, rows: dict[str, np.ndarray]) -> Callable[..., TeacherCache]:
    def make(teacher: nn.Module, count: int = 5) -> TeacherCache:
        return TeacherCache(teacher, tmp_path / "cache", rows, LENGTH, count)

    return make


def windows_of(rows: dict[str, np.ndarray], size: int = 6) -> torch.Tensor:
    return torch.from_numpy(DataOrder(rows, MIXTURE, 1, shifts=False).next_batch(size, LENGTH))


def test_cached_tokens_are_the_teachers_most_probable(rows, make_cache):
    teacher = model(0)
    inputs = windows_of(rows)[:, :-1]
    cached = make_cache(teacher).top_tokens(inputs)
    values, ids = log_probabilities(teacher, inputs).topk(5, -1)
    assert torch.equal(cached.ids, ids) and cached.ids.shape == (6, LENGTH, 5)
    torch.testing.assert_close(cached.log_p, values, rtol=1e-5, atol=1e-5)


def test_the_teacher_reads_each_window_once(rows, make_cache):
    teacher = Counted(model(0))
    cache, order = make_cache(teacher), DataOrder(rows, MIXTURE, 1, shifts=False)
    batches = [torch.from_numpy(order.next_batch(8, LENGTH))[:, :-1] for _ in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(cache.top_tokens, batches))
    num_windows = sum((len(row) - 1) // LENGTH for row in rows.values())
    assert teacher.texts == num_windows == 2 * BLOCK + 3 + 4, "every epoch has the same windows"
    again = Counted(model(0))
    for batch, before in zip(batches, results, strict=True):
        after = make_cache(again).top_tokens(batch)
        assert torch.equal(after.ids, before.ids) and torch.equal(after.log_p, before.log_p)
    assert again.texts == 0, "a new cache reads the files"


def test_a_filled_cache_needs_no_teacher_and_only_missing_blocks_are_filled(
    rows: dict[str, np.ndarray], make_cache: Callable[..., TeacherCache], tmp_path: Path
) -> None:
    num_windows, messages = sum((len(row) - 1) // LENGTH for row in rows.values()), []
    teacher, inputs = Counted(model(0)), windows_of(rows, 40)[:, :-1]
    cache = make_cache(teacher)
    cache.fill(messages.append)
    assert teacher.texts == num_windows and len(messages) == 4
    cache.top_tokens(inputs)
    assert teacher.texts == num_windows
    next((tmp_path / "cache").iterdir()).unlink()
    again, messages = Counted(model(0)), []
    make_cache(again).fill(messages.append)
    assert 0 < again.texts <= BLOCK and len(messages) == 1


def test_with_all_tokens_but_one_the_loss_is_the_exact_divergence(rows, make_cache):
    teacher, student, windows = model(0), model(1), windows_of(rows)
    exact = Distillation(teacher)(student, windows).mean
    kept = Distillation(teacher, memory=make_cache(teacher, VOCABULARY - 1))
    assert kept(student, windows).mean.item() == pytest.approx(exact.item(), rel=1e-4)
    from_three = Distillation(teacher, memory=make_cache(teacher, 3))(student, windows).mean
    assert 0.0 < from_three.item() < exact.item()
    of_itself = Distillation(teacher, memory=make_cache(teacher, 3))(teacher, windows).mean
    assert of_itself.item() == pytest.approx(0.0, abs=1e-5)


def test_positions_have_the_same_weights_with_a_cache(
    rows: dict[str, np.ndarray], make_cache: Callable[..., TeacherCache]
):
    teacher, student, other, windows = model(0), model(1), model(2), windows_of(rows, 40)
    exact = Distillation(teacher, (other,))(student, windows)
    cache = make_cache(teacher, VOCABULARY - 1)
    kept = Distillation(teacher, (other,), memory=cache)(student, windows)
    assert kept.weight.item() == pytest.approx(exact.weight.item())
    assert kept.cost.item() == pytest.approx(exact.cost.item(), rel=1e-4)


def test_unknown_windows_and_damaged_files_raise(rows, make_cache, tmp_path):
    cache, windows = make_cache(model(0)), windows_of(rows)
    cache.top_tokens(windows[:, :-1])
    with pytest.raises(KeyError):
        cache.top_tokens(windows[:, 1:])
    files = {file: file.read_bytes() for file in (tmp_path / "cache").iterdir()}
    for damage in (lambda _: b"", lambda _: b"half", lambda content: content[:-5], flip_a_byte):
        for file, content in files.items():
            file.write_bytes(damage(content))
        with pytest.raises(ConfigError, match="a readable block of cached tokens; remove it"):
            make_cache(model(0)).top_tokens(windows[:, :-1])


def flip_a_byte(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_other_texts_and_counts_have_files_of_their_own(rows, make_cache, tmp_path):
    inputs = windows_of(rows)[:, :-1]
    make_cache(model(0)).top_tokens(inputs)
    before = set((tmp_path / "cache").iterdir())
    assert make_cache(model(0), 6).top_tokens(inputs).ids.shape[-1] == 6
    assert before < set((tmp_path / "cache").iterdir())
