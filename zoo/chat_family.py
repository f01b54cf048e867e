"""`python -m zoo chat-family`: SSMs (small speculative models) for a chat LLM, in minutes on a GPU.

First the LLM writes conversations. Then the students, SSMs of one shape that share an embedding,
learn the LLM's distributions together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import torch

from core.config import checks
from core.errors import ConfigError
from core.models.lean import LeanWeights
from core.models.loading.load import LoadedModels
from zoo.batch_generation import BatchGenerator, BatchLimits, Generated
from zoo.family_checkpoint import FamilyCheckpoint
from zoo.own_answers import OWN_QUESTIONS, Lengths, Questions, TrainingTokens, own_answers
from zoo.progress import ProgressLine
from zoo.shared_folders import write_family
from zoo.shared_students import (
    SharedTrainer,
    StudentBatch,
    StudentShape,
    hidden_states,
    new_students,
)

__all__ = [
    "FAMILY",
    "FamilyPlan",
    "StudentAccuracy",
    "accuracy",
    "kind_weights",
    "make_family",
    "table",
]

FAMILY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ssm-chat": (),
        "ssm-facts": ("facts", "how"),
        "ssm-writing": ("writing",),
        "ssm-code": ("code",),
        "ssm-text": ("text",),
    }
)
"""The students, each with its own kinds of question. For a student without own kinds, all kinds
have equal weight."""
# For a student with own kinds: the weight of questions of other kinds, and the weight of questions
# that the LLM wrote, which may be of any kind.
OTHER_KIND, ANY_KIND = 0.25, 0.4

DEVELOPMENT_TOKENS = 160  # of each answer for measurements
CHAIN = 4  # tokens of a draft
EVALUATIONS = 5
MAX_MINUTES = 60.0 * 24
TRAINING = "training"
"""The checkpoint's name."""


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """`minutes`: the time in all. `generation_minutes`: the part for the LLM's answers to the
    `questions` (by kind) and to questions that the LLM writes itself. `development`: prompts for
    measurements; `questions` should not contain them. `checkpoint_seconds`: seconds of training
    between two checkpoints."""

    minutes: float
    generation_minutes: float
    questions: Mapping[str, Sequence[str]]
    development: Sequence[str]
    shape: StudentShape = StudentShape()
    batch: StudentBatch = StudentBatch()
    lengths: Lengths = Lengths()
    seed: int = 0
    checkpoint_seconds: float = 600.0
    clock: Callable[[], float] = time.monotonic
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def __post_init__(self) -> None:
        checks.number("minutes", self.minutes, 0.0, MAX_MINUTES, low_open=True)
        if not 0 <= self.generation_minutes < self.minutes:
            allowed = f"a number from 0, below minutes ({self.minutes:g})"
            raise ConfigError.must_be("generation_minutes", self.generation_minutes, allowed)
        checks.integer("layers", self.shape.layers, 1, 64)

    def identity(self, models: LoadedModels) -> dict[str, Any]:
        """The values that must equal an interrupted run's, so that it can be resumed."""
        info, plain = models.llm.info, ("minutes", "generation_minutes", "seed")
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: asdict(getattr(self, name)) for name in ("shape", "batch", "lengths")},
            "questions": {kind: list(texts) for kind, texts in self.questions.items()},
            "development": list(self.development),
            "llm": [info.fingerprint, info.dtype],
        }


@dataclass(frozen=True, slots=True)
class StudentAccuracy:
    """A student's accuracy on the LLM's greedy answers. `agreement`: how often the student's most
    probable token is the LLM's token. `in_three`: how often the LLM's token is among the three most
    probable tokens. `acceptance_length`: tokens per LLM pass with greedy drafts of CHAIN tokens,
    the LLM's own token included."""

    agreement: float
    in_three: float
    acceptance_length: float


def kind_weights(kinds: Sequence[str]) -> list[list[float]]:
    """The weight of an answer's tokens for each student, by kind of question: (students, kinds)."""

    def weight(own: Sequence[str], kind: str) -> float:
        if not own or kind in own:
            return 1.0
        return ANY_KIND if kind == OWN_QUESTIONS else OTHER_KIND

    return [[weight(own, kind) for kind in kinds] for own in FAMILY.values()]


def make_family(models: LoadedModels, plan: FamilyPlan, out: Path) -> dict[str, Any]:
    """Makes the LLM's family in `out/models`, or resumes an interrupted run of the same plan;
    returns the figures of its `training.json`."""
    _check_folder(out / "models")
    generator = BatchGenerator(models, plan.seed, plan.clock)
    checkpoint = FamilyCheckpoint(out, plan.identity(models), generator.device)
    questions = Questions(
        models, generator, plan.questions, plan.development, plan.lengths, plan.seed
    )
    budget = 60.0 * (plan.minutes - plan.generation_minutes)
    progress = ProgressLine("chat-family", budget, plan.stream)
    deadline = plan.clock() + 60.0 * plan.generation_minutes
    prompts = [questions.prompt(text) for text in plan.development]
    greedy = generator.generate(prompts, [0.0] * len(prompts), BatchLimits(DEVELOPMENT_TOKENS))
    tokens = own_answers(generator, questions, plan.lengths, deadline, progress.note, checkpoint)
    embedding = generator.weights.embedding
    students = new_students(plan.shape, len(FAMILY), embedding, plan.seed)
    weights = kind_weights(questions.kinds)
    trainer = SharedTrainer(students, tokens, weights, plan.batch, embedding.dtype, plan.seed)
    figures: dict[str, Any] = {}
    spent = 0.0
    if (stored := checkpoint.load(TRAINING)) is not None:
        trainer.load_state(stored["trainer"])
        spent, figures = stored["spent"], stored["figures"]
        progress.note(f"resumes at step {trainer.num_steps}, {min(spent / budget, 1.0):.0%} done")
    begin, saved = plan.clock() - spent, spent
    # One step at least, so that a family is written.
    while spent < budget or not trainer.num_steps:
        losses = trainer.step(spent / budget)
        before, spent = spent, plan.clock() - begin
        if progress.is_due(spent):
            progress.show(spent, trainer.num_steps, trainer.num_tokens, losses.mean().item())
        # Measured at equal intervals, the last time at the end of the budget.
        if int(spent / budget * EVALUATIONS) > int(before / budget * EVALUATIONS):
            measured = accuracy(trainer.weights, greedy)
            figures = _figures(models, tokens, trainer) | measured
            write_family(out / "models", tuple(FAMILY), trainer.students, models, figures)
            progress.note("\n".join(table(figures)))
        if spent - saved >= plan.checkpoint_seconds:
            state = {"trainer": trainer.state(), "spent": spent, "figures": figures}
            checkpoint.save(TRAINING, state)
            saved = spent
    progress.end()
    checkpoint.clear()
    return figures


def _check_folder(folder: Path) -> None:
    """Raises ConfigError if the folder has models of other names, which would be deleted."""
    others = {path.parent.name for path in folder.glob("*/config.json")} - set(FAMILY)
    if others:
        allowed = f"a folder without other models: {folder} has {', '.join(sorted(others))}"
        raise ConfigError.of("out", str(folder.parent), allowed)


@torch.inference_mode()
def accuracy(students: LeanWeights, texts: Generated) -> dict[str, Any]:
    """Returns `students`, the accuracy of each student by name. `union`: how often the LLM's token
    is the most probable token of at least one student."""
    hits = []  # of each text (students, tokens, 3)
    for ids, start, end in zip(texts.ids, texts.starts.tolist(), texts.ends.tolist(), strict=True):
        new = texts.first_new - start
        text = ids[start:end]
        logits = hidden_states(students, text[None])[:, new - 1 : -1] @ students.head
        hits.append((logits.topk(3).indices == text[new:, None]).cpu())
    tokens = sum(each.shape[1] for each in hits)
    by_name = {}
    for number, name in enumerate(FAMILY):
        first = [each[number, :, 0] for each in hits]
        among = sum(int(each[number].any(-1).sum()) for each in hits)
        by_name[name] = StudentAccuracy(
            round(sum(int(each.sum()) for each in first) / tokens, 3),
            round(among / tokens, 3),
            round(tokens / sum(_rounds(each.tolist()) for each in first), 3),
        )
    union = sum(int(each[:, :, 0].any(0).sum()) for each in hits) / tokens
    return {"students": {n: asdict(each) for n, each in by_name.items()}, "union": round(union, 3)}


def _rounds(hits: Sequence[bool]) -> int:
    """The number of LLM passes over a text: each takes a draft's hits up to the first miss, and one
    token."""
    rounds = position = 0
    while position < len(hits):
        position += 1 + len(list(takewhile(bool, hits[position : position + CHAIN])))
        rounds += 1
    return rounds


def _figures(
    models: LoadedModels, tokens: TrainingTokens, trainer: SharedTrainer
) -> dict[str, Any]:
    info, device = models.llm.info, tokens.ids.device
    return {
        "llm": {"name": info.name, "dtype": info.dtype, "fingerprint": info.fingerprint},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "torch": str(torch.__version__),
        "answers": len(tokens.starts),
        "tokens": len(tokens.ids),
        "steps": trainer.num_steps,
        "token_steps": trainer.num_tokens,
        "targets": trainer.num_targets,
    }


def table(figures: Mapping[str, Any]) -> list[str]:
    """A row for each student."""
    columns = [each.name for each in fields(StudentAccuracy)]
    lines = [f"{'model':12}" + "".join(f"  {name:>17}" for name in columns)]
    for name, one in figures["students"].items():
        lines.append(f"{name:12}" + "".join(f"  {one[column]:17.3f}" for column in columns))
    return lines
