"""Law 3: `mss` and `traversal` keep the LLM's distribution exactly."""

import pytest

from core import SamplingParams, SpeculationConfig
from tests.fakes import TableModel, random_table
from tests.laws.enumeration import KeyAskedTwiceError, WalkNoise, every_walk
from tests.laws.law3_cases import (
    EXACT,
    NOTICED,
    ONE_ROUND,
    SHOWN_BY,
    TWO_ROUNDS,
    case,
    deviation,
    tables,
)
from tests.laws.traps import TRAPS, PositionlessKeys
from tests.laws.whole_rounds import EnumeratedCase

RULES = ("mss", "traversal")


pytestmark = pytest.mark.parametrize("rule", RULES)


@pytest.mark.parametrize("name", TWO_ROUNDS)
def test_two_rounds_in_a_row_are_plain_sampling(name: str, rule: str) -> None:
    assert deviation(TWO_ROUNDS[name](verify=rule), rounds=2, count=4) <= EXACT


@pytest.mark.parametrize("name", ONE_ROUND)
def test_one_round_is_plain_sampling(name: str, rule: str) -> None:
    assert deviation(ONE_ROUND[name](verify=rule), rounds=1, count=4) <= EXACT


@pytest.mark.parametrize("draft", ["sampled", "sampled_iid"])
def test_a_certain_drafter_and_a_target_with_zeros_give_plain_sampling(
    draft: str, rule: str
) -> None:
    llm = TableModel("llm", 3, lambda context: (0.0, 0.25, 0.75))
    certain = TableModel("certain", 3, lambda context: (0.0, 1.0, 0.0))
    wrong = TableModel("wrong", 3, lambda context: (1.0, 0.0, 0.0))
    enumerated = EnumeratedCase(llm, [certain, wrong], pair_config(draft, rule), SAMPLING)
    assert deviation(enumerated, rounds=2, count=4) <= EXACT


@pytest.mark.parametrize("vocab", [2, 4])
def test_a_drafter_with_another_padded_vocabulary_gives_plain_sampling(
    vocab: int, rule: str
) -> None:
    llm, _ = tables(1)
    other = TableModel("other", vocab, random_table(vocab, 77))
    enumerated = EnumeratedCase(
        llm, [other], pair_config("sampled", rule), SAMPLING, prompt_ids=(0, 1, 1, 0)
    )
    assert deviation(enumerated, rounds=1, count=3) <= EXACT


def test_rounds_of_every_length_occur(rule: str) -> None:
    enumerated = case(1, "sampled_iid", (2, 1), 3, verify=rule)
    lengths = [end.lengths for _, end in every_walk(lambda noise: enumerated.rounds(noise, 1))]
    assert {length for (length,) in lengths} == {1, 2, 3}


SAMPLING = SamplingParams(50, temperature=1.0, seed=0)


def pair_config(draft: str, rule: str) -> SpeculationConfig:
    return SpeculationConfig(
        draft=draft, expansion=(2,), speculation_length=1, max_tree_nodes="uncut", verify=rule
    )


@pytest.mark.parametrize("name", TRAPS)
def test_control_every_trap_is_noticed(name: str, rule: str, monkeypatch: pytest.MonkeyPatch):
    cases = [make(verify=rule) for make in SHOWN_BY[name]]
    assert max(deviation(enumerated, rounds=1, count=2) for enumerated in cases) <= EXACT
    TRAPS[name](monkeypatch)
    trapped = [deviation(enumerated, rounds=1, count=2) for enumerated in cases]
    print(rule, name, [round(tv, 4) for tv in trapped])
    assert min(trapped) > NOTICED


def test_control_keys_without_the_round_are_asked_twice(rule: str) -> None:
    enumerated = case(1, "sampled", (2,), verify=rule)
    with pytest.raises(KeyAskedTwiceError, match="was asked before"):
        enumerated.rounds(PositionlessKeys(WalkNoise()), 2)
