"""Law 2: at any temperature, `match` writes the token ids of plain decoding with the same seed."""

import dataclasses
from functools import cache
from typing import Any

import pytest

from core import Request, SamplingParams, SpeculationConfig
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
    PLAIN,
    bundled_engine,
    ids_of,
    ids_of_many,
    outcomes,
    prompts,
    some,
    use_schedule,
)

pytestmark = pytest.mark.usefixtures("bundled")
PROMPTS = prompts(4)
SAMPLINGS = (
    SamplingParams(24, temperature=0.8, seed=1),
    SamplingParams(24, temperature=0.3, seed=2**63 - 1, ignore_eos=True),
    SamplingParams(24, temperature=1.6, top_k=20, seed=3),
    SamplingParams(24, temperature=0.8, top_p=0.9, seed=4),
    SamplingParams(24, temperature=1.0, top_k=50, top_p=0.5, seed=0),
    SamplingParams(24, temperature=0.7, top_k=1, seed=6),
    SamplingParams(24, temperature=0.9, min_p=0.1, seed=7),
    SamplingParams(24, temperature=0.8, repetition_penalty=1.3, seed=8),
)
FIELDS = {
    "sampling": tuple(range(len(SAMPLINGS))),
    "draft": ("auto", "coupled", "topk", "best_first", *FUSED, "sampled", "sampled_iid"),
    **TREES,
    "verify": ("auto", "match"),
    **ROUNDS,
}


def is_allowed(row: Row) -> bool:
    """Leaves out sampled drafts with `verify=auto`, which then means `mss`: law 3 covers `mss`."""
    drawn = row.get("verify") == "auto" and "sampled" in row.get("draft", "")
    return affordable(row) and of_effect(row) and not drawn


PAIRS = pairwise(FIELDS, is_allowed)
ROWS = [*PAIRS, *({**PAIRS[0], **row} for row in NEVER)]


@cache
def plain(index: int) -> list[list[int]]:
    requests = [Request(prompt, SAMPLINGS[index], PLAIN) for prompt in PROMPTS]
    return ids_of_many(bundled_engine(), requests)


def texts_of(
    sampling: SamplingParams, config: SpeculationConfig, mode: str, used: tuple[str, ...] = PROMPTS
) -> list[list[int]]:
    engine = bundled_engine()
    requests = [Request(prompt, sampling, config) for prompt in used]
    if mode == "alone":
        return [ids_of(engine, request) for request in requests]
    if mode == "mixed":
        # Requests with other seeds and rules must not disturb these.
        other = Request(PROMPTS[0], SamplingParams(16, temperature=1.2, seed=99), PLAIN)
        return ids_of_many(engine, [other, *requests, other])[1:-1]
    return ids_of_many(engine, requests)


@pytest.mark.parametrize("index", range(len(ROWS)))
def test_ids_are_those_of_plain_decoding(divergences: Divergences, index: int) -> None:
    row = ROWS[index]
    fields = {name: row[name] for name in row if name not in ("mode", "sampling", "schedule")}
    sampling = SAMPLINGS[row["sampling"]]
    used = some(PROMPTS, index) if row["mode"] == "alone" else PROMPTS
    with use_schedule(bundled_engine(), row["schedule"]):
        texts = texts_of(sampling, SpeculationConfig(**fields), row["mode"], used)
    expected = dict(zip(PROMPTS, plain(row["sampling"]), strict=True))
    tokenizer = bundled_engine().models.tokenizer
    for prompt, got in zip(used, texts, strict=True):
        divergences.check(tokenizer(prompt)["input_ids"], got, expected[prompt], sampling)


def test_control_another_seed_writes_another_text() -> None:
    other = dataclasses.replace(SAMPLINGS[0], seed=17)
    assert texts_of(other, PLAIN, "batched") != plain(0)


def test_control_mss_keeps_the_distribution_but_not_the_tokens() -> None:
    config = SpeculationConfig(draft="sampled", verify="mss")
    assert texts_of(SAMPLINGS[0], config, "batched") != plain(0)


def test_top_k_of_one_is_greedy() -> None:
    greedy = [Request(prompt, SamplingParams(24), PLAIN) for prompt in PROMPTS]
    assert plain(5) == ids_of_many(bundled_engine(), greedy)


def test_coupled_drafts_are_accepted_more_often_than_topk() -> None:
    accepted = {}
    for draft in ("coupled", "topk"):
        shape: dict[str, Any] = {"expansion": (3,), "speculation_length": 2}
        config = SpeculationConfig(draft=draft, max_tree_nodes="uncut", **shape)
        requests = [Request(prompt, SAMPLINGS[0], config) for prompt in PROMPTS]
        runs = outcomes(bundled_engine().generate_many(requests)).values()
        accepted[draft] = sum(run.summary["num_accepted_tokens"] for run in runs)
        assert 0 < accepted[draft] < sum(run.summary["num_draft_tokens"] for run in runs)
    assert accepted["coupled"] > accepted["topk"]
