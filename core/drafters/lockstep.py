"""Steps: work that wants a model's passes, one after another, and leaves it to others to make them.

Written as a generator that yields feeds and is sent their logits, so that several SSMs' work can go
on in lock-step, a pass of each made together with the others' (`core.models.batch`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

from core.errors import DRAFTER_FAULTS
from core.models.batch import LogitsOrError, batched_forward, common_stack
from core.models.protocol import Feed, LanguageModel

__all__ = ["Stepped", "Steps", "alone", "in_step", "together"]

T = TypeVar("T")
Steps = Generator[Sequence[Feed], list[torch.Tensor], T]


def alone(model: LanguageModel, steps: Steps[T]) -> T:
    """What the work comes to on this model, nobody else's passes beside it."""
    logits: list[torch.Tensor] | None = None
    with closing(steps):  # where a pass fails it gives back what it has opened
        while True:
            try:
                feeds = next(steps) if logits is None else steps.send(logits)
            except StopIteration as end:
                found: T = end.value
                return found
            logits = model.forward(feeds)  # outside: a model may fail with whatever it likes


@dataclass
class Stepped(Generic[T]):
    """One work of several in lock-step: what it came to, or how it failed.

    `charged`: (start, end, share) of the stretches in which time was spent on it, in seconds of
    time.perf_counter, and which part of that it answers for: a pass made for n is a n-th of it.
    """

    model: LanguageModel
    steps: Steps[T]
    found: T | None = None
    error: BaseException | None = None
    wanted: Sequence[Feed] | None = None
    charged: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def began(self) -> float:
        return self.charged[0][0]

    @property
    def ended(self) -> float:
        return self.charged[-1][1]

    def share(self, start: float, end: float) -> float:
        """Which part of this time was spent on it."""
        spent = sum(
            share * max(0.0, min(end, until) - max(start, since))
            for since, until, share in self.charged
        )
        return min(1.0, spent / (end - start)) if end > start else 1.0

    def go_on(self, passed: LogitsOrError | None) -> None:
        """Up to the next pass it wants; `passed` is what came of the last, None at first."""
        start = time.perf_counter()
        self.wanted = None
        try:
            if passed is None:
                self.wanted = next(self.steps)
            elif isinstance(passed, BaseException):
                self.wanted = self.steps.throw(passed)
            else:
                self.wanted = self.steps.send(passed)
        except StopIteration as end:
            self.found = end.value
        except DRAFTER_FAULTS as error:
            self.error = error
        self.charged.append((start, time.perf_counter(), 1.0))


def together(works: Mapping[str, tuple[LanguageModel, Steps[T]]]) -> dict[str, Stepped[T]]:
    """Does all of the works, each of another model: in lock-step where the models lie stacked, one
    after another elsewhere."""
    if len(works) > 1 and common_stack([model for model, _ in works.values()]):
        return in_step(works)
    return {name: _by_itself(model, steps) for name, (model, steps) in works.items()}


def _by_itself(model: LanguageModel, steps: Steps[T]) -> Stepped[T]:
    work, start = Stepped(model, steps), time.perf_counter()
    try:
        work.found = alone(model, steps)
    except DRAFTER_FAULTS as error:
        work.error = error
    work.charged.append((start, time.perf_counter(), 1.0))
    return work


def in_step(works: Mapping[str, tuple[LanguageModel, Steps[T]]]) -> dict[str, Stepped[T]]:
    """Does all of the works, each of another model; their n-th passes are made together."""
    stepped = {name: Stepped(model, steps) for name, (model, steps) in works.items()}
    with ExitStack() as leaving:
        for work in stepped.values():
            leaving.enter_context(closing(work.steps))
            work.go_on(None)
        while going := [work for work in stepped.values() if work.wanted is not None]:
            passes = batched_forward([(work.model, work.wanted or ()) for work in going])
            for work, made in zip(going, passes, strict=True):
                work.charged.append((made.start, made.end, 1 / made.num_models))
                work.go_on(made.logits)
    return stepped
