"""A chat LLM's own questions and answers, in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import zoo.batch_generation as batch_generation
from core import load_models
from core.errors import ConfigError
from core.models.loading.load import LoadedModels
from tests.fakes import tiny_module, word_tokenizer
from tests.zoo.chat_models import END, PROMPTS, QUESTIONS
from tests.zoo.small import TickingClock
from zoo.batch_generation import TOP, BatchGenerator, BatchLimits, Generated
from zoo.chat_family import FAMILY, kind_weights
from zoo.chat_prompts import chat_prompts
from zoo.own_answers import (
    ENDED_QUESTIONS,
    OWN_QUESTIONS,
    Lengths,
    Questions,
    own_answers,
    training_tokens,
)


def new_tokens(texts: Generated) -> list[list[int]]:
    return list(texts.new_tokens())


def module_of(models: LoadedModels, tmp_path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tmp_path / "llm", dtype=torch.float32)


@pytest.mark.parametrize("prefill", [2, 512])
def test_a_batch_is_written_as_transformers_writes_each_text(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefill: int
) -> None:
    """Prompts have different lengths, and the attended slots grow from 64 to 128."""
    monkeypatch.setattr(batch_generation, "PREFILL_TEXTS", prefill)
    texts = BatchGenerator(models).generate(PROMPTS, [0.0] * 3, BatchLimits(80))
    module, expected = module_of(models, tmp_path), []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        result = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=80, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        expected.append(result[0, len(prompt) :].tolist())
    assert new_tokens(texts) == expected
    assert {len(tokens) for tokens in expected} != {80}, "some text ends with the end token"


def test_kept_probabilities_are_those_of_each_next_token(
    models: LoadedModels, tmp_path: Path
) -> None:
    texts = BatchGenerator(models).generate(PROMPTS, [1.0, 0.0, 0.6], BatchLimits(12))
    tokens = training_tokens(texts, [0, 1, 2])
    module = module_of(models, tmp_path)
    bounds = [*tokens.starts.tolist(), len(tokens.ids)]
    for number, prompt in enumerate(PROMPTS):
        at = slice(bounds[number], bounds[number + 1])
        ids = tokens.ids[at].long()
        assert ids.tolist() == [*prompt, *new_tokens(texts)[number]]
        assert tokens.kinds[at].tolist() == [number] * len(ids)
        p = module(ids[None]).logits[0].softmax(-1)
        p[: len(prompt) - 1] = 0
        p[-1] = 0
        top = p.gather(1, tokens.top_ids[at].long())
        torch.testing.assert_close(tokens.top_probs[at].float(), top, atol=1e-3, rtol=1e-3)
        answered = slice(len(prompt) - 1, len(ids) - 1)
        largest = p.topk(TOP).values[answered]
        torch.testing.assert_close(
            tokens.top_probs[at].float()[answered], largest, atol=1e-3, rtol=0
        )


def test_temperatures_are_each_texts_own(models: LoadedModels) -> None:
    def texts(seed: int, temperatures: list[float]) -> list[list[int]]:
        generator = BatchGenerator(models, seed)
        return new_tokens(generator.generate([PROMPTS[0]] * 4, temperatures, BatchLimits(12)))

    mixed = texts(0, [0.0, 1.0, 1.0, 0.0])
    assert mixed[0] == mixed[3] and mixed[1] != mixed[2]
    assert texts(0, [0.0, 1.0, 1.0, 0.0]) == mixed != texts(1, [0.0, 1.0, 1.0, 0.0])


def test_a_batch_ends_with_most_of_its_texts_or_at_its_deadline(models: LoadedModels) -> None:
    clock = TickingClock()
    generator = BatchGenerator(models, clock=clock)
    complete = generator.generate(PROMPTS, [0.0] * 3, BatchLimits(80))
    at_deadline = generator.generate(PROMPTS, [0.0] * 3, BatchLimits(80, deadline=clock.now))
    assert at_deadline.top_probs.shape[1] == batch_generation.CHECKED_EVERY
    assert new_tokens(at_deadline) == [
        tokens[: batch_generation.CHECKED_EVERY] for tokens in new_tokens(complete)
    ]
    most_ended = generator.generate(PROMPTS, [0.0] * 3, BatchLimits(80, ended_share=0.3))
    assert at_deadline.ids.shape[1] <= most_ended.ids.shape[1] < complete.ids.shape[1]


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    module = tiny_module("gpt2", dtype=torch.float32)
    module.save_pretrained(tmp_path / "other")
    word_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match="llm is 'other': a Llama-like model"):
        BatchGenerator(load_models(str(tmp_path / "other"), [], "float32", "cpu"))


def questions(models: LoadedModels, left_out: tuple[str, ...] = ()) -> Questions:
    lengths = Lengths(prompt=8, answer=20, question=12)
    return Questions(models, BatchGenerator(models), QUESTIONS, left_out, lengths, 0)


def test_the_llm_writes_questions_of_its_own(models: LoadedModels) -> None:
    turns = BatchGenerator(models).generate(
        [[1]] * 40, [1.0] * 40, BatchLimits(12, ENDED_QUESTIONS)
    )
    ended = [tokens[:-1] for tokens in new_tokens(turns) if tokens[-1] == END]
    texts = ["".join(f"w{i}" for i in tokens) for tokens in ended]
    result = questions(models).own_questions(40)
    assert result == [text for text in texts if len(text) >= 4]
    assert 0 < len(result) < len(ended) < 40


def test_half_of_the_questions_are_the_llms_own(
    models: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm_questions = ["w20"] * 4 + ["w20 " * 6]
    monkeypatch.setattr(Questions, "own_questions", lambda *_: list(llm_questions))
    batches_of_questions = questions(models)
    assert batches_of_questions.kinds == ("facts", "code", OWN_QUESTIONS)
    first, second = batches_of_questions.batch(8), batches_of_questions.batch(8)
    assert first[:4] == [(2, (1, 20, 2, 3))] * 4 and second[:3] == first[:3]
    given = [(0, (1, 4, 2, 3)), (0, (1, 5, 6, 2, 3)), (1, (1, 7, 8, 10, 2, 3))]
    others = first[4:] + second[3:]
    assert sorted(others[:3]) == given and others[3:6] == others[:3] and others[6:] == others[:2]


def test_development_prompts_are_no_own_questions(models: LoadedModels) -> None:
    result = questions(models).own_questions(40)
    without_first = questions(models, (result[0].upper(),)).own_questions(40)
    assert without_first == [text for text in result if text != result[0]]


def test_answers_are_written_until_the_deadline(models: LoadedModels) -> None:
    clock = TickingClock()
    generator = BatchGenerator(models, clock=clock)
    lengths = Lengths(prompt=8, answer=20, question=12)
    batches_of_questions = Questions(models, generator, QUESTIONS, (), lengths, 0)
    messages: list[str] = []
    tokens = own_answers(generator, batches_of_questions, lengths, 4.0, messages.append)
    assert (
        len(messages) > 1
        and messages[-1] == f"{len(tokens.starts)} answers, {len(tokens.ids):,} tokens"
    )
    starts = tokens.starts.tolist()
    assert starts == sorted(starts) and tokens.ids[starts].eq(1).all(), "the template's first token"
    assert len(tokens.ids) == len(tokens.kinds) == len(tokens.top_ids) == len(tokens.top_probs)


def test_a_batch_without_a_short_enough_question_is_skipped_unless_it_is_the_first(
    models: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, short = BatchGenerator(models, clock=TickingClock()), Lengths(2, 20, 12)
    batches_of_questions = Questions(models, generator, QUESTIONS, (), short, 0)
    with pytest.raises(ConfigError, match="prompt is 2: it must be larger, since every"):
        own_answers(generator, batches_of_questions, short, 4.0, [].append)
    batches = iter([[(0, (1, 4, 2, 3))], [], [(1, (1, 5, 2, 3))]])
    monkeypatch.setattr(Questions, "batch", lambda *_: next(batches, [(0, (1, 4, 2, 3))]))
    tokens = own_answers(generator, batches_of_questions, Lengths(8, 20, 12), 40.0, [].append)
    assert tokens.kinds[tokens.starts].tolist()[:2] == [0, 1]


def test_the_weights_of_kinds_for_each_student() -> None:
    kinds = [*chat_prompts([], [], 0), OWN_QUESTIONS]
    weights = dict(zip(FAMILY, kind_weights(kinds), strict=True))
    assert {kind for own in FAMILY.values() for kind in own} < set(kinds)
    assert weights["ssm-chat"] == [1.0] * len(kinds)
    code = dict(zip(kinds, weights["ssm-code"], strict=True))
    assert code == {
        "facts": 0.25, "writing": 0.25, "how": 0.25, "code": 1.0, "text": 0.25, "own": 0.4,
    }  # fmt: skip
    facts = dict(zip(kinds, weights["ssm-facts"], strict=True))
    assert (facts["facts"], facts["how"], facts["code"]) == (1.0, 1.0, 0.25)
