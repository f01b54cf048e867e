"""Models made by somebody else: their code never runs, their vocabulary is checked."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.errors import ModelLoadError, VocabMismatchError
from core.events.outcome import Outcome
from core.models.loading.catalog import bundled_llm, bundled_ssms


def tiny_with(folder: Path, vocab_size: int) -> str:
    """A random Llama with the bundled tokenizer and this many embedding rows."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=256, eos_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled_llm() / name, folder / name)
    return str(folder)


def test_code_that_comes_with_a_model_is_never_run_even_if_the_visitor_says_yes(
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
