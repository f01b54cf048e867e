"""`python -m zoo train`: trains or resumes a preset's models, each for its share of a time budget.

The budget counts the seconds of training and of evaluations during it, summed over resumed runs.
"""

from __future__ import annotations

import copy
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from transformers import GenerationConfig, PreTrainedModel

from zoo.checkpoint import TrainingCheckpoint
from zoo.data_order import DataOrder
from zoo.evaluate import HeldOut, evaluate_folder, measure
from zoo.files import replace_folder, write_json
from zoo.initial_weights import FRESH, InitialWeights, initial_model
from zoo.learning_curve import LearningCurve
from zoo.parallel_gradients import ParallelGradients
from zoo.presets import ModelRecipe, Preset
from zoo.progress import ProgressLine
from zoo.tokenizer import open_tokenizer
from zoo.tokens import TokenStore
from zoo.trainer import Trainer

__all__ = [
    "Evaluation",
    "TrainingRun",
    "TrainedModel",
    "curve_of",
    "learn",
    "save",
    "train_family",
    "train_model",
]

_MAX_SHARD = "11MB"  # of tensors in a file; with its header, a file has at most 12 MB
MODELS = "models"
"""The kind of a `train_model` run."""
_SHORT_EVALUATION_TOKENS = 2048  # per domain


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The settings of a training run other than its recipe."""

    preset: Preset
    store: TokenStore
    minutes: float
    device: torch.device
    seed: int = 0
    clock: Callable[[], float] = time.monotonic
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def budget(self, recipe: ModelRecipe) -> float:
        """The recipe's share of `minutes`, in seconds."""
        shares = sum(each.budget_share for each in self.preset.models)
        return self.minutes * 60.0 * recipe.budget_share / shares

    def workers(self, recipe: ModelRecipe) -> int:
        """Threads for a step: torch's number of threads if the device is a CPU and the windows
        divide evenly among them, else 1."""
        windows = max(1, recipe.tokens_per_step // self.preset.schedule.late_context)
        threads = torch.get_num_threads()
        return threads if self.device.type == "cpu" and windows % threads == 0 else 1

    def folder(self, kind: str, recipe: ModelRecipe) -> Path:
        """The folder of an unfinished model's state, one for each kind of run."""
        name = recipe.name if kind == MODELS else f"{kind}-{recipe.name}"
        return self.store.folder / "runs" / name

    def identity(self, recipe: ModelRecipe) -> dict[str, Any]:
        """What a checkpoint and the run that resumes it must have in common."""
        return {
            "recipe": asdict(recipe),
            "schedule": asdict(self.preset.schedule),
            "tokens": self.store.manifest.identity(),
            "seed": self.seed,
        }


Evaluation = Callable[[Trainer, TrainingRun], str]
"""Evaluates a model during training; returns a line for the log."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A finished model: the cost of its training, and how well the saved weights predict."""

    seconds: float
    num_steps: int
    num_tokens: int
    num_parameters: int
    training_loss: float  # running mean at the end, nats a token
    held_out: dict[str, HeldOut]


def train_family(
    run: TrainingRun, starts: Mapping[str, InitialWeights] | None = None
) -> dict[str, TrainedModel]:
    """Trains every model of the preset, or resumes it. `starts`: initial weights by name.
    Writes the figures of finished models to `training.json`."""
    by_name: dict[str, TrainedModel] = {}
    for recipe in run.preset.models:
        by_name[recipe.name] = train_model(recipe, run, (starts or {}).get(recipe.name, FRESH))
        models = {name: asdict(model) for name, model in by_name.items()}
        summary = {"preset": run.preset.name, "minutes": run.minutes, "models": models}
        write_json(run.store.folder / "training.json", summary)
    return by_name


def train_model(
    recipe: ModelRecipe, run: TrainingRun, start: InitialWeights = FRESH
) -> TrainedModel:
    """Trains one model until its budget is spent; saves it and evaluates the saved weights."""
    model = initial_model(recipe, run.preset, run.store, run.seed, start).to(run.device)
    order = DataOrder(run.store.train, recipe.mixture, run.seed)
    trainer = Trainer.of(recipe, run.preset.schedule, model, order)
    return learn(trainer, run, run.identity(recipe) | start.identity(), MODELS)


def learn(
    trainer: Trainer,
    run: TrainingRun,
    identity: Mapping[str, Any],
    kind: str,
    evaluation: Evaluation | None = None,
) -> TrainedModel:
    """Trains a model until its budget is spent, from the checkpoint of this `identity` if there is
    one; saves it in the folder `kind` and evaluates the saved weights. `evaluation`: made several
    times during training, by default the scores on the first held-out tokens."""
    folder = run.store.folder / kind / trainer.recipe.name
    checkpoint = TrainingCheckpoint(run.folder(kind, trainer.recipe) / "checkpoint.pt", identity)
    in_parts = run.device.type == "cpu"
    trainer.sharing = ParallelGradients(run.workers(trainer.recipe), in_parts=in_parts)
    try:
        curve = curve_of(run, kind, trainer.recipe)
        spent = _spend_budget(trainer, run, checkpoint, curve, evaluation or _short_evaluation)
    finally:
        trainer.sharing.close()
    save(trainer.model, run.store, folder)
    return TrainedModel(
        seconds=round(spent, 1),
        num_steps=trainer.num_steps,
        num_tokens=trainer.num_tokens,
        num_parameters=trainer.model.num_parameters(),
        training_loss=trainer.loss(),
        held_out=evaluate_folder(folder, run.store, run.preset.schedule.late_context, run.device),
    )


def curve_of(run: TrainingRun, kind: str, recipe: ModelRecipe) -> LearningCurve:
    """The figures measured while this model trains."""
    return LearningCurve(run.folder(kind, recipe) / "curve.jsonl")


def _spend_budget(
    trainer: Trainer,
    run: TrainingRun,
    checkpoint: TrainingCheckpoint,
    curve: LearningCurve,
    evaluate: Evaluation,
) -> float:
    schedule, budget = run.preset.schedule, run.budget(trainer.recipe)
    spent, evaluation_due = checkpoint.load(trainer)
    progress = ProgressLine(trainer.recipe.name, budget, run.stream)
    if not trainer.num_steps:
        curve.begin()
    else:
        progress.note(f"resumes at step {trainer.num_steps}, {min(spent / budget, 1.0):.0%} done")
    # Only `spent` is saved: the time between an interruption and the resumed run does not count.
    last, saved_at = run.clock(), spent
    while evaluation_due or spent < budget:
        if evaluation_due:
            progress.note(evaluate(trainer, run))
            evaluation_due, saved_at = False, spent
            checkpoint.save(trainer, spent)
            continue
        before = spent
        trainer.step(spent / budget)
        now = run.clock()
        spent, last = spent + now - last, now
        if progress.is_due(spent):
            progress.show(spent, trainer.num_steps, trainer.num_tokens, trainer.loss())
        evaluation_due = _passes_mark(before / budget, spent / budget, schedule.evaluations)
        # Also before an evaluation: a kill during the evaluation must not cost training steps.
        if evaluation_due or spent >= budget or spent - saved_at >= schedule.checkpoint_seconds:
            checkpoint.save(trainer, spent, evaluation_due=evaluation_due)
            saved_at = spent
    progress.end()
    return spent


def _passes_mark(before: float, after: float, num_marks: int) -> bool:
    """Whether `before` and `after` are on two sides of one of `num_marks` evenly spread marks."""
    spaces = num_marks + 1
    return after < 1.0 and int(after * spaces) > int(before * spaces)


def _short_evaluation(trainer: Trainer, run: TrainingRun) -> str:
    scores = measure(
        trainer.model, run.store, run.preset.schedule.context, _SHORT_EVALUATION_TOKENS
    )
    curve = curve_of(run, MODELS, trainer.recipe)
    curve.add(trainer.num_steps, {name: asdict(each) for name, each in scores.items()})
    return "held out: " + ", ".join(f"{name} {each.loss:.3f}" for name, each in scores.items())


def save(model: PreTrainedModel, store: TokenStore, folder: Path) -> None:
    """Writes the model in bfloat16 and its tokenizer, for `from_pretrained`."""
    # A copy, since training may continue in float32.
    saved: Any = copy.deepcopy(model).to(torch.bfloat16)  # type: ignore[arg-type]
    saved.config.dtype = torch.bfloat16
    special = _special_ids(store)
    saved.generation_config = GenerationConfig(**special)  # type: ignore[no-untyped-call]
    for name, token_id in special.items():
        setattr(saved.config, name, token_id)

    def write(new: Path) -> None:
        saved.save_pretrained(new, max_shard_size=_MAX_SHARD)
        shutil.copytree(store.tokenizer_folder, new, dirs_exist_ok=True)

    replace_folder(folder, write)


def _special_ids(store: TokenStore) -> dict[str, int | None]:
    tokenizer = open_tokenizer(store.tokenizer_folder)
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: getattr(tokenizer, name) for name in names}
