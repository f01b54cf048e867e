"""Passes of several models made as one where they lie stacked, one after another elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.errors import DRAFTER_FAULTS
from core.models.hf_model import HfModel
from core.models.protocol import Feed, LanguageModel
from core.models.stack import Stack

__all__ = ["Made", "Passed", "forward_together", "stacked"]

Passed = list[torch.Tensor] | BaseException
"""Logits of each feed, or how the pass failed."""


@dataclass(frozen=True, slots=True)
class Made:
    """A model's pass, from `start` to `end` (time.perf_counter), made for `mates` models at
    once."""

    logits: Passed
    start: float
    end: float
    mates: int = 1


def forward_together(asked: Sequence[tuple[LanguageModel, Sequence[Feed]]]) -> list[Made]:
    """A pass of each model over its feeds; a model is asked once."""
    stack = stacked([model for model, _ in asked])
    if stack is None or not stack.fits([feeds for _, feeds in asked]):
        return [_alone(model, feeds) for model, feeds in asked]
    start = time.perf_counter()
    places = [stack.members.index(model) for model, _ in asked]
    by_place = {place: feeds for place, (_, feeds) in zip(places, asked, strict=True)}
    found: Sequence[Passed]
    try:
        found = stack.forward([by_place[place] for place in range(len(asked))])
    except DRAFTER_FAULTS as error:
        found = [error] * len(asked)
    end = time.perf_counter()
    return [Made(found[place], start, end, len(asked)) for place in places]


def stacked(models: Sequence[LanguageModel]) -> Stack | None:
    """The stack whose members these are, all of them and in whatever order; None where there is
    none."""
    stack = models[0].stack if models and isinstance(models[0], HfModel) else None
    if not isinstance(stack, Stack) or len(models) != len(stack.members):
        return None
    return stack if {id(model) for model in models} == {id(one) for one in stack.members} else None


def _alone(model: LanguageModel, feeds: Sequence[Feed]) -> Made:
    start = time.perf_counter()
    try:
        logits: Passed = model.forward(feeds)
    except DRAFTER_FAULTS as error:
        logits = error
    return Made(logits, start, time.perf_counter())
