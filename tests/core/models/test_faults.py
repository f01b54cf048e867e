"""Unusual and faulty model folders."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.errors import ConfigError, ContextLengthError, ModelLoadError
from core.events import RunStarted
from core.models.loading.differences import context_length_of
from core.models.machine import parameter_count, weight_bytes
from tests.core.engines import texts_of
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.fakes import word_tokenizer

VOCAB = 64
META = {"format": "pt"}
SWITCH = 32
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": SWITCH,
    "factor": 4.0,
}


def change_config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


def tiny(folder: Path, kind: str, **fields: Any) -> Any:
    config = CONFIG_MAPPING[kind](
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, **fields,
    )  # fmt: skip
    torch.manual_seed(3)
    module: Any = AutoModelForCausalLM.from_config(config)
    module.save_pretrained(folder)
    word_tokenizer(VOCAB).save_pretrained(folder)
    return module.eval()


def prompt(count: int) -> str:
    return " ".join(f"w{3 + i % 50}" for i in range(count))


def decode(models: LoadedModels, *requests: Request) -> list[list[int]]:
    return texts_of(Engine(models).generate_many(requests))


def request(count: int, new: int, preset: str = "autoregressive") -> Request:
    sampling = SamplingParams(new, ignore_eos=True)
    return Request(prompt(count), sampling, SpeculationConfig.preset(preset))


def module_text(module: Any, models: LoadedModels, count: int, new: int) -> list[int]:
    ids = torch.tensor([models.tokenizer(prompt(count))["input_ids"]])
    text = module.generate(ids, max_new_tokens=new, do_sample=False, eos_token_id=None)
    results: list[int] = text[0, count:].tolist()
    return results


@pytest.mark.parametrize("kind", ["llama", "phi3", "mistral"])
def test_frequencies_that_switch_end_the_context(kind: str, tmp_path: Path) -> None:
    fields = {"original_max_position_embeddings": SWITCH} if kind == "phi3" else {}
    rope = {"rope_parameters": LONGROPE, "max_position_embeddings": 128}
    module = tiny(tmp_path / "llm", kind, num_key_value_heads=4, **rope, **fields)
    models = load_models(str(tmp_path / "llm"), [str(tmp_path / "llm")])
    assert models.llm.context_length == SWITCH
    assert any("32 tokens, not 128" in warning for warning in models.warnings)
    (plain,) = decode(models, request(15, 24))
    assert module_text(module, models, 15, len(plain)) == plain
    assert len(plain) == SWITCH - 15
    assert decode(models, request(15, 24, "specinfer")) == [plain]
    short, long = request(5, 12), request(25, 24)
    assert decode(models, short, long) == [*decode(models, short), *decode(models, long)]


def test_every_run_repeats_the_warnings_of_loading(tmp_path: Path) -> None:
    tiny(tmp_path / "llm", "llama", rope_parameters=LONGROPE, max_position_embeddings=128)
    models = load_models(str(tmp_path / "llm"), [])
    first = next(Engine(models).generate(request(5, 2)))
    assert isinstance(first, RunStarted)
    assert first.warnings[: len(models.warnings)] == models.warnings


@pytest.mark.parametrize("rope_type", ["yarn", "linear", "llama3", "dynamic"])
def test_frequencies_that_do_not_switch_do_not_shorten_the_context(
    rope_type: str, tmp_path: Path
) -> None:
    rope = {
        "rope_type": rope_type,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": SWITCH,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    module = tiny(
        tmp_path / "llm", "llama", rope_parameters=rope, max_position_embeddings=64,
        num_key_value_heads=4,
    )  # fmt: skip
    folder = str(tmp_path / "llm")
    models = load_models(folder, [folder])
    assert models.llm.context_length == 64 and not models.warnings
    (plain,) = decode(models, request(25, 99))
    assert module_text(module, models, 25, len(plain)) == plain
    assert len(plain) == 64 - 25
    assert decode(models, request(25, 99, "specinfer"), request(40, 9)) == [
        plain, *decode(models, request(40, 9)),
    ]  # fmt: skip


def test_an_ssm_of_switching_frequencies_changes_no_text(tmp_path: Path) -> None:
    tiny(tmp_path / "llm", "llama", max_position_embeddings=64)
    tiny(tmp_path / "ssm", "llama", rope_parameters=LONGROPE, max_position_embeddings=128)
    models = load_models(str(tmp_path / "llm"), [str(tmp_path / "ssm")])
    plain = decode(models, request(25, 12), request(31, 6))
    assert decode(models, request(25, 12, "specinfer"), request(31, 6, "specinfer")) == plain


def test_a_prompt_beyond_the_switch_is_refused_with_both_lengths(tmp_path: Path) -> None:
    tiny(tmp_path / "llm", "llama", rope_parameters=LONGROPE, max_position_embeddings=128)
    engine = Engine(load_models(str(tmp_path / "llm"), []))
    with pytest.raises(ContextLengthError, match=r"^prompt is 40 tokens long: .* is 32 tokens"):
        engine.prepare(request(40, 4))
    assert engine.prepare(request(31, 4)).context_length == SWITCH


@pytest.mark.parametrize(
    "name", ["flash_attention_2", "flash_attention_3", "flex_attention", "paged|eager", "no/kernel"]
)
def test_a_folder_does_not_choose_the_attention(name: str, tmp_path: Path) -> None:
    models = load_models(
        str(change_config(save_tiny_model(tmp_path / "llm"), attn_implementation=name)), []
    )
    assert len(decode(models, request(4, 4))[0]) == 4


def test_output_attentions_does_not_break_a_pass(tmp_path: Path) -> None:
    models = load_models(
        str(change_config(save_tiny_model(tmp_path / "llm"), output_attentions=True)), []
    )
    assert len(decode(models, request(4, 4))[0]) == 4


@pytest.mark.parametrize("method", ["gptq", "awq", "hqq", "quanto", "aqlm"])
def test_a_quantization_whose_package_is_missing_is_refused(method: str, tmp_path: Path) -> None:
    quantization = {"quant_method": method, "bits": 4}
    folder = change_config(save_tiny_model(tmp_path / "llm"), quantization_config=quantization)
    message = refusal_of(ModelLoadError, folder)
    assert "it cannot be read" in message


def test_a_tokenizer_whose_library_is_missing_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"no model")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    assert "tokenizer is" in refusal_of(ModelLoadError, folder)


TOKENIZERS = {
    "decoder": {"type": "Nothing"},
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]},
    "normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": "x"},
    "added_tokens": [{"id": 1}],
}


@pytest.mark.parametrize("part", TOKENIZERS)
def test_a_tokenizer_file_that_raises_bare_exceptions_is_refused(part: str, tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: TOKENIZERS[part]}))
    assert "tokenizer is" in refusal_of(ModelLoadError, folder)


def test_a_text_that_the_tokenizer_cannot_take_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["vocab"] = {"w1": 1}  # without the token of unknown words
    path.write_text(json.dumps(values))
    with pytest.raises(
        ConfigError, match=r"^prompt is 'w3': it must be a text that the tokenizer of llm ta"
    ):
        Engine(load_models(str(folder), [])).prepare(Request("w3"))


def test_a_link_to_missing_weights_is_refused(tmp_path: Path) -> None:
    """Such a link may remain after the hub's cache was emptied."""
    folder = save_tiny_model(tmp_path / "llm")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "nowhere")
    assert "it cannot be read" in refusal_of(ModelLoadError, folder)


def test_weights_of_other_shapes_are_named(tmp_path: Path) -> None:
    folder = change_config(save_tiny_model(tmp_path / "llm"), vocab_size=1 << 40)
    assert "other shapes than its config.json says" in refusal_of(ModelLoadError, folder)


@pytest.mark.parametrize("field", ["return_dict", "use_cache"])
def test_a_folder_does_not_choose_what_a_pass_returns(field: str, tmp_path: Path) -> None:
    models = load_models(
        str(change_config(save_tiny_model(tmp_path / "llm"), **{field: False})), []
    )
    assert len(decode(models, request(4, 4))[0]) == 4


@pytest.mark.parametrize("value", [0, -1, 10**30])
def test_an_invalid_context_length_is_no_switch(value: int, tmp_path: Path) -> None:
    models = load_models(
        str(change_config(save_tiny_model(tmp_path / "llm"), max_position_embeddings=value)), []
    )
    assert models.warnings == () and models.llm.context_length < 1 << 31


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pickled_weights_are_counted_in_their_own_format(dtype: Any, tmp_path: Path) -> None:
    """Tied weights count once."""
    folder = save_tiny_model(tmp_path / "llm")
    weights = {n: w.to(dtype) for n, w in load_file(folder / "model.safetensors").items()}
    parameters = parameter_count(str(folder))
    weights["tied"] = weights["lm_head.weight"]
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert parameter_count(str(folder)) == parameters
    assert weight_bytes(str(folder), torch.float32) == 4 * parameters
    (folder / "pytorch_model.bin").write_bytes(b"no pickle!")
    assert parameter_count(str(folder)) == 5


def split_in_two(folder: Path) -> Path:
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, folder / file, {"format": "pt"})
    table = {name: file for file, own in parts.items() for name in own}
    index = json.dumps({"metadata": {}, "weight_map": table})
    (folder / "model.safetensors.index.json").write_text(index)
    (folder / "model.safetensors").unlink()
    return folder


def test_files_that_the_index_does_not_name_are_not_counted(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    contents = (folder / "model.safetensors").read_bytes()
    parameters = parameter_count(str(folder))
    (folder / "consolidated.safetensors").write_bytes(contents)
    assert parameter_count(str(folder)) == parameters
    (folder / "consolidated.safetensors").unlink()
    split_in_two(folder)
    (folder / "consolidated.safetensors").write_bytes(contents)
    assert parameter_count(str(folder)) == parameters
    assert weight_bytes(str(folder), torch.bfloat16) == 2 * parameters
    assert load_models(str(folder), []).llm.info.parameters == parameters


def test_with_an_unreadable_index_all_files_are_counted(tmp_path: Path) -> None:
    folder = split_in_two(save_tiny_model(tmp_path / "llm"))
    (folder / "model.safetensors.index.json").write_text("[]")
    assert parameter_count(str(folder)) > 0


def test_one_float32_buffer_does_not_change_the_format(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    weights = {n: w.bfloat16() for n, w in load_file(folder / "model.safetensors").items()}
    save_file(weights | {"buffer": torch.zeros(3)}, folder / "model.safetensors")
    assert weight_bytes(str(folder), torch.bfloat16) == 2 * parameter_count(str(folder))


def test_the_current_folder_may_be_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny_model(tmp_path / "somewhere")
    monkeypatch.chdir(tmp_path / "somewhere")
    models = load_models(".", ["."])
    assert models.llm.info.name == "somewhere" and models.drafter_names == ("somewhere",)


@pytest.mark.parametrize("name", ["none", "rounds", "verify"])
def test_a_drafter_with_a_reserved_name_is_renamed(name: str, tmp_path: Path) -> None:
    llm, ssm = save_tiny_model(tmp_path / "big"), save_tiny_model(tmp_path / name)
    assert load_models(str(llm), [str(ssm)]).drafter_names == (f"{name}-2",)


def test_max_target_positions_is_a_context_length(tmp_path: Path) -> None:
    from transformers import WhisperConfig, WhisperForCausalLM

    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(vocab_size=VOCAB, max_target_positions=48, **sizes, **heads, **ids)
    assert context_length_of(WhisperForCausalLM(config)) == 48


@pytest.mark.parametrize(("kind", "field"), [("gpt2", "n_positions"), ("opt", ""), ("gpt_neo", "")])
def test_learned_positions_end_the_context(kind: str, field: str) -> None:
    config = CONFIG_MAPPING[kind](vocab_size=VOCAB, **({field: 40} if field else {}))
    config.max_position_embeddings = 40
    for name in ("num_layers", "num_hidden_layers", "n_layer"):
        if hasattr(config, name):
            setattr(config, name, 1)
    if kind == "gpt_neo":
        config.attention_types, config.attention_layers = [[["global"], 1]], ["global"]
    assert context_length_of(AutoModelForCausalLM.from_config(config)) == 40


def test_a_table_of_relative_positions_bounds_no_length() -> None:
    config = CONFIG_MAPPING["gpt2"](vocab_size=VOCAB, n_layer=1, n_positions=40)
    module = AutoModelForCausalLM.from_config(config)
    module.relative_position_bias = torch.nn.Embedding(8, 2)
    assert context_length_of(module) == 40
    module.embed_positions = torch.nn.Embedding(8, 2)
    assert context_length_of(module) == 8


def warnings_with(folder: Path, **fields: Any) -> tuple[str, ...]:
    (folder / "generation_config.json").write_text(json.dumps(fields))
    return load_models(str(folder), []).warnings


def test_settings_of_generate_that_are_not_applied_are_a_warning(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    assert warnings_with(folder, eos_token_id=2, temperature=0.7, do_sample=True, top_p=0.9) == ()
    (message,) = warnings_with(folder, repetition_penalty=1.1, suppress_tokens=[5])
    assert "repetition_penalty=1.1, suppress_tokens=[5]" in message
    (message,) = warnings_with(folder, no_repeat_ngram_size=3)
    assert "no_repeat_ngram_size=3" in message


def test_models_of_one_name_are_distinguished_by_their_weights(tmp_path: Path) -> None:
    infos = []
    for place, change in (("a", 0.0), ("b", 0.0), ("c", 1e-3)):
        folder = save_tiny_model(tmp_path / place / "llm")
        weights = load_file(folder / "model.safetensors")
        save_file({n: w + change for n, w in weights.items()}, folder / "model.safetensors", META)
        infos.append(load_models(str(folder), []).llm.info)
    assert infos[0].fingerprint and infos[0] == infos[1] and infos[0].is_same(infos[1])
    assert infos[2].name == infos[0].name and not infos[0].is_same(infos[2])


def one_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][5, 7] += 1
    save_file(weights, folder / "model.safetensors", META)


def other_end(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": 9}')


CHANGES = {
    "one weight": one_weight,
    "an end of text": other_end,
    "rotary frequencies": lambda folder: change_config(
        folder, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    ),
    "a norm": lambda folder: change_config(folder, rms_norm_eps=0.1),
    "nothing": lambda folder: change_config(folder, transformers_version="4.0.0", use_cache=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_decides_a_text_is_in_the_fingerprint(change: str, tmp_path: Path) -> None:
    folders = [save_tiny_model(tmp_path / place / "llm") for place in "ab"]
    CHANGES[change](folders[1])
    one, other = (load_models(str(folder), []).llm.info for folder in folders)
    assert one.is_same(other) is (change == "nothing")
