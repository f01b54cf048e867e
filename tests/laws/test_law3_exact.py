"""Law 3: `mss` keeps the LLM's distribution exactly, shown on every outcome of whole rounds.

The production engine (draft, combine, verify, commit) runs under the enumerating noise on tables of
three tokens; the joint of the first tokens is compared with plain sampling's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core import SamplingParams, SpeculationConfig
from tests.fakes import TableModel, random_table
from tests.laws.enumeration import (
    Case,
    KeyAskedTwiceError,
    WalkNoise,
    every_walk,
    joint_of_rounds,
    plain_joint,
    total_variation,
)
from tests.laws.traps import TRAPS, PositionlessKeys

EXACT = 1e-12
NOTICED = 0.01
ENDS = (2,)
# Token 0 follows 2 and 1 follows 0 in the prompt, so prompt lookup has something to say.
LOOKUP_PROMPT = (0, 1, 2, 0, 1, 0)


def tables(count: int, seed: int = 0, vocab: int = 3) -> list[TableModel]:
    """The LLM's table and those of `count` drafters."""
    return [
        TableModel(f"model-{i}", vocab, random_table(vocab, 10 * seed + 1 + i))
        for i in range(count + 1)
    ]


def case(count: int, draft: str, shape: tuple[int, ...], seed: int = 0, **fields: Any) -> Case:
    """`count` drafters with random tables; `fields` of the configuration, the case or sampling."""
    llm, *ssms = tables(count, seed)
    of_case = {k: fields.pop(k) for k in ("eos_ids", "prompt_ids") if k in fields}
    of_sampling = {
        k: fields.pop(k) for k in ("temperature", "top_k", "max_new_tokens") if k in fields
    }
    settings = {"expansion": shape, "speculation_length": len(shape), "max_tree_nodes": "uncut"}
    speculation = SpeculationConfig(draft=draft, verify="mss", **{**settings, **fields})
    sampling = SamplingParams(
        **{"temperature": 1.0, "max_new_tokens": 50, "seed": 0, **of_sampling}
    )
    return Case(llm, ssms, speculation, sampling, **of_case)


def deviation(of: Case, rounds: int, count: int) -> float:
    joint = joint_of_rounds(of, rounds, count)
    assert sum(joint.values()) == pytest.approx(1.0, abs=EXACT)
    return total_variation(joint, plain_joint(of, count))


TWO_ROUNDS: dict[str, Callable[[], Case]] = {
    "one drafter, with replacement": lambda: case(1, "sampled_iid", (2,)),
    "one drafter, three draws": lambda: case(1, "sampled_iid", (3,), seed=3),
    "one drafter, without replacement": lambda: case(1, "sampled", (2,), seed=3),
    "one drafter, all tokens drawn": lambda: case(1, "sampled", (3,)),
    "one drafter, a chain": lambda: case(1, "sampled_iid", (1, 1)),
    "two drafters": lambda: case(2, "sampled_iid", (1,), seed=3),
    "two drafters, budget for three nodes": lambda: case(2, "sampled_iid", (2,), max_tree_nodes=3),
    "no speculation": lambda: case(1, "sampled", (2,), speculation_length=0),
    "no drafter": lambda: case(0, "sampled", (2,), drafters=()),
    "prompt lookup alone": lambda: case(
        0, "sampled", (1, 1), drafters=("ngram",), prompt_ids=LOOKUP_PROMPT
    ),
    "prompt lookup after a drafter": lambda: case(
        1, "sampled", (1,), drafters=("model-1", "ngram"), prompt_ids=LOOKUP_PROMPT
    ),
    "prompt lookup before a drafter": lambda: case(
        1, "sampled_iid", (2,), drafters=("ngram", "model-1"), prompt_ids=LOOKUP_PROMPT
    ),
    "an end of text": lambda: case(1, "sampled_iid", (2,), eos_ids=ENDS, prompt_ids=(0, 1, 0)),
    "the limit": lambda: case(1, "sampled_iid", (2, 1), max_new_tokens=2),
    "top-k and temperature": lambda: case(2, "sampled", (1,), temperature=0.7, top_k=2),
}
ONE_ROUND: dict[str, Callable[[], Case]] = {
    "two drafters, pairs with replacement": lambda: case(2, "sampled_iid", (2,), seed=3),
    "two drafters, pairs without": lambda: case(2, "sampled", (2,), seed=3),
    "a tree of pairs, then single nodes": lambda: case(1, "sampled_iid", (2, 1), seed=3),
    "a tree without replacement": lambda: case(1, "sampled", (2, 1), seed=3),
    "two chains": lambda: case(2, "sampled_iid", (1, 1), seed=3),
    "a fork at the second step": lambda: case(1, "sampled", (1, 2), seed=4),
    "an end of text in a tree": lambda: case(1, "sampled", (2, 1), eos_ids=ENDS, prompt_ids=(0, 1)),
    "two drafters and prompt lookup": lambda: case(
        2, "sampled", (1,), drafters=("model-1", "ngram", "model-2"), prompt_ids=LOOKUP_PROMPT
    ),
}


@pytest.mark.parametrize("name", TWO_ROUNDS)
def test_two_rounds_in_a_row_are_plain_sampling(name: str) -> None:
    assert deviation(TWO_ROUNDS[name](), rounds=2, count=4) <= EXACT


@pytest.mark.parametrize("name", ONE_ROUND)
def test_one_round_is_plain_sampling(name: str) -> None:
    assert deviation(ONE_ROUND[name](), rounds=1, count=4) <= EXACT


@pytest.mark.parametrize("draft", ["sampled", "sampled_iid"])
def test_a_drafter_that_is_certain_and_a_target_with_zeros(draft: str) -> None:
    llm = TableModel("llm", 3, lambda context: (0.0, 0.25, 0.75))
    certain = TableModel("certain", 3, lambda context: (0.0, 1.0, 0.0))
    wrong = TableModel("wrong", 3, lambda context: (1.0, 0.0, 0.0))
    speculation = SpeculationConfig(
        draft=draft, expansion=(2,), speculation_length=1, max_tree_nodes="uncut"
    )
    of = Case(llm, [certain, wrong], speculation, SamplingParams(50, temperature=1.0, seed=0))
    assert deviation(of, rounds=2, count=4) <= EXACT


@pytest.mark.parametrize("vocab", [2, 4])
def test_a_drafter_with_another_padded_vocabulary(vocab: int) -> None:
    llm, _ = tables(1)
    other = TableModel("other", vocab, random_table(vocab, 77))
    speculation = SpeculationConfig(
        draft="sampled", expansion=(2,), speculation_length=1, max_tree_nodes="uncut"
    )
    prompt = (0, 1, 1, 0)
    of = Case(llm, [other], speculation, SamplingParams(50, temperature=1.0, seed=0), prompt)
    assert deviation(of, rounds=1, count=3) <= EXACT


def test_both_verdicts_occur() -> None:
    lengths = [end.lengths for _, end in every_walk(lambda noise: TREE.rounds(noise, 1))]
    assert {length for (length,) in lengths} == {1, 2, 3}


TREE = case(1, "sampled_iid", (2, 1), seed=3)


# -- negative controls --

# For each trap the smallest case that shows it: drafters, draft kind, expansion, tables, names.
SHOWN_BY: dict[str, list[Callable[[], Case]]] = {
    "duplicates_merged": [
        lambda: case(1, "sampled_iid", (2,), seed=3),
        lambda: case(2, "sampled_iid", (1,), seed=3),
    ],
    "one_hot_merged": [
        lambda: case(1, "sampled", (1,), 1, drafters=("ngram", "model-1"), prompt_ids=LOOKUP_PROMPT)
    ],
    "low_q_dropped": [lambda: case(1, "sampled_iid", (2,), 1), lambda: case(1, "sampled", (1,), 1)],
    "likelier_of_two_kept": [
        lambda: case(1, "sampled_iid", (2,), 1),
        lambda: case(1, "sampled", (2,), 1),
    ],
    "top_k_with_the_real_q": [
        lambda: case(1, "sampled", (2,), 1),
        lambda: case(1, "sampled_iid", (1,), 1),
    ],
    "without_replacement_with_the_full_q": [lambda: case(1, "sampled", (2,), 3)],
    "by_token_id": [lambda: case(1, "sampled_iid", (2,), 2), lambda: case(2, "sampled", (1,), 2)],
    "by_descending_q": [
        lambda: case(1, "sampled_iid", (2,), 1),
        lambda: case(2, "sampled", (1,), 2),
    ],
    "confident_drafter_first": [lambda: case(2, "sampled", (1,), 2)],
    "uniform_over_nodes": [
        lambda: case(1, "sampled_iid", (3,), 1),
        lambda: case(2, "sampled_iid", (2,), 1),
    ],
}


@pytest.mark.parametrize("name", TRAPS)
def test_control_every_trap_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = [deviation(make(), rounds=1, count=2) for make in SHOWN_BY[name]]
    assert max(exact) <= EXACT
    TRAPS[name](monkeypatch)
    trapped = [deviation(make(), rounds=1, count=2) for make in SHOWN_BY[name]]
    print(name, [round(tv, 4) for tv in trapped])
    assert min(trapped) > NOTICED


def test_control_keys_without_the_round_are_asked_twice() -> None:
    of = case(1, "sampled", (2,))
    with pytest.raises(KeyAskedTwiceError, match="was asked before"):
        of.rounds(PositionlessKeys(WalkNoise()), 2)


def test_control_the_noise_refuses_a_second_asking() -> None:
    noise = WalkNoise()
    noise.coin(0.5, ("accept", 3))
    with pytest.raises(KeyAskedTwiceError):
        noise.coin(0.5, ("accept", 3))


def test_the_walks_of_a_noise_have_all_the_probability() -> None:
    def run(noise: WalkNoise) -> bool:
        return noise.coin(0.25, ("a",)) and noise.coin(1.0, ("b",)) and noise.coin(0.5, ("c",))

    found = [(noise.probability, answer) for noise, answer in every_walk(run)]
    assert found == [(0.125, True), (0.125, False), (0.75, False)]
