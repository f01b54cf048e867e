"""Loading: each way a folder can be wrong has its error, which names it and what is allowed."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5ForConditionalGeneration

from core import load_models
from core.errors import ModelLoadError, UnsupportedModelError
from tests.core.models.folders import refused, saved
from tests.fakes import tiny_module, word_tokenizer


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "no such folder" in refused(ModelLoadError, tmp_path / "file")
    message = refused(ModelLoadError, tmp_path / "nowhere")
    assert "nowhere': no such folder; a folder with config.json, weights and tokenizer" in message


def test_a_folder_without_configuration(copy: Path) -> None:
    (copy / "config.json").unlink()
    assert "config.json is missing" in refused(ModelLoadError, copy)


@pytest.mark.parametrize(
    ("file", "keep", "said"),
    [
        ("config.json", 0.5, ""),
        ("model.safetensors", 0.5, "it cannot be read"),
        ("model.safetensors", 0.0001, "it cannot be read"),
        ("model.safetensors", 0.0, "it cannot be read"),
    ],
    ids=["configuration", "weights", "their header", "no weights"],
)
def test_a_file_cut_in_the_middle(copy: Path, file: str, keep: float, said: str) -> None:
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content[: int(keep * len(content))])
    if not keep:
        (copy / file).unlink()
    assert said in refused(ModelLoadError, copy)


def test_a_weight_that_is_missing(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    del weights[name]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    message = refused(ModelLoadError, copy)
    assert "1 weights are missing" in message and name in message


def test_weights_that_are_no_numbers(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * float("nan")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert "gives values that are no numbers" in refused(ModelLoadError, copy)
    weights["model.norm.weight"] = torch.ones(31)  # of another shape
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    refused(ModelLoadError, copy)


def test_our_error_is_all_that_is_said(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configuration = json.loads((copy / "config.json").read_text())
    configuration["num_hidden_layers"] += 2
    (copy / "config.json").write_text(json.dumps(configuration))
    capfd.readouterr()
    assert "weights are missing" in refused(ModelLoadError, copy)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["", "  "])
def test_no_name_at_all(name: str) -> None:
    with pytest.raises(ModelLoadError, match="bundled, a folder or a hub id is allowed"):
        load_models(llm=name)


def test_a_missing_shard(tmp_path: Path) -> None:
    folder = saved(tmp_path / "sharded", max_shard_size="20KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    load_models(str(folder), [])
    shards[-1].unlink()
    assert "it cannot be read" in refused(ModelLoadError, folder)


def test_a_missing_tokenizer(copy: Path) -> None:
    for file in copy.glob("tokenizer*"):
        file.unlink()
    assert "tokenizer is" in refused(ModelLoadError, copy)


def test_pickled_weights_run_nothing(copy: Path, tmp_path: Path) -> None:
    """A pickle whose loading would run a command: refused, and the command did not run."""
    mark = tmp_path / "it-ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, (f"touch {mark}",))

    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(
        pickle.dumps({"model.norm.weight": Evil()}, protocol=2)
    )
    assert "hold more than tensors" in refused(ModelLoadError, copy)
    torch.save({"model.norm.weight": Evil()}, copy / "pytorch_model.bin")
    assert "hold more than tensors" in refused(ModelLoadError, copy)
    assert not mark.exists()
    (copy / "pytorch_model.bin").write_bytes(b"")
    refused(ModelLoadError, copy)


def test_harmless_pickled_weights_are_read(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    torch.save(weights, copy / "pytorch_model.bin")
    assert load_models(str(copy), []).llm.vocab_size == 64


def test_an_encoder_decoder(tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4,
        decoder_start_token_id=0
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    message = refused(UnsupportedModelError, folder)
    assert "is of type t5: a decoder-only model is allowed" in message


def test_an_ssm_of_another_architecture_is_refused_too(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alibi"
    module = tiny_module(
        "bloom", seed=1, dtype=torch.float32, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0
    )
    module.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    assert "BloomForCausalLM" in refused(UnsupportedModelError, whole, folder)
