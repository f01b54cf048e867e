"""`python -m zoo distil`: SSMs (small speculative models) tuned to their LLM.

By its own distribution, on corpus text and on texts of its own. Each has its share of the minutes,
with checkpoints to go on from, and says now and then how much of held-out text it foresees. Knows
nothing of pools; see `zoo.boost`.
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
from zoo.beginning import Start, initial_model
from zoo.clocked import Workload
from zoo.evaluate import check_vocabulary
from zoo.foreseen import Foreseen, foreseen
from zoo.losses import Distillation
from zoo.memory import Memory
from zoo.models import open_model, weights_id
from zoo.order import DataOrder
from zoo.own_texts import HELD_OUT_FORM, TRAIN_FORM, OwnTexts
from zoo.pieces import Pieces
from zoo.presets import Mixture, ModelRecipe
from zoo.tokenizer import open_tokenizer
from zoo.train import Run, Trained, curve_of, learn, save
from zoo.trainer import Trainer
from zoo.worth import tokens_per_pass

__all__ = ["Distilled", "Teaching", "Tuning", "distil", "foresees", "table"]

OWN = "own/"
"""Before a domain's name: the LLM's own texts behind prefixes of it."""
_HELD_OUT_BATCHES = 2  # of each domain: one greedy, one sampled
_PROMPTS, _MEASURED_TOKENS = 6, 48  # of each domain, when the engine measures

Texts = Mapping[str, Sequence[np.ndarray]]
Kept = Callable[[np.ndarray, int], np.ndarray]
"""Which texts of a batch (texts, length) are kept; the second is the length of their prefixes."""


@dataclass(frozen=True, slots=True)
class Teaching:
    """What a distilling run is given besides its recipes. `own_share` of the windows are the LLM's
    own texts, of which there are `own_batches` a domain. `remembered`: of each position so many of
    the LLM's most probable tokens are kept, and it is asked but once, of the own texts and of
    `corpus_tokens` of each domain; 0: it is asked in every step, of all there is."""

    run: Run
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
        object.__setattr__(self, "teacher", teacher)
        object.__setattr__(self, "teacher_id", weights_id(self.llm))

    def open_model(self, folder: Path, field: str = "ssm") -> Any:
        """The model in this folder, over the tokens that the tokenizer has."""
        return open_model(folder, field, self.run.store.manifest.vocab_size)

    @property
    def texts(self) -> OwnTexts:
        """The LLM's own texts behind prefixes of the training tokens."""
        run = self.run
        folder = self._folder / f"train-{run.seed}"
        first = run.store.manifest.separator
        return OwnTexts(self.teacher, run.store.train, folder, TRAIN_FORM, run.seed, first)

    def rows(self, memory: Kept | None = None) -> dict[str, np.ndarray]:
        """The corpora's training tokens and the LLM's own texts, which are drawn where they are not
        there yet; of these only the ones that are `kept`."""
        rows = dict(self.run.store.train)
        if self.remembered:
            rows = {domain: row[: self.corpus_tokens] for domain, row in rows.items()}
        for domain in rows if self.own_share else ():
            batches = []
            for number in range(self.own_batches):
                batch = self.texts.batch(domain, number, self._say)
                batches.append(
                    batch if memory is None else memory(batch, self.texts.prefix(number))
                )
            rows = rows | {f"{OWN}{domain}": np.concatenate(batches).reshape(-1)}
        return rows

    def memory(self, rows: Mapping[str, np.ndarray]) -> Memory | None:
        """Of what the LLM says of these rows, kept beside its own texts; None: nothing is. The LLM
        is asked now, outside the minutes that are trained for."""
        if not self.remembered:
            return None
        length = self.of_one_length().preset.schedule.context
        memory = Memory(self.teacher, self._folder / "said", rows, length, self.remembered)
        memory.ask(self._say)
        return memory

    def of_one_length(self) -> Run:
        """The run; of what is remembered the windows are all as long, as long as they come to be
        in others: at places that it never saw an SSM foresees little."""
        if not self.remembered:
            return self.run
        schedule = self.run.preset.schedule
        schedule = replace(schedule, context=schedule.late_context)
        return replace(self.run, preset=replace(self.run.preset, schedule=schedule))

    def mixture(self, own: Mixture) -> Mixture:
        """A recipe's, with the LLM's own texts in it."""
        share = self.own_share
        corpora = tuple((domain, weight * (1 - share)) for domain, weight in own if share < 1)
        texts = tuple((f"{OWN}{domain}", weight * share) for domain, weight in own if share > 0)
        return corpora + texts

    def held_out(self) -> Texts:
        """The LLM's own texts behind held-out prefixes: of each domain a greedy batch, then a
        sampled one."""
        rows, first = self.run.store.held_out, self.run.store.manifest.separator
        texts = OwnTexts(self.teacher, rows, self._folder / "held-out", HELD_OUT_FORM, 1, first)
        return {
            domain: [texts.batch(domain, n, self._say) for n in range(_HELD_OUT_BATCHES)]
            for domain in rows
        }

    def engine_tokens_per_pass(self, ssm: Path) -> dict[str, float]:
        """Tokens per LLM pass by domain, of greedy chains of the SSM in this folder, as the engine
        decodes with it behind held-out prefixes."""
        device = self.run.device.type
        engine = Engine(load_models(str(self.llm), [str(ssm)], "float32", device))
        tokenizer, prefix = (
            open_tokenizer(self.run.store.tokenizer_folder),
            HELD_OUT_FORM.prefixes[0],
        )
        by_engine = {}
        for domain, (greedy, *_) in self.held_out().items():
            rows = greedy[:_PROMPTS, 1:prefix].tolist()
            prompts = [str(tokenizer.decode(ids)) for ids in rows]
            workload = Workload(prompts, _MEASURED_TOKENS, repeats=1)
            by_engine[domain] = tokens_per_pass(engine, ssm.name, workload)
        return by_engine

    def pieces(self, work: str, identity: Mapping[str, Any]) -> Pieces:
        """What was found of an SSM with this LLM, kept beside the LLM's own texts."""
        return Pieces.of(self._folder / work, identity)

    @property
    def _folder(self) -> Path:
        """Of this LLM behind prefixes of these tokens."""
        tokens = json.dumps(self.run.store.manifest.identity(), sort_keys=True)
        name = f"{self.teacher_id[:12]}-{hashlib.sha256(tokens.encode()).hexdigest()[:8]}"
        return self.run.store.folder / "own" / name

    def _say(self, text: str) -> None:
        print(text, file=self.run.stream, flush=True)


@dataclass(frozen=True, slots=True)
class Distilled:
    """What came of one SSM. By domain, on the LLM's own held-out texts: what it foresaw `before`
    and `after`; `measured`: then, by the engine, tokens per LLM pass of greedy chains behind
    held-out prefixes; `curve`: both on the way, with the step."""

    trained: Trained
    before: dict[str, Foreseen]
    after: dict[str, Foreseen]
    measured: dict[str, float]
    curve: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """One SSM's: its `recipe`, the folder it starts from, what is minimised, and which of the LLM's
    own texts are kept; `kind` is the folder it is saved under, `further` what a checkpoint must
    also have been made with. `start` None: it is new, with as much of the LLM's embeddings as its
    width can keep."""

    recipe: ModelRecipe
    start: Path | None
    minimised: Distillation
    kept: Kept | None = None
    kind: str = "distilled"
    further: Mapping[str, Any] = field(default_factory=dict)

    def identity(self, teaching: Teaching) -> dict[str, Any]:
        """What a checkpoint must have been made with to go on from it."""
        remembered = [teaching.remembered, teaching.corpus_tokens]
        return teaching.of_one_length().identity(self.recipe) | {
            "llm": teaching.teacher_id,
            "own texts": [teaching.own_share, teaching.own_batches],
            **({"remembered": remembered} if teaching.remembered else {}),
            **self.begins(teaching).identity(),
            **self.further,
        }

    def begins(self, teaching: Teaching) -> Start:
        """What its weights are at first."""
        return Start(self.start, teaching.llm, "ssm")


def distil(tuning: Tuning, teaching: Teaching) -> Distilled:
    """Tunes one SSM until its budget is spent, and saves it."""
    run, recipe = teaching.of_one_length(), tuning.recipe
    folder = run.store.folder / tuning.kind / recipe.name
    if tuning.start is not None and tuning.start.resolve() == folder.resolve():
        raise ConfigError.of("ssm", str(tuning.start), "another folder than it is to be saved in")
    held_out = teaching.held_out()
    start, identity = tuning.begins(teaching), tuning.identity(teaching)
    model = initial_model(recipe, run.preset, run.store, run.seed, start).to(run.device)
    pieces = teaching.pieces("found", identity)

    def foresight(when: str, model: nn.Module) -> dict[str, Foreseen]:
        accuracies = pieces.once(
            when, lambda: _to_plain(foresees(teaching.teacher, model, held_out))
        )
        return {domain: Foreseen(**one) for domain, one in accuracies.items()}

    before = foresight("before", model)
    rows = teaching.rows(tuning.kept)
    mixture = teaching.mixture(recipe.mixture)
    order = DataOrder(rows, mixture, run.seed, shifts=not teaching.remembered)
    memory = teaching.memory({name: rows[name] for name, _ in mixture})
    minimised = replace(tuning.minimised, memory=memory)
    trainer = Trainer.of(recipe, run.preset.schedule, model, order, minimised)
    curve = curve_of(run, tuning.kind, recipe)

    def note(trainer: Trainer, _: Run) -> str:
        accuracies = foresees(teaching.teacher, trainer.model, held_out)
        now = run.folder(tuning.kind, recipe) / recipe.name
        save(trainer.model, run.store, now)
        passes = teaching.engine_tokens_per_pass(now)
        both = {d: asdict(one) | {"measured": passes[d]} for d, one in accuracies.items()}
        curve.add(trainer.num_steps, both)
        return "foresees, tokens a pass: " + ", ".join(
            f"{d} {one.agreement:.1%} {passes[d]:.2f}" for d, one in accuracies.items()
        )

    trained = learn(trainer, run, identity, tuning.kind, note)
    weights = weights_id(folder)[:16]
    after = foresight(f"after-{weights}", teaching.open_model(folder).to(run.device))
    measured = pieces.once(f"measured-{weights}", lambda: teaching.engine_tokens_per_pass(folder))
    return Distilled(trained, before, after, measured, curve.lines())


def foresees(teacher: nn.Module, drafter: nn.Module, held_out: Texts) -> dict[str, Foreseen]:
    """By domain."""
    prefix = HELD_OUT_FORM.prefixes[0]
    return {domain: foreseen(teacher, drafter, texts, prefix) for domain, texts in held_out.items()}


def _to_plain(accuracies: Mapping[str, Foreseen]) -> dict[str, Any]:
    return {domain: asdict(one) for domain, one in accuracies.items()}


def table(distilled: Mapping[str, Distilled]) -> list[str]:
    """A line an SSM: tokens per pass of a greedy chain that its distributions foretell, before and
    after, by domain."""
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
