"""Law 1(a): in float64, random models of every family write the same text as transformers."""

import itertools
from functools import cache

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import COMBINES, LENGTHS, PIPELINES, PRESETS, ROUTINGS, WEIGHTS
from tests.fakes import (
    FAMILIES,
    WINDOW,
    loaded_modules,
    perturb,
    tiny_module,
    with_narrow_head,
)
from tests.laws.pairwise import FUSED, missing_pairs, of_effect, pairwise
from tests.laws.runs import ids_of, ids_of_many, module_of, outcomes, transformers_ids

SAMPLING = SamplingParams(max_new_tokens=14)
WORDS = (
    [3, 52, 31, 24, 31],
    [(7 * i * i + 3) % 60 for i in range(14)],
    [(5 * i) % 7 + 10 for i in range(23)],
)
TEXTS = tuple(" ".join(f"w{word}" for word in words) for words in WORDS)
FIELDS = {
    "family": tuple(FAMILIES),
    "draft": ("auto", "topk", "best_first", *FUSED),
    "expansion": ((2, 2, 1), (3, 2, 2), (1,)),
    "max_tree_nodes": (9, "auto", "uncut"),
    "drafters": (
        *(("all",), ("ssm-1", "ngram", "ssm-0"), ("first",)),
        *(("suffix", "all"), ("table", "all")),
    ),
    "combine": COMBINES,
    "routing": ROUTINGS,
    "routed_drafters": (2, 1),
    "weights": WEIGHTS,
    "vote_nodes": (5, 12),
    "length": LENGTHS,
    "verify": ("auto", "greedy", "match"),
    "pipeline": PIPELINES,
    "mode": ("batched", "mixed", "alone"),
}
# The second SSM has no logits for the last token ids, which occur in the texts.
NARROW = ("llama", "gemma2", "gpt2", "gpt_neox")
ROWS = pairwise(FIELDS, of_effect)
PAIRED = tuple(zip(itertools.cycle(FAMILIES), PRESETS * 2, strict=False))


@cache
def engine_of(family: str) -> Engine:
    llm, other = tiny_module(family, seed=1), tiny_module(family, seed=2)
    if family in NARROW:
        with_narrow_head(other)
    return Engine(loaded_modules(llm, [perturb(llm, 0.12, seed=3), other]))


@cache
def expected_ids(family: str, eos_ids: tuple[int, ...] = ()) -> list[list[int]]:
    models = engine_of(family).models
    return [
        transformers_ids(module_of(models), models.tokenizer(text)["input_ids"], SAMPLING, eos_ids)
        for text in TEXTS
    ]


@pytest.mark.parametrize("index", range(len(ROWS)))
def test_greedy_is_transformers_greedy(index: int) -> None:
    fields = dict(ROWS[index])
    family, mode = fields.pop("family"), fields.pop("mode")
    config = SpeculationConfig(**fields)
    if mode == "alone":
        one = index % len(TEXTS)
        request = Request(TEXTS[one], SAMPLING, config)
        assert ids_of(engine_of(family), request) == expected_ids(family)[one]
        return
    # In `mixed`, a request with other settings must not change the texts.
    other = SpeculationConfig.preset("sequence") if mode == "mixed" else config
    configs = (config, other, config)
    requests = [Request(text, SAMPLING, each) for text, each in zip(TEXTS, configs, strict=True)]
    assert ids_of_many(engine_of(family), requests) == expected_ids(family)


@pytest.mark.parametrize(("family", "name"), PAIRED)
def test_presets_write_what_transformers_writes(family: str, name: str) -> None:
    config = SpeculationConfig.preset(name)
    requests = [Request(text, SAMPLING, config) for text in TEXTS]
    assert ids_of_many(engine_of(family), requests) == expected_ids(family)
    assert ids_of(engine_of(family), requests[1]) == expected_ids(family)[1]


def test_every_pair_of_values_occurs() -> None:
    assert missing_pairs(ROWS, FIELDS, of_effect) == set()
    assert {family for family, _ in PAIRED} == set(FAMILIES)
    assert {name for _, name in PAIRED} == set(PRESETS)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cases_are_not_trivial(family: str) -> None:
    paper = SpeculationConfig.preset("specinfer-paper")
    requests = [Request(text, SAMPLING, paper) for text in TEXTS]
    runs = list(outcomes(engine_of(family).generate_many(requests)).values())
    accepted = sum(run.summary["num_accepted_tokens"] for run in runs)
    drafted = sum(run.summary["num_draft_tokens"] for run in runs)
    assert 0 < accepted < drafted
    assert max(len(words) for words in WORDS) > 2 * WINDOW
    assert len({token for ids in expected_ids(family) for token in ids}) > 5


@pytest.mark.parametrize(
    ("family", "name"),
    list(zip(itertools.cycle(["llama", "mistral", "gpt2"]), PRESETS, strict=False)),
)
def test_an_end_of_text_token_ends_the_same_text(family: str, name: str) -> None:
    # A token that the model writes anyway.
    eos_ids = (expected_ids(family)[1][9],)
    models = engine_of(family).models
    ending_models = type(models)(models.llm, models.ssms, models.tokenizer, eos_ids)
    engine = Engine(ending_models)
    config = SpeculationConfig.preset(name)
    requests = [Request(text, SAMPLING, config) for text in TEXTS]
    assert ids_of_many(engine, requests) == expected_ids(family, eos_ids)
    assert len(expected_ids(family, eos_ids)[1]) < SAMPLING.max_new_tokens


@pytest.mark.parametrize("family", ["mistral", "gemma2", "phi3-sliding", "qwen2-sliding"])
def test_control_a_mask_without_the_window_writes_another_text(family: str) -> None:
    models = engine_of(family).models
    kind = models.llm.masks
    models.llm.masks = type(kind)(10_000, kind.by_layer_type)
    try:
        sequence = SpeculationConfig.preset("sequence")
        got = ids_of_many(engine_of(family), [Request(t, SAMPLING, sequence) for t in TEXTS])
    finally:
        models.llm.masks = kind
    assert got != expected_ids(family)


def test_the_arithmetic_is_float64() -> None:
    assert engine_of("llama").models.llm.dtype == torch.float64
