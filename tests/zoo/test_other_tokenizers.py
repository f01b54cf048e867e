"""LLMs and SSMs with tokenizers that the zoo did not train."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from core.errors import ConfigError
from core.models.loading.load import load_models
from tests.zoo.small import SMALL
from tests.zoo.spelling import TEXTS, byte_fallback, byte_level, save_tokenizer
from zoo import __main__ as command
from zoo.models import open_model
from zoo.own_texts import BatchShape, OwnTexts
from zoo.prepare import Inputs, prepare
from zoo.teacher_cache import TeacherCache
from zoo.token_bytes import byte_lengths
from zoo.tokenizer import encode, open_tokenizer, separator, token_id_dtype, vocabulary_size
from zoo.tokens import open_tokens

KINDS = {"byte level": byte_level, "byte fallback": byte_fallback}
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
FURTHER_SIZES = {"llama": {"intermediate_size": 64}, "gpt2": {}}


def test_documents_are_separated_by_begin_and_end_of_text_tokens() -> None:
    level, fallback = byte_level(), byte_fallback()
    alone = [level(text)["input_ids"] for text in TEXTS]
    end = level.eos_token_id
    assert encode(level, TEXTS).tolist() == [end, *alone[0], end, *alone[1]]
    alone = [fallback(text)["input_ids"] for text in TEXTS]
    assert alone[0][0] == 1
    assert encode(fallback, TEXTS).tolist() == [*alone[0], 2, *alone[1], 2]
    assert (separator(level), separator(fallback)) == (end, 1)


@pytest.mark.parametrize("text", [*TEXTS, "naïve – 你好 🙂\n"])
def test_bytes_add_up_to_the_text(text: str) -> None:
    level, fallback = byte_level(), byte_fallback()
    assert byte_lengths(level)[encode(level, [text])].sum() == len(text.encode())
    # This tokenizer adds a space before the text.
    assert byte_lengths(fallback)[encode(fallback, [text])].sum() == 1 + len(text.encode())


def test_ids_above_two_bytes_are_stored_in_four(tmp_path: Path) -> None:
    large = open_tokenizer(save_tokenizer(byte_level(unused=70_000), tmp_path / "t"))
    assert vocabulary_size(large) > 1 << 16 and separator(large) < 1 << 16
    text = f"a unused69999 {TEXTS[0]}"
    row = encode(large, [text])
    assert row.dtype == np.uint32 and int(row.max()) == vocabulary_size(large) - 1
    assert encode(large, []).dtype == np.uint32
    assert large.decode(row[1:]) == text
    assert byte_lengths(large)[row].sum() == len(text.encode())
    assert (token_id_dtype(1 << 16), token_id_dtype((1 << 16) + 1)) == (np.uint16, np.uint32)


def test_texts_and_cached_tokens_of_a_large_vocabulary_have_four_bytes(tmp_path: Path) -> None:
    teacher = _make("llama", 70_000)
    with torch.no_grad():  # makes tokens with large ids the likeliest
        teacher.lm_head.weight[:69_000] = 0.0
    row = np.arange(69_000, 69_700, dtype=np.uint32)
    texts = OwnTexts(
        teacher, {"a": row}, tmp_path, BatchShape(2, 20, (4,), (1.0,)), separator=69_100
    )
    drawn = texts.batch("a", 0)
    assert drawn.dtype == np.uint32 and (drawn[:, :4] >= 69_000).all()
    assert drawn[0, 0] == 69_100, "every other text begins a document"
    cache = TeacherCache(teacher, tmp_path / "cache", {"a": row}, 16, 4)
    cached = cache.top_tokens(torch.arange(69_000, 69_016)[None])
    assert int(cached.ids.max()) >= 1 << 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder": decoders.WordPiece()}, "a byte-level tokenizer, or one with byte fallback"),
        ({}, "one with an end-of-text token, or that prepends a token to each text"),
    ],
)
def test_a_tokenizer_without_byte_lengths_or_separator_is_refused(
    change: dict[str, Any], message: str, tmp_path
):
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.decoder = change.get("decoder", decoders.ByteLevel())
    folder = save_tokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer), tmp_path / "t")
    with pytest.raises(ConfigError, match=f"tokenizer is .*{message}"):
        open_tokenizer(folder)


@pytest.mark.parametrize(("kind", "ssm"), [("byte level", "llama"), ("byte fallback", "gpt2")])
def test_an_ssm_of_another_architecture_is_distilled_by_command(
    kind: str, ssm: str, tmp_path, capsys
):
    tokenizer, out = KINDS[kind](), tmp_path / "out"
    size = vocabulary_size(tokenizer)
    # Both embeddings are padded.
    big, small = _make("llama", size + 40), _make(ssm, size + 24)
    for name, model in (("llm", big), ("ssm-code", small)):
        model.save_pretrained(save_tokenizer(tokenizer, tmp_path / name))
    smaller = replace(SMALL, own_corpus_bytes=60_000)
    prepare(smaller, Inputs(tokenizer=tmp_path / "llm"), out)
    assert open_tokens(out).manifest.separator == separator(tokenizer)
    arguments = ["distil", "--out", out, "--llm", tmp_path / "llm", "--ssm", tmp_path / "ssm-code"]
    arguments += ["--minutes", "0.01", "--own-batches", "1", "--remembered", "32"]
    assert command.main(list(map(str, arguments))) == 0, capsys.readouterr().err
    assert " -> " in capsys.readouterr().out
    tuned = out / "distilled" / "ssm-code"
    model = open_model(tuned)
    assert model.config.vocab_size == size and model.config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    loaded = load_models(str(tmp_path / "llm"), [str(tuned)], "float32", "cpu")
    assert loaded.eos_ids == (tokenizer.eos_token_id,)
    assert command.main(["evaluate", "--out", str(out), "--models", str(tuned)]) == 0


def _make(kind: str, vocab_size: int) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=vocab_size, **SIZES, **FURTHER_SIZES[kind])
    return AutoModelForCausalLM.from_config(config).eval()
