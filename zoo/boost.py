"""`python -m zoo boost`: collective boost-tuning of a pool of SSMs (SpecInfer 3.1).

Each is tuned to the LLM where those before it fall short, so that together they cover what it will
say.

`prompts`, as published: texts that an SSM continues as the LLM does, to the end, are dropped for
those after it. `positions`: single positions that one foresees weigh little (ALGORITHMS 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import nn

from core import checks
from zoo.distil import Distilled, Teaching, Texts, Tuning, distil
from zoo.foreseen import coverage
from zoo.losses import Distillation, log_probabilities
from zoo.models import open_model
from zoo.own_texts import HELD_OUT_FORM
from zoo.presets import ModelRecipe

__all__ = ["WAYS", "Boosted", "boost", "line"]

WAYS = ("positions", "prompts")
KINDS = MappingProxyType({"positions": "boosted", "prompts": "boosted-by-prompts"})
"""The folder that each way's are saved under."""


@dataclass(frozen=True, slots=True)
class Boosted:
    """What came of one SSM of the pool: `before` and `after` its tuning, over all held-out
    domains, how often the LLM's token is among the first of each SSM, those not tuned yet as they
    were, and of each SSM alone among as many of its own. `dropped` texts of `texts` that those
    before it continued like the LLM. `kept`: whether it stays; the first that does not is the last.
    """

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
    """Tunes the pool in its order, each from its folder, until one makes the union's held-out
    coverage fall: that one stays as it was."""
    checks.choice("by", way, WAYS)
    device, held_out = teaching.run.device, teaching.held_out()
    models: dict[str, nn.Module] = {
        recipe.name: open_model(folder).to(device) for recipe, folder in pool
    }
    tuned: list[nn.Module] = []
    done: list[Boosted] = []
    for recipe, folder in pool:
        before = _covered(teaching.teacher, models, held_out)
        drops = _Drops(teaching.teacher, tuple(tuned))
        found = distil(
            Tuning(
                recipe,
                folder,
                Distillation(teaching.teacher, tuple(tuned) if way == "positions" else ()),
                drops if way == "prompts" else None,
                KINDS[way],
                {"by": way, "behind": [one.name for one in done]},
            ),
            teaching,
        )
        ours = open_model(teaching.run.store.folder / KINDS[way] / recipe.name).to(device)
        after = _covered(teaching.teacher, {**models, recipe.name: ours}, held_out)
        kept = after["union"] >= before["union"]
        done.append(Boosted(recipe.name, found, before, after, drops.seen, drops.dropped, kept))
        say(line(done[-1]))
        if not kept:
            break
        models[recipe.name] = ours
        tuned.append(ours)
    return done


def line(one: Boosted) -> str:
    """What one SSM's tuning did to the whole."""
    best = max(value for name, value in one.after.items() if name != "union")
    left = "" if one.kept else "; it stays as it was"
    dropped = f", {one.dropped} of {one.texts} texts dropped before" if one.texts else ""
    return (
        f"{one.name}: union {one.before['union']:.1%} -> {one.after['union']:.1%}, the best single "
        f"SSM with as many proposals {best:.1%}{dropped}{left}"
    )


def _covered(
    teacher: nn.Module, models: Mapping[str, nn.Module], held_out: Texts
) -> dict[str, float]:
    """Means over the domains."""
    prefix = HELD_OUT_FORM.prefixes[0]
    found = [coverage(teacher, models, texts, prefix) for texts in held_out.values()]
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


@dataclass
class _Drops:
    """Keeps the texts that none of the `earlier` SSMs continues as the LLM did; counts them."""

    teacher: nn.Module
    earlier: Sequence[nn.Module]
    seen: int = 0
    dropped: int = 0

    def __call__(self, batch: np.ndarray, prefix: int) -> np.ndarray:
        whole = torch.from_numpy(batch.astype(np.int64))
        matched = torch.zeros(len(batch), dtype=torch.bool)
        for model in self.earlier:
            matched |= self._matched(model, whole, prefix)
        self.seen += len(batch)
        self.dropped += int(matched.sum())
        kept: np.ndarray = batch[~matched.numpy()]
        return kept

    @torch.inference_mode()
    def _matched(self, model: nn.Module, whole: torch.Tensor, prefix: int) -> torch.Tensor:
        device = next(model.parameters()).device
        best = log_probabilities(model, whole[:, :-1].to(device)).argmax(-1).cpu()
        return (best[:, prefix - 1 :] == whole[:, prefix:]).all(-1)
