"""Laws 1(b) and 2 on SmolLM2: presets write the same text as transformers or plain decoding."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.config import PRESETS
from core.models.loading.catalog import SMOLLM2, bundled_ssms, is_gguf
from core.models.loading.finding import find_folder
from core.models.loading.load import LoadedModels, load_ssms
from core.speculation_length.cost_model import ledger
from core.speculation_length.cost_model.verify_costs import VerifyCosts
from tests.laws.margins import Divergences
from tests.laws.runs import PLAIN, ids_of, ids_of_many, transformers_ids_of_many
from tests.laws.traps import unlikely_node_accepted
from tests.smollm2 import chat_prompts, smollm2

nightly = pytest.mark.nightly
SAMPLING = SamplingParams(max_new_tokens=16)
SAMPLED_PARAMS = SamplingParams(max_new_tokens=16, temperature=0.8, seed=5)
NODES = 12  # fixed, since `auto` depends on measured times
# Without the default system message, which is half of a short chat.
CHAT_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
PROMPTS = chat_prompts()
DRAFTING_PRESETS = [name for name in PRESETS if name != "autoregressive"]
FAMILIES = ("SmolLM2 and a random model", "bundled")


@pytest.fixture(scope="module")
def random_ssm(smollm2_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, models = tmp_path_factory.mktemp("ssm") / "random", smollm2_engine.models
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config = LlamaConfig(
        vocab_size=models.llm.vocab_size, num_attention_heads=2, eos_token_id=2, **sizes
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    models.tokenizer.save_pretrained(folder)
    return folder


def load(dtype: str, ssms: Sequence[Path] = ()) -> LoadedModels:
    models = load_models(SMOLLM2, [*map(str, ssms)], dtype)
    models.tokenizer.chat_template = CHAT_TEMPLATE
    return models


def with_itself(models: LoadedModels, random_ssm: Path) -> LoadedModels:
    random, _ = load_ssms([str(random_ssm)], models.llm.info.dtype)
    return replace(models, ssms={"itself": models.llm, **random})


@pytest.fixture(scope="module")
def engine(smollm2_engine: Engine, random_ssm: Path) -> Engine:
    return Engine(with_itself(smollm2_engine.models, random_ssm))


@pytest.fixture(scope="module")
def smollm2_engine() -> Iterator[Engine]:
    """Passes are not timed: timing takes seconds, and texts do not depend on times."""
    smollm2()
    engine = Engine(load("float32", bundled_ssms(SMOLLM2)))
    assert len(engine.models.ssms) == 4 and engine.models.counts is not None
    with pytest.MonkeyPatch.context() as patch:
        costs = VerifyCosts({0: 30.0, 8: 40.0, 64: 90.0}, 64)
        patch.setattr(ledger, "measure_verify_costs", lambda llm: costs)
        yield engine


@pytest.fixture(scope="module")
def reference_model() -> Any:
    """A GGUF file is read without SpecScope's cache."""
    source = smollm2()
    options: dict[str, Any] = {"dtype": torch.float32, "local_files_only": source.local}
    if not is_gguf(source.name):
        return AutoModelForCausalLM.from_pretrained(source.name, **options).eval()
    file = Path(source.name)
    options["gguf_file"] = file.name
    with pytest.MonkeyPatch.context() as patch:
        # transformers repeats these calls for the configuration, the weights and each module.
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, cache(getattr(gguf, name)))
        return AutoModelForCausalLM.from_pretrained(file.parent, **options).eval()


def config_of(preset: str, temperature: float = 0.0) -> SpeculationConfig:
    config = SpeculationConfig.preset(preset, temperature)
    return replace(config, max_tree_nodes=NODES) if config.max_tree_nodes == "auto" else config


def request(prompt: str, config: SpeculationConfig, sampling: SamplingParams = SAMPLING) -> Request:
    return Request(prompt, sampling, config, chat=True)


def prompt_ids(engine: Engine, prompt: str) -> tuple[int, ...]:
    message = [{"role": "user", "content": prompt}]
    template: Any = engine.models.tokenizer.apply_chat_template
    return tuple(template(message, add_generation_prompt=True, return_dict=True)["input_ids"])


@cache
def expected_ids(
    reference_model: Any, prompts: tuple[tuple[int, ...], ...], eos_ids: tuple[int, ...]
) -> dict[tuple[int, ...], list[int]]:
    ordered, texts = sorted(prompts, key=len), dict[tuple[int, ...], list[int]]()
    for first in range(0, len(ordered), 10):
        batch = ordered[first : first + 10]
        written = transformers_ids_of_many(reference_model, batch, SAMPLING, eos_ids)
        texts.update(zip(batch, written, strict=True))
    return texts


def share(preset: str, family: str) -> list[str]:
    """The part of PROMPTS for a preset and a family of SSMs."""
    pairs = [(name, ssms) for ssms in FAMILIES for name in DRAFTING_PRESETS]
    return PROMPTS[pairs.index((preset, family)) :: len(pairs)]


def check(engine: Engine, reference_model: Any, config: SpeculationConfig, prompts: Any) -> None:
    every = tuple(prompt_ids(engine, prompt) for prompt in PROMPTS)
    expected = expected_ids(reference_model, every, tuple(engine.models.eos_ids))
    requests = [request(prompt, config) for prompt in prompts]
    alone = (ids_of(engine, one) for one in requests)
    texts = ids_of_many(engine, requests) if config == PLAIN else alone
    divergences = Divergences(reference_model)
    for prompt, ours in zip(prompts, texts, strict=True):
        ids = prompt_ids(engine, prompt)
        divergences.check(ids, ours, expected[ids], SAMPLING)


def check_match(engine: Engine, config: SpeculationConfig, prompts: Any) -> None:
    plain = ids_of_many(engine, [request(prompt, PLAIN, SAMPLED_PARAMS) for prompt in prompts])
    for prompt, expected in zip(prompts, plain, strict=True):
        assert ids_of(engine, request(prompt, config, SAMPLED_PARAMS)) == expected, prompt


@nightly
def test_weights_are_those_of_transformers(engine: Engine, reference_model: Any) -> None:
    ours: Any = engine.models.llm
    stored = ours._module.state_dict()
    for name, weight in reference_model.state_dict().items():
        assert torch.equal(stored[name], weight), name
    assert Path(find_folder(SMOLLM2)).is_dir()


@nightly
def test_plain_decoding_writes_what_transformers_writes(
    engine: Engine, reference_model: Any
) -> None:
    check(engine, reference_model, PLAIN, PROMPTS)


@nightly
@pytest.mark.parametrize("preset", DRAFTING_PRESETS)
def test_every_preset_writes_what_transformers_writes(
    engine: Engine, reference_model: Any, preset: str
) -> None:
    check(engine, reference_model, config_of(preset), share(preset, FAMILIES[0]))


@pytest.mark.slow
@pytest.mark.parametrize("preset", DRAFTING_PRESETS)
def test_every_preset_writes_what_transformers_writes_on_all_prompts(
    engine: Engine, reference_model: Any, preset: str
) -> None:
    check(engine, reference_model, config_of(preset), PROMPTS)


@nightly
def test_prompt_lookup_alone_writes_what_transformers_writes(
    engine: Engine, reference_model: Any
) -> None:
    check(engine, reference_model, replace(config_of("best"), drafters=("ngram",)), PROMPTS[:6])


@nightly
@pytest.mark.parametrize("preset", ["best", "specinfer"])
def test_match_writes_what_plain_decoding_writes(engine: Engine, preset: str) -> None:
    check_match(engine, config_of(preset, SAMPLED_PARAMS.temperature), PROMPTS[:3])


@nightly
@pytest.mark.parametrize("preset", DRAFTING_PRESETS)
def test_every_preset_with_the_bundled_ssms_writes_what_transformers_writes(
    smollm2_engine: Engine, reference_model: Any, preset: str
) -> None:
    check(smollm2_engine, reference_model, config_of(preset), share(preset, FAMILIES[1]))


@nightly
def test_lookups_with_the_bundled_counts_write_what_transformers_writes(
    smollm2_engine: Engine, reference_model: Any
) -> None:
    config = replace(config_of("best"), drafters=("suffix", "table"))
    check(smollm2_engine, reference_model, config, PROMPTS[:6])


@nightly
@pytest.mark.parametrize("preset", [name for name in DRAFTING_PRESETS if name != "specinfer-paper"])
def test_match_with_the_bundled_ssms_writes_what_plain_decoding_writes(
    smollm2_engine: Engine, preset: str
) -> None:
    config, part = config_of(preset, SAMPLED_PARAMS.temperature), DRAFTING_PRESETS.index(preset)
    assert config.resolve(SAMPLED_PARAMS.temperature).verify == "match"
    check_match(smollm2_engine, config, PROMPTS[part :: 2 * len(DRAFTING_PRESETS)])


@nightly
def test_bfloat16_equals_its_own_plain_decoding(random_ssm: Path) -> None:
    engine = Engine(with_itself(load("bfloat16"), random_ssm))
    prompts = PROMPTS[: len(DRAFTING_PRESETS)]
    plain = ids_of_many(engine, [request(prompt, PLAIN) for prompt in prompts])
    for preset, prompt, expected in zip(DRAFTING_PRESETS, prompts, plain, strict=True):
        assert ids_of(engine, request(prompt, config_of(preset))) == expected, preset


@nightly
def test_control_an_accepted_node_of_another_token_is_noticed(
    engine: Engine, reference_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trap acts only in rounds without an accepted node. The LLM accepts no node of the random
    model."""
    unlikely_node_accepted(monkeypatch)
    greedy = replace(config_of("specinfer"), drafters=("random",))
    with pytest.raises(AssertionError, match=r"token \d+: .*, margin "):
        check(engine, reference_model, greedy, PROMPTS[:1])
    sampled = config_of("specinfer", SAMPLED_PARAMS.temperature)
    with pytest.raises(AssertionError, match=re.escape(PROMPTS[0])):
        check_match(engine, replace(sampled, drafters=("random",)), PROMPTS[:1])
