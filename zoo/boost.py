"""`python -m zoo boost`: collective boost-tuning of a pool of SSMs (SpecInfer 3.1).

Each SSM is tuned where the SSMs before it fail to predict the LLM, so that together they cover the
LLM's tokens.

There are two ways. `prompts`, as published: a text that an SSM continues exactly as the LLM does is
dropped for later SSMs. `positions`: a position at which an SSM predicts the LLM's token gets a
small weight for later SSMs.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import nn

from core.config import checks
from zoo.distil import Distilled, Teaching, Tuning, distil
from zoo.draft_accuracy import coverage
from zoo.files import replace_folder
from zoo.losses import Distillation, log_probabilities
from zoo.models import weights_id
from zoo.own_texts import HELD_OUT_FORM
from zoo.presets import ModelRecipe
from zoo.result_cache import ResultCache

__all__ = ["WAYS", "Boosted", "boost", "line"]

WAYS = ("positions", "prompts")
KINDS = MappingProxyType({"positions": "boosted", "prompts": "boosted-by-prompts"})
"""The folder of the SSMs, by way."""


@dataclass(frozen=True, slots=True)
class Boosted:
    """The result for one SSM of the pool. `before`, `after`: the complete pool's `coverage` before
    and after this SSM's tuning, the mean over the domains' held-out texts. `texts`, `dropped`: the
    numbers of checked and of dropped texts, 0 for `positions`. `kept`: whether the tuned SSM is
    used."""

    name: str
    distilled: Distilled
    before: Mapping[str, float]
    after: Mapping[str, float]
    texts: int
    dropped: int
    kept: bool


def boost(
    pool: Sequence[tuple[ModelRecipe, Path]],
    teaching: Teaching,
    way: str,
    say: Callable[[str], None],
) -> list[Boosted]:
    """Tunes the SSMs in order until an SSM's tuning lowers the pool's held-out coverage. That SSM
    and later SSMs keep their weights. Saves all SSMs of the pool."""
    checks.choice("by", way, WAYS)
    models = {recipe.name: _Member.of(folder, teaching) for recipe, folder in pool}
    members: list[_Member] = []
    results: list[Boosted] = []
    for recipe, folder in pool:
        before = _mean_coverage(teaching, models)
        drops = _Drops(tuple(members))
        earlier = tuple(one.model for one in members)
        distilled = distil(
            Tuning(
                recipe,
                folder,
                Distillation(teaching.teacher, earlier if way == "positions" else ()),
                drops if way == "prompts" else None,
                KINDS[way],
                {"by": way, "behind": [one.weights for one in members]},
            ),
            teaching,
        )
        member = _Member.of(teaching.run.store.folder / KINDS[way] / recipe.name, teaching)
        after = _mean_coverage(teaching, {**models, recipe.name: member})
        is_better = after["union"] >= before["union"]
        results.append(
            Boosted(recipe.name, distilled, before, after, drops.seen, drops.dropped, is_better)
        )
        say(line(results[-1]))
        if not is_better:
            break
        models[recipe.name] = member
        members.append(member)
    for recipe, folder in pool[len(members) :]:
        copy_folder = partial(shutil.copytree, folder, dirs_exist_ok=True)
        replace_folder(teaching.run.store.folder / KINDS[way] / recipe.name, copy_folder)
    return results


def line(one: Boosted) -> str:
    """A line about one SSM's tuning."""
    best = max(value for name, value in one.after.items() if name != "union")
    end = "" if one.kept else "; it and those behind it stay as they were"
    note = f", {one.dropped} of {one.texts} texts dropped before" if one.texts else ""
    return (
        f"{one.name}: union {one.before['union']:.1%} -> {one.after['union']:.1%}, the best single "
        f"SSM with as many proposals {best:.1%}{note}{end}"
    )


@dataclass(frozen=True, slots=True)
class _Member:
    """An SSM of the pool. `continued`: caches whether the SSM continues a text like the LLM."""

    model: nn.Module
    weights: str
    continued: ResultCache

    @classmethod
    def of(cls, folder: Path, teaching: Teaching) -> _Member:
        weights = weights_id(folder)
        cache = teaching.cache("continued", {"by": weights})
        return cls(teaching.open_model(folder).to(teaching.run.device), weights, cache)


def _mean_coverage(teaching: Teaching, members: Mapping[str, _Member]) -> dict[str, float]:
    weights = {name: one.weights for name, one in members.items()}
    models = {name: one.model for name, one in members.items()}
    prefix, held_out = HELD_OUT_FORM.prefixes[0], teaching.held_out()
    cache = teaching.cache("covered", {"by": weights})
    per_domain: list[dict[str, float]] = [
        cache.get_or_compute(domain, partial(coverage, teaching.teacher, models, texts, prefix))
        for domain, texts in held_out.items()
    ]
    return {name: sum(one[name] for one in per_domain) / len(per_domain) for name in per_domain[0]}


@dataclass
class _Drops:
    """Selects the texts that no `earlier` SSM continues like the LLM. `seen`, `dropped`: counts of
    all texts and of the dropped texts."""

    earlier: Sequence[_Member]
    seen: int = 0
    dropped: int = 0

    def __call__(self, batch: np.ndarray, prefix: int) -> np.ndarray:
        texts = torch.from_numpy(batch.astype(np.int64))
        is_match = torch.zeros(len(batch), dtype=torch.bool)
        name = f"{prefix}-{hashlib.sha256(batch.tobytes()).hexdigest()[:16]}"
        for one in self.earlier:
            is_continued = one.continued.get_or_compute(
                name, partial(self._is_continued, one.model, texts, prefix)
            )
            is_match |= torch.tensor(is_continued)
        self.seen += len(batch)
        self.dropped += int(is_match.sum())
        others: np.ndarray = batch[~is_match.numpy()]
        return others

    @torch.inference_mode()
    def _is_continued(self, model: nn.Module, texts: torch.Tensor, prefix: int) -> list[bool]:
        device = next(model.parameters()).device
        # The prediction at a position is for the token at the next position.
        best = log_probabilities(model, texts[:, :-1].to(device)).argmax(-1).cpu()
        matches: list[bool] = (best[:, prefix - 1 :] == texts[:, prefix:]).all(-1).tolist()
        return matches
