"""The memory of each rank, measured independently of the bytes that ranks report."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.models.ranks import processes
from tests.core.models.measured_rank import held_bytes
from tests.core.models.over_ranks import over_ranks

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("split", ["tp=2", "pp=2"])
def test_each_process_has_only_its_part_of_the_weights(
    split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        measured = "tests.core.models.measured_rank"
        return subprocess.Popen([sys.executable, "-m", measured, str(tmp_path)], **options)

    calls = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=start, **calls))
    before = held_bytes()
    with over_ranks("bundled", split) as model:
        sizes = [held_bytes() - before, int((tmp_path / "1").read_text())]
        all_weights, embedding = 4 * model.info.parameters, 4 * model.vocab_size * 256
        cache = 4 * 2 * 16 * 256 * 128  # keys and values of one row, for half the layers or heads
        for size, weights in zip(sizes, model.ranks.weight_bytes, strict=True):
            assert weights <= size <= all_weights / 2 + embedding + cache
