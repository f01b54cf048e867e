"""Loading: names, roles, precisions, vocabularies, memory, the catalog."""

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

from core import LoadedModels, load_models
from core.errors import ConfigError, ModelLoadError, OutOfMemoryError, VocabMismatchError
from core.models.loading import placing
from core.models.loading.catalog import FAMILIES, bundled_llm, bundled_ssms, cached_models
from core.models.machine import format_bytes, parameter_count, weight_bytes
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.fakes import tiny_module, word_tokenizer
from tests.family import SSMS


def test_a_complete_folder_is_loaded(whole: Path) -> None:
    models = load_models(str(whole), [str(whole)])
    assert [info.role for info in models.infos] == ["llm", "ssm"]
    assert models.llm.info.architecture == "LlamaForCausalLM"
    assert (models.llm.vocab_size, models.llm.context_length) == (64, 128)
    assert models.llm.info.parameters == sum(p.numel() for p in models.llm._module.parameters())
    assert models.eos_ids == ()
    assert not models.llm._module.training


def test_names_of_drafters_are_distinguished(whole: Path, tmp_path: Path) -> None:
    for name in ("ngram", "llm"):
        shutil.copytree(whole, tmp_path / name)
    folders = [str(whole), str(whole), str(tmp_path / "ngram"), str(tmp_path / "llm")]
    models = load_models(str(whole), folders)
    assert models.drafter_names == ("tiny", "tiny-2", "ngram-2", "llm-2")
    assert [info.name for info in models.infos] == ["tiny", *models.drafter_names]


@pytest.fixture(scope="module")
def family() -> LoadedModels:
    """Loaded once: loading takes seconds on a slow machine."""
    return load_models()


def test_the_bundled_family_is_loaded_by_its_name(family: LoadedModels) -> None:
    assert family.llm.info.name == "llm"
    assert family.drafter_names == SSMS
    assert family.eos_ids == (0,)
    assert {info.dtype for info in family.infos} == {"float32"}
    assert load_models(ssms=[]).drafter_names == ()


def test_end_of_text_comes_from_the_generation_configuration(copy: Path) -> None:
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    assert load_models(str(copy), []).eos_ids == (3, 5)


def test_a_dtype_may_be_chosen_and_a_bundled_ssm_named(whole: Path) -> None:
    half = load_models(str(whole), [], dtype="bfloat16").llm
    assert half.dtype == torch.bfloat16 and half.info.dtype == "bfloat16"
    assert tuple(load_models(ssms=["ssm-code"]).ssms) == ("ssm-code",)


def test_an_ssm_with_another_token_is_refused(whole: Path, tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    vocab = core["model"]["vocab"]
    vocab["w17"], vocab["w40"] = vocab["w40"], vocab["w17"]
    other = type(tokenizer)(
        tokenizer_object=type(tokenizer.backend_tokenizer).from_str(json.dumps(core))
    )
    folder = save_tiny_model(tmp_path / "other", tokenizer=other)
    message = refusal_of(VocabMismatchError, whole, folder)
    assert "token id 17 is 'w40' there and 'w17' in" in message
    assert "an SSM with the LLM's tokenizer is allowed" in message


def test_an_ssm_with_another_end_of_text_is_refused(whole: Path, tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.eos_token = "w5"
    folder = save_tiny_model(tmp_path / "ends", tokenizer=tokenizer)
    assert "eos_token_id is 5 there and None in" in refusal_of(VocabMismatchError, whole, folder)


@pytest.mark.parametrize("size", [72, 128])
def test_embeddings_may_be_padded_differently(whole: Path, tmp_path: Path, size: int) -> None:
    module = tiny_module("llama", seed=1, dtype=torch.float32, vocab_size=size)
    module.save_pretrained(tmp_path / "padded")
    word_tokenizer().save_pretrained(tmp_path / "padded")
    models = load_models(str(whole), [str(tmp_path / "padded")])
    assert models.ssms["padded"].vocab_size == size


def test_settings_are_refused_by_name(whole: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^dtype is 'float8': it must be one of auto, float32, bfloat16$"
    ):
        load_models(str(whole), [], dtype="float8")
    with pytest.raises(ConfigError, match=r"^device is 'tpu': it must be one of auto, cpu, cuda$"):
        load_models(str(whole), [], device="tpu")
    with pytest.raises(ConfigError, match=r"^ssm is "):
        load_models(str(whole), [""])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_refused(whole: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"^device is 'cuda': no CUDA device"):
        load_models(str(whole), [], device="cuda")


def test_too_little_memory_says_how_much_is_needed(whole: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placing, "available_bytes", lambda device: 10_240)
    message = refusal_of(OutOfMemoryError, whole)
    needed = format_bytes(weight_bytes(str(whole), torch.float32))
    assert f"needs {needed} as float32: 10 KiB are free on cpu" in message
    assert "choose a smaller model" in message


def test_weight_bytes_depend_on_the_dtype(whole: Path, tmp_path: Path) -> None:
    parameters = parameter_count(str(whole))
    assert weight_bytes(str(whole)) == (whole / "model.safetensors").stat().st_size
    assert weight_bytes(str(whole), torch.float32) == 4 * parameters
    assert weight_bytes(str(whole), torch.bfloat16) == 2 * parameters
    assert weight_bytes("some/hub-id") == weight_bytes(str(tmp_path)) == 0


@pytest.mark.parametrize("name", ["llm", "ssm-code"])
def test_parameters_are_counted_from_the_header(name: str, tmp_path: Path) -> None:
    folder = bundled_llm().parent / name
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert parameter_count(str(folder)) == model.num_parameters()
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    assert parameter_count(str(tmp_path)) == 9 // 2
    assert parameter_count("some/hub-id") == 0


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (5 * 2**30, "5.0 GiB")]
)
def test_format_bytes_uses_readable_units(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_the_catalog_names_the_bundled_models() -> None:
    assert (bundled_llm() / "config.json").is_file()
    assert tuple(path.name for path in bundled_ssms()) == SSMS
    assert len({family.llm for family in FAMILIES}) == len(FAMILIES)
    assert all(family.ssms and family.note for family in FAMILIES)


@pytest.fixture
def hub_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`{}` in a value is replaced by `tmp_path`."""
    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME")

    def set_variables(**variables: str) -> None:
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(tmp_path))
        importlib.reload(constants)  # the start of a process does this

    yield set_variables
    monkeypatch.undo()
    importlib.reload(constants)


@pytest.mark.parametrize(
    "variables",
    [
        {"HF_HUB_CACHE": "{}/huggingface/hub"},
        {"HF_HUB_CACHE": "~/huggingface/hub", "HOME": "{}"},
        {"HUGGINGFACE_HUB_CACHE": "{}/huggingface/hub"},
        {"HF_HOME": "{}/huggingface"},
        {"HF_HOME": "~/huggingface", "HOME": "{}"},
        {"XDG_CACHE_HOME": "{}"},
    ],
)
def test_the_local_cache_is_listed(
    tmp_path: Path, hub_variables: Callable[..., None], variables: dict[str, str]
) -> None:
    hub = tmp_path / "huggingface" / "hub"
    for name in ("models--org--one", "models--gpt2", "datasets--org--two"):
        folder = hub / name / "snapshots" / "abc"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (hub / "models--org--empty" / "snapshots").mkdir(parents=True)
    hub_variables(**variables)
    assert cached_models() == ("gpt2", "org/one")
    hub_variables(HF_HOME="{}/elsewhere")
    assert cached_models() == ()
