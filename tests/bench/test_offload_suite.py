"""The tables of suite `offload`: bounds, texts that differ. A nightly test runs the suite."""

import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.context import Context
from bench.prompts import load_prompts
from bench.results import Results
from bench.settings import Settings
from bench.suites import offload
from bench.suites.offload import (
    ACCELERATE,
    PLAIN,
    RESIDENT,
    OffloadSuite,
    failures,
    limited_reads,
    tables,
)
from core.models.loading.catalog import BUNDLED
from core.models.loading.load import load_models
from lab.order import Block

KEY = {"model": "bundled", "dtype": "bfloat16", "repeat": 0}


def passes(tokens: int, resident: float) -> dict[str, Any]:
    seconds = {RESIDENT: resident, "100 MB/s": 0.26, "no limit": 0.5, ACCELERATE: 0.75}
    seconds[f"{ACCELERATE}, 100 MB/s"] = 0.5
    return {**KEY, "part": "passes", "tokens": tokens, "bytes": 25_000_000, "seconds": seconds}


def texts(ids: list[int]) -> dict[str, Any]:
    figures = {PLAIN: {"per_pass": 1.0, "speed": 2.0, "ids": [1, 2]}}
    figures["best"] = {"per_pass": 4.0, "speed": 7.8, "ids": ids}
    return {**KEY, "part": "texts", "prompt": "dev-code-00", "figures": figures}


def results(*samples: dict[str, Any]) -> Results:
    result = Results(Path("unused"), {}, [])
    result.samples.extend(samples)
    return result


def test_a_pass_is_compared_with_reading_and_computing() -> None:
    (table,) = tables(results(passes(1, 0.1), passes(64, 0.5)))
    lines = {line.split(" | ")[0].strip("| "): line for line in table.splitlines()}
    assert "0.260 (1.040x)" in lines["100 MB/s"]  # 25 MB at 100 MB/s are 0.25 s
    assert "0.260 (0.520x)" in lines["100 MB/s"]  # computing 64 tokens takes longer
    assert "0.500 (5.000x)" in lines["no limit"]
    assert "0.500 (2.000x)" in lines[f"{ACCELERATE}, 100 MB/s"]
    assert "0.750 (7.500x)" in lines[ACCELERATE]


def test_accelerates_reads_are_limited_to_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = pytest.importorskip("accelerate.utils.offload")
    monkeypatch.setattr(reading, "load_offloaded_weight", lambda: torch.zeros(50_000))
    start = time.perf_counter()
    with limited_reads(10.0):
        for _ in range(3):  # 0.2 MB each
            reading.load_offloaded_weight()
    assert time.perf_counter() - start >= 0.06
    assert reading.load_offloaded_weight().nbytes == 200_000


def test_a_texts_speed_up_is_divided_by_its_tokens_per_pass() -> None:
    (table,) = tables(results(texts([1, 2])))
    assert "3.90x" in table and "0.97 (" in table


def test_a_text_that_differs_from_plain_decoding_fails_the_suite() -> None:
    assert failures(results(texts([1, 2]))) == ()
    (failure,) = failures(results(texts([1, 3])))
    assert failure.startswith("best, dev-code-00")
    other_dtype = {**texts([1, 3]), "dtype": "float32"}
    assert len(failures(results(texts([1, 2]), other_dtype))) == 1


@pytest.mark.nightly
def test_the_suite_measures_and_a_fresh_process_needs_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECSCOPE_CACHE", str(tmp_path))
    # Ten times the suite's rate: the test is shorter, and nothing here depends on the rate.
    monkeypatch.setattr("bench.suites.offload.TEXT_MBPS", {BUNDLED: 2000.0})
    # One process measures the memory for both amounts of resident layers.
    measure = offload._peak
    peak = cache(lambda folder, dtype: measure(folder, dtype, Block("half", 0)))
    monkeypatch.setattr(offload, "_peak", lambda folder, dtype, _: peak(folder, dtype))
    prompts = load_prompts()[:1]
    context = Context(
        Settings(1, 4, 1, ("bfloat16",)),
        prompts,
        prompts,
        results(),
        lambda _: load_models(),
        print,
    )
    monkeypatch.setattr(context.results, "add", context.results.samples.append)
    suite = OffloadSuite(rates=(400,), widths=(1,))
    suite.measure(context)
    assert not suite.report(context).failures
    seconds = [s["seconds"] for s in context.results.samples if s["part"] == "passes"]
    assert all(f"{ACCELERATE}, 400 MB/s" in one for one in seconds)
    peaks = [s["figures"]["peak"] for s in context.results.samples if s["part"] == "memory"]
    for one in peaks:
        parts = one["imports"] + one["resident"] + one["embedding"] + one["layers"]
        assert one["peak"] <= parts + 300_000_000
