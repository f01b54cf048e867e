"""`Divergences` rejects texts that differ, except at a near tie."""

from typing import Any

import pytest

from core import SamplingParams
from tests.fakes import tiny_module
from tests.laws.margins import Divergences

GREEDY = SamplingParams(8)
SAMPLED = SamplingParams(8, temperature=0.8, seed=5)
PENALIZED = SamplingParams(8, repetition_penalty=1.3)
PROMPT, OTHER_PROMPT = (3, 52, 31), (3, 52, 7)
# The model's logits of these two tokens are equal.
TWIN, OTHER_TWIN = 17, 40
EXPECTED = [9, 31, TWIN]
WITH_THE_OTHER_TWIN = [9, 31, OTHER_TWIN]


@pytest.fixture(scope="module")
def module() -> Any:
    module = tiny_module("llama", seed=1)
    head = module.get_output_embeddings().weight.data
    head[OTHER_TWIN] = head[TWIN]
    return module


@pytest.fixture
def divergences(module: Any) -> Divergences:
    return Divergences(module)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PENALIZED])
@pytest.mark.parametrize("position", range(len(EXPECTED)))
def test_another_token_is_rejected(
    divergences: Divergences, position: int, sampling: SamplingParams
) -> None:
    changed = [*EXPECTED]
    changed[position] += 1
    with pytest.raises(AssertionError, match=f"token {position}: .*, margin "):
        divergences.check(PROMPT, changed, EXPECTED, sampling)


@pytest.mark.parametrize("ended", [EXPECTED[:-1], [*EXPECTED, 5]])
def test_a_text_of_another_length_is_rejected(divergences: Divergences, ended: list[int]) -> None:
    with pytest.raises(AssertionError, match="ends elsewhere than"):
        divergences.check(PROMPT, ended, EXPECTED, GREEDY)


def test_only_one_prompts_texts_may_differ_at_a_tie(divergences: Divergences) -> None:
    for _ in range(2):
        divergences.check(PROMPT, WITH_THE_OTHER_TWIN, EXPECTED, GREEDY)
    divergences.check(OTHER_PROMPT, EXPECTED, EXPECTED, GREEDY)
    with pytest.raises(AssertionError, match="more than one prompt diverged"):
        divergences.check(OTHER_PROMPT, WITH_THE_OTHER_TWIN, EXPECTED, GREEDY)


@pytest.mark.parametrize(("prompt", "sampling"), [(PROMPT, SAMPLED), ((*PROMPT, TWIN), PENALIZED)])
def test_noise_and_the_repetition_penalty_are_part_of_the_margin(
    divergences: Divergences, prompt: tuple[int, ...], sampling: SamplingParams
) -> None:
    with pytest.raises(AssertionError, match="token 2: .*, margin "):
        divergences.check(prompt, WITH_THE_OTHER_TWIN, EXPECTED, sampling)
