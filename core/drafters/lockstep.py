"""Steps: a coroutine that needs several passes of a model and leaves the passes to its caller.

The generator yields feeds and is sent their logits.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

from core.errors import MODEL_FAULTS, DrafterError
from core.events.parts import Timed
from core.models.protocol import Feed, LanguageModel
from core.models.stacking import LogitsOrError, batched_forward, common_stack

__all__ = ["StepsRun", "Steps", "run_steps", "run_in_lockstep", "run_all"]

T = TypeVar("T")
Steps = Generator[Sequence[Feed], list[torch.Tensor], T]


def run_steps(model: LanguageModel, steps: Steps[T]) -> T:
    """Runs the steps on their own model; returns their result."""
    logits: list[torch.Tensor] | None = None
    with closing(steps):  # if a pass fails, the generator's `finally` closes its rows
        while True:
            try:
                feeds = next(steps) if logits is None else steps.send(logits)
            except StopIteration as end:
                result: T = end.value
                return result
            logits = model.forward(feeds)  # outside the try: a model may raise StopIteration too


@dataclass
class StepsRun(Generic[T]):
    """Steps of one model, and their result or error.

    `charges`: spans (start, end, share) of the steps, in seconds of time.perf_counter. A pass
    batched for n models has the share 1/n.
    """

    model: LanguageModel
    steps: Steps[T]
    result: T | None = None
    error: BaseException | None = None
    next_feeds: Sequence[Feed] | None = None
    charges: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def start(self) -> float:
        return self.charges[0][0]

    @property
    def end(self) -> float:
        return self.charges[-1][1]

    def share(self, start: float, end: float) -> float:
        """The fraction of the time from `start` to `end` that was spent on these steps; 1 for an
        empty span."""
        shares = sum(
            share * max(0.0, min(end, until) - max(start, since))
            for since, until, share in self.charges
        )
        return min(1.0, shares / (end - start)) if end > start else 1.0

    def timing(self, lane: str, stage: str) -> Timed:
        """The span of these steps, and the share of the span that was spent on these steps."""
        return Timed(lane, stage, self.start, self.end, self.share(self.start, self.end))

    def take_result(self, name: str) -> T:
        """The result. Raises DrafterError with the name of the SSM if the steps failed."""
        if self.error is not None:
            raise DrafterError(name, self.error) from self.error
        assert self.result is not None
        return self.result

    def advance(self, passed: LogitsOrError | None) -> None:
        """Runs to the next feeds. `passed`: the last pass's logits or error, None at first."""
        start = time.perf_counter()
        self.next_feeds = None
        try:
            if passed is None:
                self.next_feeds = next(self.steps)
            elif isinstance(passed, BaseException):
                # Thrown into the generator: its `finally` blocks run.
                self.next_feeds = self.steps.throw(passed)
            else:
                self.next_feeds = self.steps.send(passed)
        except StopIteration as end:
            self.result = end.value
        except MODEL_FAULTS as error:
            self.error = error
        # The Python code of these steps is charged to them in full.
        self.charges.append((start, time.perf_counter(), 1.0))


def run_all(works: Mapping[str, tuple[LanguageModel, Steps[T]]]) -> dict[str, StepsRun[T]]:
    """Runs the steps of several models: in lock-step if the models have a `common_stack`, else one
    model after another."""
    if len(works) > 1 and common_stack([model for model, _ in works.values()]):
        return run_in_lockstep(works)
    return {name: _run_one(model, steps) for name, (model, steps) in works.items()}


def _run_one(model: LanguageModel, steps: Steps[T]) -> StepsRun[T]:
    work, start = StepsRun(model, steps), time.perf_counter()
    try:
        work.result = run_steps(model, steps)
    except MODEL_FAULTS as error:
        work.error = error
    work.charges.append((start, time.perf_counter(), 1.0))
    return work


def run_in_lockstep(works: Mapping[str, tuple[LanguageModel, Steps[T]]]) -> dict[str, StepsRun[T]]:
    """Runs the steps of several models; their n-th passes are batched if possible."""
    runs = {name: StepsRun(model, steps) for name, (model, steps) in works.items()}
    with ExitStack() as cleanup:
        for work in runs.values():
            cleanup.enter_context(closing(work.steps))
            work.advance(None)
        # Steps that need fewer passes end earlier.
        while unfinished := [work for work in runs.values() if work.next_feeds is not None]:
            passes = batched_forward([(work.model, work.next_feeds or ()) for work in unfinished])
            for work, result in zip(unfinished, passes, strict=True):
                work.charges.append((result.start, result.end, 1 / result.num_models))
                work.advance(result.logits)
    return runs
