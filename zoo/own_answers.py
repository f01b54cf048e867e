"""Conversations whose answers a chat LLM writes (without drafts), from which SSMs are distilled.

The LLM writes a part of the questions: it samples the user's turn of its own chat template
(Magpie, arXiv 2406.08464). The others are from `zoo.chat_prompts`. The LLM's largest probabilities
at each token of an answer are kept, so that the LLM runs only once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.engine.admission import chat_tokens
from core.errors import ConfigError
from core.models.loading.load import LoadedModels
from zoo.batch_generation import TOP, BatchGenerator, BatchLimits, Generated
from zoo.family_checkpoint import FamilyCheckpoint

__all__ = ["OWN_QUESTIONS", "Lengths", "Questions", "TrainingTokens", "own_answers"]

OWN_QUESTIONS = "own"
"""The kind of the questions that the LLM writes itself."""
# One is drawn for each answer.
TEMPERATURES = (0.0, 0.0, 0.0, 0.6, 0.8, 0.8, 1.0)
# A batch ends when this share of its texts has ended; the rest, its longest texts, are cut off.
ENDED_ANSWERS, ENDED_QUESTIONS = 0.94, 0.9
SHORTEST_QUESTION = 4  # characters
# Stands in for a question, to find the text that the chat template puts before a question.
MARK = "@@"


@dataclass(frozen=True, slots=True)
class Lengths:
    """The most tokens of a prompt in the chat template, of an answer and of the LLM's question."""

    prompt: int = 224
    answer: int = 400
    question: int = 96


class TrainingTokens(NamedTuple):
    """Texts one after another. For each token (n,): `ids` int32; `kinds` int8, the kind of its
    question as an index into `Questions.kinds`; `top_ids` int32 and `top_probs` float16 (n, TOP),
    the LLM's distribution of the next token. `top_probs` is 0 if the next token is not part of an
    answer. `starts` (texts,): where each text begins."""

    ids: Tensor
    kinds: Tensor
    top_ids: Tensor
    top_probs: Tensor
    starts: Tensor


class Questions:
    """Prompts in the LLM's chat template, each with the index of its kind. The LLM's own questions
    that are in `left_out` are skipped. Raises ConfigError if the LLM has no template, or if the
    template fails or puts no text before the user's."""

    def __init__(
        self,
        models: LoadedModels,
        generator: BatchGenerator,
        by_kind: Mapping[str, Sequence[str]],
        left_out: Collection[str],
        lengths: Lengths,
        seed: int,
    ) -> None:
        self.kinds = (*by_kind, OWN_QUESTIONS)
        self._models, self._generator, self._lengths = models, generator, lengths
        self._left_out = {text.casefold() for text in left_out}
        self._prompt_list = [
            (kind, text) for kind, texts in enumerate(by_kind.values()) for text in texts
        ]
        self._noise = random.Random(seed)
        self._noise.shuffle(self._prompt_list)
        self._num_taken = 0
        self._own: list[str] = []
        self._before_question = self._tokens_before_question()

    def prompt(self, question: str) -> tuple[int, ...]:
        """The question in the template."""
        return chat_tokens(self._models, [{"role": "user", "content": question}])

    def batch(self, count: int) -> list[tuple[int, tuple[int, ...]]]:
        """The next prompts as (kind, ids): at most `count`, without prompts that are too long."""
        if len(self._own) < count // 2:
            self._own += self.own_questions(count)
        own, self._own = self._own[: count // 2], self._own[count // 2 :]
        own_kind = len(self.kinds) - 1
        questions = [(own_kind, text) for text in own]
        for _ in range(count - len(questions)):
            questions.append(self._prompt_list[self._num_taken % len(self._prompt_list)])
            self._num_taken += 1
        prompts = [(kind, self.prompt(text)) for kind, text in questions]
        return [one for one in prompts if len(one[1]) <= self._lengths.prompt]

    def own_questions(self, count: int) -> list[str]:
        """Samples `count` user turns from the LLM; returns the turns that end with an end-of-text
        token, are long enough and are not left out."""
        stop = BatchLimits(self._lengths.question, ENDED_QUESTIONS)
        turns = self._generator.generate([self._before_question] * count, [1.0] * count, stop)
        results = []
        for tokens in turns.new_tokens():
            if tokens[-1] not in self._models.eos_ids:
                continue
            text = self._models.tokenizer.decode(tokens[:-1], skip_special_tokens=True).strip()
            if len(text) >= SHORTEST_QUESTION and text.casefold() not in self._left_out:
                results.append(text)
        return results

    def state(self) -> dict[str, Any]:
        """The state of the questions, as plain values."""
        return {
            "taken": self._num_taken,
            "own": list(self._own),
            "noise": self._noise.getstate(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._num_taken, self._own = state["taken"], list(state["own"])
        self._noise.setstate(state["noise"])

    def temperatures(self, count: int) -> list[float]:
        """A temperature for each answer of a batch."""
        return self._noise.choices(TEMPERATURES, k=count)

    def _tokens_before_question(self) -> list[int]:
        self.prompt(MARK)  # refuses an LLM without a template
        tokenizer = self._models.tokenizer
        question = [{"role": "user", "content": MARK}]
        before, *_ = tokenizer.apply_chat_template(question, tokenize=False).split(MARK)
        ids: list[int] = tokenizer(before, add_special_tokens=False)["input_ids"]
        if not ids:
            raise ConfigError.of(
                "llm",
                self._models.llm.info.name,
                "a model whose chat template starts the user's turn with some text",
            )
        return ids


def own_answers(
    generator: BatchGenerator,
    questions: Questions,
    lengths: Lengths,
    deadline: float,
    say: Callable[[str], None],
    checkpoint: FamilyCheckpoint | None = None,
) -> TrainingTokens:
    """At least one batch of answers, and more until the deadline by the generator's clock. Raises
    ConfigError if no question of the first batch is short enough.

    Batches that the `checkpoint` has are loaded; then the time until the deadline is what was left
    when the last stored batch was written.
    """
    parts: list[TrainingTokens] = []
    seconds_left = 0.0
    while checkpoint is not None and (stored := checkpoint.load(_batch_name(parts))) is not None:
        parts.append(TrainingTokens(*stored["tokens"]))
        questions.load_state(stored["questions"])
        generator.load_state(stored["generator"])
        seconds_left = stored["seconds_left"]
    if parts:
        deadline = generator.clock() + seconds_left
    size = generator.batch_size(lengths.prompt + lengths.answer)
    answers = sum(len(part.starts) for part in parts)
    tokens = sum(len(part.ids) for part in parts)
    while not parts or generator.clock() < deadline:
        batch = questions.batch(size)
        if not batch and not parts:
            allowed = "larger, since every question of the first batch, in the template, is longer"
            raise ConfigError.must_be("prompt", lengths.prompt, allowed)
        if not batch:
            continue
        kinds, prompts = zip(*batch, strict=True)
        stop = BatchLimits(lengths.answer, ENDED_ANSWERS, deadline)
        texts = generator.generate(prompts, questions.temperatures(len(prompts)), stop)
        name = _batch_name(parts)
        parts.append(training_tokens(texts, kinds))
        if checkpoint is not None:
            state: dict[str, Any] = {"questions": questions.state(), "generator": generator.state()}
            seconds_left = deadline - generator.clock()
            state |= {"tokens": tuple(parts[-1]), "seconds_left": seconds_left}
            checkpoint.save(name, state)
        answers, tokens = answers + len(prompts), tokens + len(parts[-1].ids)
        say(f"{answers:,} answers, {tokens:,} tokens")
    firsts = torch.tensor([0, *(len(part.ids) for part in parts[:-1])]).cumsum(0).tolist()
    parts = [
        part._replace(starts=part.starts + first) for part, first in zip(parts, firsts, strict=True)
    ]
    return TrainingTokens(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _batch_name(parts: Sequence[TrainingTokens]) -> str:
    return f"answers-{len(parts):05}"


def training_tokens(texts: Generated, kinds: Sequence[int]) -> TrainingTokens:
    """The batch without its padding."""
    count, columns = texts.ids.shape
    column = torch.arange(columns, device=texts.ids.device)
    is_text = (column >= texts.starts[:, None]) & (column < texts.ends[:, None])
    # A distribution belongs to the token before the token that was drawn from it.
    has_target = (column >= texts.first_new - 1) & (column < texts.ends[:, None] - 1)
    previous = slice(texts.first_new - 1, columns - 1)
    top_ids = texts.top_ids.new_zeros(count, columns, TOP)
    top_probs = texts.top_probs.new_zeros(count, columns, TOP)
    top_ids[:, previous], top_probs[:, previous] = texts.top_ids, texts.top_probs
    top_probs *= has_target[..., None]
    kind_of_token = torch.tensor(kinds, dtype=torch.int8, device=column.device)[:, None]
    lengths = is_text.sum(1)
    return TrainingTokens(
        ids=texts.ids[is_text].int(),
        kinds=kind_of_token.expand(-1, columns)[is_text],
        top_ids=top_ids[is_text],
        top_probs=top_probs[is_text],
        starts=lengths.cumsum(0) - lengths,
    )
