"""The `gpu-` suites, mostly run on a CPU here."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from bench.__main__ import main
from bench.contestants import DecodeCase, TransformersLlm, decode
from bench.prompts import load_prompts
from bench.settings import Settings
from bench.suites import gpu
from bench.suites.gpu import BEST, FIXED, PLAIN, GpuContest, gaps, idle_share, load_bundled
from bench.suites.grown import GrownLoader
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError
from core.models.loading.load import LoadedModels


def test_the_suite_is_refused_in_one_line_without_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--suite", "gpu-bundled", "--out", str(tmp_path / "none.json")]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1 and "gpu-bundled" in stderr and "no CUDA device" in stderr
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="processes"):
        GpuContest().check(Settings(1, 1, 1, ("float32",), processes=2))


@pytest.mark.usefixtures("modules")
def test_the_suite_measures_continues_and_reports(
    make_context: Any, family: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "copy_bandwidth", partial(gpu.copy_bandwidth, size=1 << 24))
    loads = []

    def load(dtype: str, device: str) -> tuple[Engine, TransformersLlm]:
        loads.append((dtype, device))
        return Engine(family), TransformersLlm(dtype)

    suite = GpuContest(load=load, device="cpu", temperatures=(0.0,))
    context = make_context(tokens=8)
    suite.check(context.settings)
    suite.measure(context)
    assert [sample["kind"] for sample in context.results.samples] == ["block", "block", "gaps"]
    suite.measure(context)
    assert len(context.results.samples) == 3 and loads == [("float32", "cpu")]
    (table,) = suite.report(context).tables
    for name in (PLAIN, BEST, FIXED, "transformers generate"):
        assert f"| {name} |" in table
    assert "GB/s that a large copy" in table and "| - |" in table


def test_idle_share_is_the_time_in_which_no_kernel_runs() -> None:
    assert idle_share([(0, 4), (2, 5), (7, 8), (9, 10)]) == pytest.approx(0.3)
    assert idle_share([(3, 3)]) == 0.0


def test_the_figures_of_a_trace_and_the_bandwidth_are_reported(make_context: Any) -> None:
    context = make_context(tokens=8)
    results = {PLAIN: {"rounds": 24, "kernels": 240, "idle": 0.043}}
    figures = {
        name: {"tokens": 64, "seconds": seconds, "steady": 80.0}
        for name, seconds in ((PLAIN, 0.8), ("transformers generate", 2.4))
    }
    key = {"dtype": "float32", "temperature": 0.0}
    for prompt in ("a", "b"):
        sample = {"kind": "block", **key, "prompt": prompt, "repeat": 0, "load": 0.0}
        context.results.add({**sample, "copied": 4e9, "weights": 30_000_000, "figures": figures})
    context.results.add({"kind": "gaps", **key, "gaps": results})
    (table,) = GpuContest(temperatures=(0.0,)).report(context).tables
    assert "4.3% of a round (10 kernels)" in table and "3.00x" in table
    assert "reads 2.4 GB of weights a second" in table and "60% of the 4.0 GB/s" in table


@pytest.mark.nightly
@pytest.mark.parametrize("ssm_params", [0, 2_000_000])
def test_grown_models_write_the_small_models_text(ssm_params: int) -> None:
    engine, transformers = GrownLoader(18_000_000, ssm_params)("float32", "cpu")
    assert engine.models.llm.info.parameters > 10_000_000
    assert {"grown" in name for name in engine.models.ssms} == {ssm_params > 0}
    prompt = load_prompts()[0]
    case = DecodeCase(prompt, 1, 12, 0.0, ignore_eos=True)
    (outcome,) = decode(engine, [case], SpeculationConfig.preset("specinfer"))
    prompt_ids = transformers.tokenize(prompt.text)
    assert outcome["token_ids"] == transformers.generate(prompt_ids, 12)
    assert outcome["token_ids"] == TransformersLlm("float32").generate(prompt_ids, 12)


@pytest.mark.gpu
def test_a_gpu_is_traced() -> None:
    engine, transformers = load_bundled("bfloat16", "cuda")
    case = DecodeCase(load_prompts()[0], 1, 64, 0.0, ignore_eos=True)
    result = gaps(engine, case, SpeculationConfig.preset("autoregressive"))
    assert result is not None and result["rounds"] == 24 and 0 <= result["idle"] < 1
    assert len(transformers.generate(transformers.tokenize(case.prompt.text), 4)) <= 4
