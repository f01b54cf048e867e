"""`python -m zoo distil`: SSMs (small speculative models) tuned to their LLM.

The loss is the divergence from the LLM's distribution, on corpus text and on texts that the LLM
wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from transformers import PreTrainedModel

from core.config import checks
from core.engine.engine import Engine
from core.errors import ConfigError
from core.models.loading.load import load_models
from core.models.loading.narrow_head import narrow_head
from zoo.data_order import DataOrder
from zoo.draft_accuracy import DraftAccuracy, draft_accuracy
from zoo.evaluate import check_vocabulary
from zoo.initial_weights import InitialWeights, initial_model
from zoo.losses import Distillation
from zoo.models import open_model, weights_id
from zoo.own_texts import HELD_OUT_FORM, TRAIN_FORM, OwnTexts
from zoo.presets import Mixture, ModelRecipe
from zoo.result_cache import ResultCache
from zoo.round_times import Workload
from zoo.speedup import tokens_per_pass
from zoo.teacher_cache import TeacherCache
from zoo.tokenizer import open_tokenizer
from zoo.train import TrainedModel, TrainingRun, curve_of, learn, save
from zoo.trainer import Trainer

__all__ = ["Distilled", "Teaching", "Tuning", "distil", "accuracy_by_domain", "table"]

OWN = "own/"
"""The prefix of the keys of the LLM's own texts: `own/DOMAIN`."""
_HELD_OUT_BATCHES = 2  # of each domain: one greedy, one sampled
# For measurements: prompts of each domain, and new tokens after each prompt.
_PROMPTS, _MEASURED_TOKENS = 6, 48

Texts = Mapping[str, Sequence[np.ndarray]]
TextFilter = Callable[[np.ndarray, int], np.ndarray]
"""Selects texts of a batch (texts, length), given the length of their prefixes."""


@dataclass(frozen=True, slots=True)
class Teaching:
    """The settings of a distilling run other than its recipes. `own_share`: the fraction of windows
    taken from the LLM's own texts; `own_batches`: the number of batches of own texts for each
    domain.

    `remembered`: how many of the LLM's most probable tokens are cached at each position of the own
    texts, and of the first `corpus_tokens` tokens of each domain. With 0, the LLM runs in every
    step, and all corpus tokens are used.
    """

    run: TrainingRun
    llm: Path
    own_share: float = 0.5
    own_batches: int = 16
    remembered: int = 0
    corpus_tokens: int = 500_000
    teacher: PreTrainedModel = field(init=False)
    teacher_id: str = field(init=False)

    def __post_init__(self) -> None:
        checks.number("own_share", self.own_share, 0.0, 1.0)
        checks.integer("own_batches", self.own_batches, 1, 10_000)
        checks.integer("remembered", self.remembered, 0, self.run.store.manifest.vocab_size - 1)
        checks.integer("corpus_tokens", self.corpus_tokens, 1, 2**40)
        check_vocabulary(self.llm, self.run.store, "llm")
        teacher = self.open_model(self.llm, "llm").to(self.run.device).eval()
        # The class is frozen, so fields that are computed from others are set like this.
        object.__setattr__(self, "teacher", teacher)
        object.__setattr__(self, "teacher_id", weights_id(self.llm))

    def open_model(self, folder: Path, field: str = "ssm") -> Any:
        """The model in this folder, its head narrowed if its configuration says so."""
        model = open_model(folder, field, self.run.store.manifest.vocab_size)
        narrow_head(model)
        return model

    @property
    def texts(self) -> OwnTexts:
        """The LLM's own continuations of prefixes of the training tokens."""
        run = self.run
        folder = self._folder / f"train-{run.seed}"
        first = run.store.manifest.separator
        return OwnTexts(self.teacher, run.store.train, folder, TRAIN_FORM, run.seed, first)

    def rows(self, keep: TextFilter | None = None) -> dict[str, np.ndarray]:
        """The corpora's training tokens by domain, and the tokens of the LLM's own texts that
        `keep` selects (None: of all texts)."""
        rows = dict(self.run.store.train)
        if self.remembered:
            rows = {domain: row[: self.corpus_tokens] for domain, row in rows.items()}
        for domain in rows if self.own_share else ():
            batches = []
            for number in range(self.own_batches):
                batch = self.texts.batch(domain, number, self._say)
                batches.append(batch if keep is None else keep(batch, self.texts.prefix(number)))
            rows = rows | {f"{OWN}{domain}": np.concatenate(batches).reshape(-1)}
        return rows

    def memory(self, rows: Mapping[str, np.ndarray]) -> TeacherCache | None:
        """The LLM's most probable tokens for these rows, computed if they are not stored; None
        without `remembered`."""
        if not self.remembered:
            return None
        length = self.of_one_length().preset.schedule.context
        memory = TeacherCache(
            self.teacher, self._folder / "teacher-tokens", rows, length, self.remembered
        )
        memory.fill(self._say)
        return memory

    def of_one_length(self) -> TrainingRun:
        """The run; with `remembered`, all windows have the length `late_context`."""
        # Cached windows cannot become longer later.
        if not self.remembered:
            return self.run
        schedule = self.run.preset.schedule
        schedule = replace(schedule, context=schedule.late_context)
        return replace(self.run, preset=replace(self.run.preset, schedule=schedule))

    def mixture(self, own: Mixture) -> Mixture:
        """A recipe's mixture, with `own_share` of each domain's weight moved to the own texts."""
        share = self.own_share
        corpora = tuple((domain, weight * (1 - share)) for domain, weight in own if share < 1)
        texts = tuple((f"{OWN}{domain}", weight * share) for domain, weight in own if share > 0)
        return corpora + texts

    def held_out(self) -> Texts:
        """The LLM's continuations of held-out prefixes: by domain, a greedy and a sampled batch."""
        rows, first = self.run.store.held_out, self.run.store.manifest.separator
        texts = OwnTexts(self.teacher, rows, self._folder / "held-out", HELD_OUT_FORM, 1, first)
        return {
            domain: [texts.batch(domain, n, self._say) for n in range(_HELD_OUT_BATCHES)]
            for domain in rows
        }

    def engine_tokens_per_pass(self, ssm: Path) -> dict[str, float]:
        """Tokens per LLM pass by domain, measured with the engine: greedy chains of the SSM in this
        folder, on held-out prefixes."""
        device = self.run.device.type
        engine = Engine(load_models(str(self.llm), [str(ssm)], "float32", device))
        tokenizer, prefix = (
            open_tokenizer(self.run.store.tokenizer_folder),
            HELD_OUT_FORM.prefixes[0],
        )
        by_domain = {}
        for domain, (greedy, *_) in self.held_out().items():
            # Without the first token: many prefixes begin with the separator, which is no text.
            rows = greedy[:_PROMPTS, 1:prefix].tolist()
            prompts = [str(tokenizer.decode(ids)) for ids in rows]
            workload = Workload(prompts, _MEASURED_TOKENS, repeats=1)
            by_domain[domain] = tokens_per_pass(engine, ssm.name, workload)
        return by_domain

    def cache(self, work: str, identity: Mapping[str, Any]) -> ResultCache:
        """Results for SSMs of this LLM, stored next to the LLM's own texts."""
        return ResultCache.for_inputs(self._folder / work, identity)

    @property
    def _folder(self) -> Path:
        tokens = json.dumps(self.run.store.manifest.identity(), sort_keys=True)
        name = f"{self.teacher_id[:12]}-{hashlib.sha256(tokens.encode()).hexdigest()[:8]}"
        return self.run.store.folder / "own" / name

    def _say(self, text: str) -> None:
        print(text, file=self.run.stream, flush=True)


@dataclass(frozen=True, slots=True)
class Distilled:
    """The result for one SSM, by domain, on held-out texts that the LLM wrote: the accuracy
    `before` and `after` the tuning. `measured`: tokens per LLM pass after the tuning. `curve`:
    accuracy and tokens per LLM pass during the training, each line with its step."""

    trained: TrainedModel
    before: dict[str, DraftAccuracy]
    after: dict[str, DraftAccuracy]
    measured: dict[str, float]
    curve: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How one SSM is tuned. `start`: the folder of its first weights; None: new weights, with the
    LLM's embeddings narrowed to the SSM's width. `keep`: selects among the LLM's own texts. `kind`:
    the folder in which the SSM is saved. `further`: more fields of the checkpoint's identity."""

    recipe: ModelRecipe
    start: Path | None
    loss_function: Distillation
    keep: TextFilter | None = None
    kind: str = "distilled"
    further: Mapping[str, Any] = field(default_factory=dict)

    def identity(self, teaching: Teaching) -> dict[str, Any]:
        """The values that must equal the identity of a checkpoint to resume."""
        remembered = [teaching.remembered, teaching.corpus_tokens]
        return teaching.of_one_length().identity(self.recipe) | {
            "llm": teaching.teacher_id,
            "own texts": [teaching.own_share, teaching.own_batches],
            **({"remembered": remembered} if teaching.remembered else {}),
            **self.initial_weights(teaching).identity(),
            **self.further,
        }

    def initial_weights(self, teaching: Teaching) -> InitialWeights:
        """The weights from which the SSM starts."""
        return InitialWeights(self.start, teaching.llm, "ssm")


def distil(tuning: Tuning, teaching: Teaching) -> Distilled:
    """Tunes one SSM and saves it. Raises ConfigError if it would overwrite its first weights."""
    run, recipe = teaching.of_one_length(), tuning.recipe
    folder = run.store.folder / tuning.kind / recipe.name
    if tuning.start is not None and tuning.start.resolve() == folder.resolve():
        raise ConfigError.of("ssm", str(tuning.start), "another folder than it is to be saved in")
    held_out = teaching.held_out()
    start, identity = tuning.initial_weights(teaching), tuning.identity(teaching)
    model = initial_model(recipe, run.preset, run.store, run.seed, start).to(run.device)
    narrow_head(model)
    cache = teaching.cache("found", identity)

    def cached_accuracy(when: str, model: nn.Module) -> dict[str, DraftAccuracy]:
        accuracies = cache.get_or_compute(
            when, lambda: _to_plain(accuracy_by_domain(teaching.teacher, model, held_out))
        )
        return {domain: DraftAccuracy(**one) for domain, one in accuracies.items()}

    before = cached_accuracy("before", model)
    rows = teaching.rows(tuning.keep)
    mixture = teaching.mixture(recipe.mixture)
    order = DataOrder(rows, mixture, run.seed, shifts=not teaching.remembered)
    memory = teaching.memory({name: rows[name] for name, _ in mixture})
    loss_function = replace(tuning.loss_function, memory=memory)
    trainer = Trainer.of(recipe, run.preset.schedule, model, order, loss_function)
    curve = curve_of(run, tuning.kind, recipe)

    def evaluate(trainer: Trainer, _: TrainingRun) -> str:
        accuracies = accuracy_by_domain(teaching.teacher, trainer.model, held_out)
        saved = run.folder(tuning.kind, recipe) / recipe.name
        save(trainer.model, run.store, saved)
        passes = teaching.engine_tokens_per_pass(saved)
        figures = {d: asdict(one) | {"measured": passes[d]} for d, one in accuracies.items()}
        curve.add(trainer.num_steps, figures)
        return "agreement, tokens a pass: " + ", ".join(
            f"{d} {one.agreement:.1%} {passes[d]:.2f}" for d, one in accuracies.items()
        )

    trained = learn(trainer, run, identity, tuning.kind, evaluate)
    weights = weights_id(folder)[:16]
    after = cached_accuracy(f"after-{weights}", teaching.open_model(folder).to(run.device))
    measured = cache.get_or_compute(
        f"measured-{weights}", lambda: teaching.engine_tokens_per_pass(folder)
    )
    return Distilled(trained, before, after, measured, curve.lines())


def accuracy_by_domain(
    teacher: nn.Module, drafter: nn.Module, held_out: Texts
) -> dict[str, DraftAccuracy]:
    """The drafter's accuracy on the LLM's own held-out texts, by domain."""
    prefix = HELD_OUT_FORM.prefixes[0]
    return {
        domain: draft_accuracy(teacher, drafter, texts, prefix)
        for domain, texts in held_out.items()
    }


def _to_plain(accuracies: Mapping[str, DraftAccuracy]) -> dict[str, Any]:
    return {domain: asdict(one) for domain, one in accuracies.items()}


def table(distilled: Mapping[str, Distilled]) -> list[str]:
    """A row for each SSM: `DraftAccuracy.tokens_per_pass` before and after tuning, by domain."""
    domains = list(dict.fromkeys(d for one in distilled.values() for d in one.after))
    width = max(len("model"), *map(len, distilled))
    lines = [f"{'model':{width}}" + "".join(f"  {name:>16}" for name in domains)]
    for name, one in distilled.items():
        cells = (
            f"  {one.before[d].tokens_per_pass:6.2f} -> {one.after[d].tokens_per_pass:6.2f}"
            for d in domains
        )
        lines.append(f"{name:{width}}" + "".join(cells))
    return lines
