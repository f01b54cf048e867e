"""Law 1(b): the bundled models in float32 write what transformers' greedy `generate` writes."""

import copy
from dataclasses import replace
from functools import cache

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import PIPELINES, PRESETS
from tests.laws.margins import Divergences
from tests.laws.pairwise import (
    FUSED,
    NEVER,
    ROUNDS,
    TREES,
    Row,
    affordable,
    of_effect,
    pairwise,
)  # fmt: skip
from tests.laws.runs import (
    bundled_engine,
    ids_of,
    ids_of_many,
    module_of,
    outcomes,
    prompts,
    some,
    transformers_ids,
    use_schedule,
)
from tests.laws.traps import unlikely_node_accepted

pytestmark = pytest.mark.usefixtures("bundled")
SAMPLING = SamplingParams(max_new_tokens=24)
PROMPTS = prompts(4)
FIELDS = {
    "draft": ("auto", "topk", "best_first", *FUSED),
    **TREES,
    "verify": ("auto", "greedy", "match"),
    **ROUNDS,
}


def is_allowed(row: Row) -> bool:
    return affordable(row) and of_effect(row)


PAIRS = pairwise(FIELDS, is_allowed)
ROWS = [*PAIRS, *({**PAIRS[0], **row} for row in NEVER)]


@cache
def expected_ids(prompt: str) -> list[int]:
    models = bundled_engine().models
    ids = models.tokenizer(prompt)["input_ids"]
    return transformers_ids(module_of(models), ids, SAMPLING, models.eos_ids)


@pytest.fixture(scope="module", autouse=True)
def _compute_expected(bundled: Engine) -> None:
    for prompt in PROMPTS:
        expected_ids(prompt)


def check(
    divergences: Divergences, texts: list[list[int]], prompts_used: tuple[str, ...] = PROMPTS
) -> None:
    tokenizer = bundled_engine().models.tokenizer
    for prompt, got in zip(prompts_used, texts, strict=True):
        divergences.check(tokenizer(prompt)["input_ids"], got, expected_ids(prompt), SAMPLING)


def texts_of(
    config: SpeculationConfig, mode: str, prompts_used: tuple[str, ...] = PROMPTS
) -> list[list[int]]:
    engine = bundled_engine()
    if mode == "mixed":
        # Requests with other settings must not disturb these.
        other = SpeculationConfig.preset("sequence")
        configs = [config if i % 2 else other for i in range(len(prompts_used))]
    else:
        configs = [config] * len(prompts_used)
    requests = [Request(p, SAMPLING, c) for p, c in zip(prompts_used, configs, strict=True)]
    if mode == "alone":
        return [ids_of(engine, request) for request in requests]
    return ids_of_many(engine, requests)


@pytest.mark.parametrize("index", range(len(ROWS)))
def test_every_pair_of_settings_writes_what_transformers_writes(
    divergences: Divergences, index: int
) -> None:
    row = ROWS[index]
    fields = {name: row[name] for name in row if name not in ("mode", "schedule")}
    own = some(PROMPTS, index) if row["mode"] == "alone" else PROMPTS
    with use_schedule(bundled_engine(), row["schedule"]):
        texts = texts_of(SpeculationConfig(**fields), row["mode"], own)
    check(divergences, texts, own)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_write_what_transformers_writes(divergences: Divergences, name: str) -> None:
    config = SpeculationConfig.preset(name)
    check(divergences, texts_of(config, "mixed"))
    one = some(PROMPTS, PRESETS.index(name), count=1)
    check(divergences, texts_of(config, "alone", one), one)


@pytest.mark.parametrize("pipeline", PIPELINES[1:])
def test_pipelined_presets_write_what_transformers_writes(
    divergences: Divergences, pipeline: str
) -> None:
    own = [PROMPTS[(i + PIPELINES.index(pipeline)) % len(PROMPTS)] for i in range(len(PRESETS))]
    configs = [replace(SpeculationConfig.preset(name), pipeline=pipeline) for name in PRESETS]
    requests = [Request(p, SAMPLING, c) for p, c in zip(own, configs, strict=True)]
    check(divergences, ids_of_many(bundled_engine(), requests), tuple(own))


def test_stop_strings_end_the_text_where_transformers_does() -> None:
    models = bundled_engine().models
    module = copy.deepcopy(module_of(models))
    stop = (" the", ".", "\n")
    for prompt in PROMPTS:
        ids = models.tokenizer(prompt)["input_ids"]
        sampling = SamplingParams(max_new_tokens=32, stop=stop)
        expected = transformers_ids(
            module, ids, sampling, models.eos_ids, stop_strings=list(stop),
            tokenizer=models.tokenizer,
        )  # fmt: skip
        assert ids_of(bundled_engine(), Request(prompt, sampling)) == expected


def test_control_an_accepted_node_of_another_token_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unlikely_node_accepted(monkeypatch)
    one = PROMPTS[:1]
    texts = texts_of(SpeculationConfig.preset("specinfer"), "alone", one)
    with pytest.raises(AssertionError, match=r"token \d+: .*, margin "):
        check(Divergences(module_of(bundled_engine().models)), texts, one)


def test_the_cases_are_not_trivial() -> None:
    requests = [Request(p, SAMPLING, SpeculationConfig.preset("specinfer-paper")) for p in PROMPTS]
    runs = outcomes(bundled_engine().generate_many(requests)).values()
    accepted = [run.summary["num_accepted_tokens"] for run in runs]
    assert 0 < sum(accepted) < sum(run.summary["num_draft_tokens"] for run in runs)
    assert len({tuple(run.token_ids) for run in runs}) == len(PROMPTS)
