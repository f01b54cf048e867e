"""Device, dtype and memory of models to be loaded, and reports of loading stages."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from core import load_models
from core.errors import ModelLoadError, OutOfMemoryError, SpecScopeError, VocabMismatchError
from core.models.loading import placing
from core.models.loading.catalog import FAMILIES, PARAMETERS
from core.models.loading.placing import (
    Need,
    check_memory,
    device_of,
    dtype_of,
    expand_bundled,
    free_bytes,
    need_of,
    resolve_llm,
)
from core.models.machine import available_bytes, weight_bytes
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.family import SSMS

CPU = torch.device("cpu")


def test_auto_is_float32_for_small_models_on_a_cpu(whole: Path, monkeypatch: pytest.MonkeyPatch):
    assert dtype_of("auto", str(whole), CPU) == torch.float32
    monkeypatch.setattr(placing, "parameter_count", lambda source: 200_000_001)
    monkeypatch.setattr(placing, "_cpu_has_bfloat16", lambda: True)
    assert dtype_of("auto", str(whole), CPU) == torch.bfloat16
    monkeypatch.setattr(placing, "_cpu_has_bfloat16", lambda: False)
    assert dtype_of("auto", str(whole), CPU) == torch.float32


def test_auto_is_bfloat16_on_cuda_and_for_a_large_model_to_be_downloaded(
    whole, monkeypatch, tmp_path
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(placing, "_cpu_has_bfloat16", lambda: True)
    assert dtype_of("auto", str(whole), torch.device("cuda")) == torch.bfloat16
    assert dtype_of("auto", "EleutherAI/pythia-6.9b", CPU) == torch.bfloat16
    assert dtype_of("auto", "EleutherAI/pythia-70m", CPU) == torch.float32
    assert dtype_of("float32", "EleutherAI/pythia-6.9b", CPU) == torch.float32


def test_devices_have_free_memory() -> None:
    free, available = free_bytes(CPU), available_bytes(CPU)
    assert (
        free is not None
        and available is not None
        and abs(free - available) < 2**30
        and free > 2**20
    )
    assert device_of("cpu") == CPU
    auto = device_of("auto").type
    assert auto == ("cuda" if torch.cuda.is_available() else "cpu")


def test_names_of_the_bundled_family_become_folders() -> None:
    assert tuple(Path(name).name for name in expand_bundled("bundled")) == SSMS
    assert Path(expand_bundled("ssm-code")[0]).is_absolute() and expand_bundled("some/id") == (
        "some/id",
    )
    assert Path(resolve_llm("bundled")).name == "llm" and resolve_llm("some/id") == "some/id"


def test_a_folders_memory_need_depends_on_the_dtype(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = weight_bytes(str(whole), torch.float32)
    need = need_of(str(whole), "auto", CPU)
    count = AutoModelForCausalLM.from_pretrained(whole).num_parameters()
    assert need == Need(str(whole), count, "float32", size, here=True)
    half = need_of(str(whole), "bfloat16", CPU)
    assert (half.dtype, half.bytes) == ("bfloat16", size // 2)
    monkeypatch.setenv("HOME", str(whole.parent))
    assert need_of(f"~/{whole.name}", "auto", CPU) == need
    with pytest.raises(ModelLoadError, match="no such folder"):
        need_of(str(tmp_path / "nothing"), "auto", CPU)


def test_the_memory_need_of_a_model_to_be_downloaded_is_the_catalogs(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    need = need_of("EleutherAI/pythia-70m", "float32", CPU)
    assert need == Need("EleutherAI/pythia-70m", 70_400_000, "float32", 281_600_000, here=False)
    unknown = Need("no/body-knows", 0, "float32", 0, here=False)
    assert need_of("no/body-knows", "float32", CPU) == unknown


def test_exactly_the_catalogs_models_have_a_parameter_count() -> None:
    known = {name for family in FAMILIES for name in (family.llm, *family.ssms)}
    assert known == set(PARAMETERS)
    for family in FAMILIES:
        assert all(PARAMETERS[ssm] < PARAMETERS[family.llm] for ssm in family.ssms)


def test_several_models_must_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [Need("a", 1, "float32", 600, True), Need("b", 1, "bfloat16", 500, True)]
    monkeypatch.setattr(placing, "available_bytes", lambda device: 1100)
    check_memory(needs, CPU)
    monkeypatch.setattr(placing, "available_bytes", lambda device: 1099)
    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(needs, CPU)
    assert str(caught.value) == (
        "models need 1 KiB (a 600 B as float32, b 500 B as bfloat16): 1 KiB are free on cpu; "
        "choose a smaller model, dtype=bfloat16 or another device"
    )
    monkeypatch.setattr(placing, "available_bytes", lambda device: None)
    check_memory(needs, CPU)  # if the free memory is unknown, nothing is refused


def test_every_stage_is_reported_before_it_begins(whole: Path) -> None:
    messages: list[str] = []
    load_models(str(whole), [str(whole), str(whole)], say=messages.append)
    stages = ("configuration", "weights", "tree check")
    assert messages == [
        "Looking for the models",
        "Comparing the tokenizers",
        *(f"LLM tiny: {stage}" for stage in stages),
        *(f"SSM {n} of 2 tiny: {stage}" for n in (1, 2) for stage in stages),
    ]


def test_another_tokenizer_is_refused_before_weights_are_read(whole: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    fewer = save_tiny_model(tmp_path / "fewer", vocab=60)
    with pytest.raises(VocabMismatchError, match="token id 60 is None there and 'w60' in"):
        load_models(str(whole), [str(whole), str(fewer)], say=messages.append)
    assert messages == ["Looking for the models", "Comparing the tokenizers"]


def test_too_little_memory_for_all_is_refused_before_weights_are_read(whole, monkeypatch):
    size = weight_bytes(str(whole), torch.float32)
    monkeypatch.setattr(placing, "available_bytes", lambda device: 2 * size)
    message = refusal_of(OutOfMemoryError, whole, whole, whole)
    assert message.startswith("models need ") and message.count("tiny ") == 3


class StopLoading(SpecScopeError):
    """Raised by a `say` that ends the loading."""


@pytest.mark.parametrize("stage", ["weights", "tree check"])
def test_say_may_end_loading_between_stages(whole: Path, stage: str) -> None:
    messages: list[str] = []

    def stop_at_stage(words: str) -> None:
        messages.append(words)
        if words.endswith(stage):
            raise StopLoading(words)

    with pytest.raises(StopLoading, match=f"^LLM tiny: {stage}$"):
        load_models(str(whole), [str(whole)], say=stop_at_stage)
    assert messages[-1] == f"LLM tiny: {stage}"
