"""Bundled models: files, loading with stock transformers, accuracy."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.family import SSMS
from zoo.corpora import END_OF_TEXT
from zoo.tokenizer import first_differing_id, open_tokenizer

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "bundled"
PARAMETERS = {"llm": 13_902_080} | dict.fromkeys(SSMS, 926_336)
# Limits in bytes. LARGEST_FAMILY: all files outside smollm2/. LARGEST_FILE: each file except
# the EMBEDDING that the SSMs of smollm2/ share.
LARGEST_FAMILY, LARGEST_FILE, SMOLLM2, EMBEDDING = 48_000_000, 12_000_000, 100_000_000, 26_000_000


@cache
def model(name: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(BUNDLED / name, dtype=torch.float32)


def test_the_folder_has_these_models_and_their_card() -> None:
    assert {path.parent.name for path in BUNDLED.glob("*/config.json")} == PARAMETERS.keys()
    card = (BUNDLED / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in card for name in PARAMETERS)


def test_the_family_is_small_enough_to_be_cloned() -> None:
    sizes = {path: path.stat().st_size for path in BUNDLED.rglob("*") if path.is_file()}
    smollm2 = {path for path in sizes if path.is_relative_to(BUNDLED / "smollm2")}
    assert sum(sizes[path] for path in sizes.keys() - smollm2) <= LARGEST_FAMILY
    assert sum(sizes[path] for path in smollm2) <= SMOLLM2
    large = {path for path, size in sizes.items() if size > LARGEST_FILE}
    assert {str(path.relative_to(BUNDLED)) for path in large} <= {"smollm2/embedding.safetensors"}
    assert all(sizes[path] <= EMBEDDING for path in large)


@pytest.mark.parametrize("name", ["ssm-chat", "ssm-code", "ssm-facts", "ssm-text"])
def test_ssms_of_smollm2_load_with_stock_transformers(name: str) -> None:
    folder = BUNDLED / "smollm2" / name
    stored = AutoModelForCausalLM.from_pretrained(folder)
    assert stored.dtype == torch.bfloat16 and stored.num_parameters() == 15_796_480
    config = stored.config
    assert config.tie_word_embeddings and config.draft_vocab_size == 16_384
    assert (config.vocab_size, config.num_hidden_layers, config.hidden_size) == (49_152, 4, 256)
    shared = load_file(BUNDLED / "smollm2" / "embedding.safetensors")
    assert stored.get_input_embeddings().weight.equal(shared["model.embed_tokens.weight"])
    card = (BUNDLED / "smollm2" / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in card


@pytest.mark.parametrize("name", PARAMETERS)
def test_model_loads_with_stock_transformers(name: str) -> None:
    stored = AutoModelForCausalLM.from_pretrained(BUNDLED / name)
    assert stored.dtype == torch.bfloat16
    assert stored.num_parameters() == PARAMETERS[name]
    config = stored.config
    assert config.model_type == "llama" and config.tie_word_embeddings
    assert (config.vocab_size, config.max_position_embeddings) == (4096, 1024)
    assert config.bos_token_id == config.eos_token_id == stored.generation_config.eos_token_id == 0


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_tokenizer_begins_a_text_with_the_end_of_text_token(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / name)
    ids = tokenizer("Once upon a time")["input_ids"]
    assert ids[0] == 0 and ids.count(0) == 1
    assert tokenizer.convert_ids_to_tokens(0) == END_OF_TEXT
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Once upon a time"
    assert first_differing_id(tokenizer, open_tokenizer(BUNDLED / "llm")) is None


@pytest.mark.parametrize("name", PARAMETERS)
def test_generate_writes_from_a_prompt(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / name)
    inputs = tokenizer("User: Hello\nAssistant:", return_tensors="pt")
    written = model(name).generate(**inputs, max_new_tokens=8, do_sample=False)
    assert tokenizer.decode(written[0, inputs["input_ids"].shape[1] :]).strip()


def prompts_of(domain: str) -> list[str]:
    if domain == "docs":
        return [(ROOT / "docs" / "guide.md").read_text(encoding="utf-8")[:4000]]
    lines = (ROOT / "bench" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["prompt"] for row in map(json.loads, lines) if row["domain"] == domain]


def loss_on(name: str, domain: str) -> float:
    """Mean loss in nats per token."""
    tokenizer = open_tokenizer(BUNDLED / name)
    nats, num_tokens = 0.0, 0
    for text in prompts_of(domain):
        ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :1024]
        with torch.inference_mode():
            logits = model(name)(ids).logits[0, :-1]
        nats += functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        num_tokens += ids.shape[1] - 1
    return nats / num_tokens


@pytest.mark.parametrize("domain", ["stories", "dialogue", "math", "code", "docs"])
def test_the_ssm_of_a_domain_is_the_best_ssm_there_and_the_llm_is_better(domain: str) -> None:
    losses = {name: loss_on(name, domain) for name in PARAMETERS}
    assert sorted(losses, key=losses.__getitem__)[:2] == ["llm", f"ssm-{domain}"]
