"""Refusals of faulty model folders, and of code that comes with a model."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.errors import ModelLoadError, UnsupportedModelError, VocabMismatchError
from core.events.outcome import Outcome
from core.models.loading.catalog import bundled_llm, bundled_ssms
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.fakes import tiny_module, word_tokenizer


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "it is empty; a whole GGUF file" in refusal_of(ModelLoadError, tmp_path / "file")
    message = refusal_of(ModelLoadError, tmp_path / "nowhere")
    assert "nowhere': no such folder; a folder with config.json, weights and tokenizer" in message


def test_a_folder_without_config_json_is_refused(copy: Path) -> None:
    (copy / "config.json").unlink()
    assert "config.json is missing" in refusal_of(ModelLoadError, copy)


@pytest.mark.parametrize(
    ("file", "keep", "message"),
    [
        ("config.json", 0.5, ""),
        ("model.safetensors", 0.5, "it cannot be read"),
        ("model.safetensors", 0.0001, "it cannot be read"),
        ("model.safetensors", 0.0, "it cannot be read"),
    ],
    ids=["configuration", "weights", "their header", "no weights"],
)
def test_a_truncated_file_is_refused(copy: Path, file: str, keep: float, message: str) -> None:
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content[: int(keep * len(content))])
    if not keep:
        (copy / file).unlink()
    assert message in refusal_of(ModelLoadError, copy)


def test_a_missing_weight_is_refused(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    del weights[name]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    message = refusal_of(ModelLoadError, copy)
    assert "1 weights are missing" in message and name in message


def test_weights_with_nan_are_refused(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * float("nan")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert "gives values that are no numbers" in refusal_of(ModelLoadError, copy)
    weights["model.norm.weight"] = torch.ones(31)  # of another shape
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    refusal_of(ModelLoadError, copy)


def test_only_the_error_is_reported(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configuration = json.loads((copy / "config.json").read_text())
    configuration["num_hidden_layers"] += 2
    (copy / "config.json").write_text(json.dumps(configuration))
    capfd.readouterr()
    assert "weights are missing" in refusal_of(ModelLoadError, copy)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(
        ModelLoadError, match="bundled, smollm2, a folder, a GGUF file or a hub id is allowed"
    ):
        load_models(llm=name)


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "sharded", max_shard_size="20KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    load_models(str(folder), [])
    shards[-1].unlink()
    assert "it cannot be read" in refusal_of(ModelLoadError, folder)


def test_a_missing_tokenizer_is_refused(copy: Path) -> None:
    for file in copy.glob("tokenizer*"):
        file.unlink()
    assert "tokenizer is" in refusal_of(ModelLoadError, copy)


def test_pickled_weights_run_no_command(copy: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, (f"touch {mark}",))

    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps({"model.norm.weight": Evil()}, 2))
    assert "hold more than tensors" in refusal_of(ModelLoadError, copy)
    torch.save({"model.norm.weight": Evil()}, copy / "pytorch_model.bin")
    assert "hold more than tensors" in refusal_of(ModelLoadError, copy)
    assert not mark.exists()
    (copy / "pytorch_model.bin").write_bytes(b"")
    refusal_of(ModelLoadError, copy)


def test_harmless_pickled_weights_are_read(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    torch.save(weights, copy / "pytorch_model.bin")
    assert load_models(str(copy), []).llm.vocab_size == 64


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4,
        decoder_start_token_id=0
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    message = refusal_of(UnsupportedModelError, folder)
    assert "is of type t5: a decoder-only model is allowed" in message


def test_an_ssm_of_an_unsupported_architecture_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alibi"
    module = tiny_module(
        "bloom", seed=1, dtype=torch.float32, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0
    )
    module.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    assert "BloomForCausalLM" in refusal_of(UnsupportedModelError, whole, folder)


def tiny_with(folder: Path, vocab_size: int) -> str:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=256, eos_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled_llm() / name, folder / name)
    return str(folder)


def test_a_models_own_code_is_not_run_even_if_the_user_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evil"
    shutil.copytree(bundled_ssms()[0], folder)
    mark = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ModelLoadError, match="evil"):
        load_models(str(folder), [], device="cpu")
    assert not mark.exists()


def test_a_model_with_fewer_rows_than_its_tokenizer_has_ids_is_refused(tmp_path: Path) -> None:
    small = tiny_with(tmp_path / "small", 100)
    with pytest.raises(VocabMismatchError, match="100 tokens.*4095"):
        load_models(small, [], device="cpu")


def test_an_llm_padded_beyond_its_ssms_may_choose_its_padding(tmp_path: Path) -> None:
    padded = tiny_with(tmp_path / "padded", 4224)
    engine = Engine(load_models(padded, ["bundled"], dtype="float32", device="cpu"))
    sampling = SamplingParams(40, temperature=5.0, seed=2, ignore_eos=True)
    texts = []
    for preset in ("specinfer", "autoregressive"):
        outcome = Outcome()
        config = SpeculationConfig.preset(preset)
        for event in engine.generate(Request("Once", sampling, config)):
            outcome.observe(event)
        texts.append(outcome.token_ids)
    assert texts[0] == texts[1]
    assert max(texts[0]) >= 4096, "the run should have met an id that no SSM has"


@pytest.mark.skipif(sys.platform == "win32", reason="the home folder is found another way there")
def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(bundled_ssms()[0], tmp_path / "mine")
    assert load_models("~/mine", [], device="cpu").llm.info.name == "mine"
