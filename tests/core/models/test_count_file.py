"""The counts of the drafter `table` are read from the LLM's folder."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from core import load_models
from core.drafters import count_table
from core.drafters.count_table import LONGEST_CONTEXT, add_text, insert_rows, new_table
from core.errors import ModelLoadError
from core.models.loading import count_file
from core.models.loading.catalog import bundled_folder
from core.models.loading.count_file import FILE, read_counts, rows_as_bytes
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.source import ROOT
from zoo.count_tables import WORKING_ROWS

SERVING = """
import sys
from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.engine.worker import Worker
from core.events import RoundCompleted

worker = Worker(Engine(load_models(sys.argv[1], []), None).warm_up())
sampling = SamplingParams(40, ignore_eos=True)
for number in range(1000):
    config = SpeculationConfig(drafters=("table", "suffix"))
    run = worker.submit(Request(f"{number} once", sampling, config))
    for event in run.events():
        # From the third run on, texts of earlier runs have been counted.
        if number >= 2 and isinstance(event, RoundCompleted):
            print("round", flush=True)
"""


def some_rows() -> np.ndarray:
    table = new_table(64)
    add_text(table, np.array([1, 2, 3, 4, 2, 3], np.int64), 1)
    return table[table[:, -1] > 0]


@pytest.fixture
def llm(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "llm")


def test_counts_are_loaded_with_the_llm(llm: Path) -> None:
    assert load_models(str(llm), []).counts is None
    (llm / FILE).write_bytes(rows_as_bytes(some_rows()))
    counts = load_models(str(llm), []).counts
    assert counts is not None and np.array_equal(counts, some_rows())


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"not a file of tensors",
        rows_as_bytes(some_rows())[:-5],
        pickle.dumps({"rows": [1]}),
        safetensors.numpy.save({"other": some_rows()}),
        safetensors.numpy.save({"rows": some_rows()[:, :15].copy()}),
        safetensors.numpy.save({"rows": some_rows().astype(np.int64)}),
        rows_as_bytes(some_rows() + (np.arange(16) == 0) * 64),
        rows_as_bytes(some_rows() - (np.arange(16) == 9) * 9999),
        rows_as_bytes(np.where(np.arange(16) == 9, 2**31 - 1, some_rows())),
        rows_as_bytes(some_rows() + (np.arange(16) == 15) * 3),
    ],
    ids=[
        *("empty", "text", "cut", "pickle", "other name", "other width", "other type"),
        *("token id", "weight", "heavy weight", "length"),
    ],
)
def test_damaged_counts_are_refused_in_one_line(llm: Path, contents: bytes) -> None:
    (llm / FILE).write_bytes(contents)
    message = refusal_of(ModelLoadError, llm)
    assert message.startswith(f"counts are '{llm / FILE}': they cannot be read (")
    assert message.endswith("or none, is allowed")


def test_the_heaviest_counts_that_are_read_do_not_overflow(tmp_path: Path) -> None:
    rows, table = some_rows(), new_table(64)
    rows[:, 7] = count_file._LARGEST_WEIGHT
    (tmp_path / FILE).write_bytes(rows_as_bytes(rows))
    read = read_counts(tmp_path, 64)
    assert read is not None and np.array_equal(read, rows)
    insert_rows(table, read)
    for _ in range(3):
        add_text(table, np.array([1, 2, 3, 4, 2, 3], np.int64), 1)
    assert table.min() == 0
    assert count_file._LARGEST_WEIGHT == count_table._HEAVIEST << 2 | LONGEST_CONTEXT


def test_a_file_too_large_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_bytes(rows_as_bytes(some_rows()))
    header = len(rows_as_bytes(some_rows())) - some_rows().nbytes
    assert WORKING_ROWS * some_rows()[0].nbytes + header <= count_file._LARGEST
    monkeypatch.setattr(count_file, "_LARGEST", 64)
    with pytest.raises(ModelLoadError, match=r"it has more than 64 bytes"):
        read_counts(tmp_path, 64)


@pytest.mark.nightly
def test_a_kill_while_serving_does_not_change_the_file(tmp_path: Path) -> None:
    llm = tmp_path / "llm"
    llm.mkdir()
    for path in (bundled_folder() / "llm").iterdir():
        (llm / path.name).write_bytes(path.read_bytes())
    before = (llm / FILE).read_bytes()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING, llm], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    process.kill()
    _, stderr = process.communicate()
    assert lines == [b"round\n"] * 3 and process.returncode == -signal.SIGKILL, stderr.decode()
    assert (llm / FILE).read_bytes() == before
    counts = load_models(str(llm), []).counts
    assert counts is not None and len(counts) == 50_000
