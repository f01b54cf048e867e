"""A swap of models as plain values: the requested pair, and the progress of loading it.

A stage's text is what the loader reports before the stage begins, such as
`SSM 1 of 3 name: weights`. Loads nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from core.models.loading.catalog import BUNDLED
from core.models.loading.progress import same_stage

__all__ = ["CANCELLED", "ModelSwap", "ModelPair", "Say", "Stage"]

CANCELLED = "cancelled"
Say = Callable[[str], None]
"""Called before each stage."""


@dataclass(frozen=True, slots=True)
class ModelPair:
    """An LLM and its SSMs as requested: names, folders or hub ids."""

    llm: str = BUNDLED
    ssms: tuple[str, ...] = (BUNDLED,)
    dtype: str = "auto"
    device: str = "auto"

    @property
    def names(self) -> tuple[str, tuple[str, ...], str, str]:
        """The first arguments of `load_models`."""
        return self.llm, self.ssms, self.dtype, self.device


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its text, and its start in seconds of a monotonic clock."""

    words: str
    began: float


@dataclass(frozen=True, slots=True)
class ModelSwap:
    """`state`: none, loading, done, cancelled or failed, then with the `reason`.
    `cancel_requested`: it ends at the next stage."""

    pair: ModelPair | None = None
    state: str = "none"
    stages: tuple[Stage, ...] = ()
    began: float = 0.0
    end: float = 0.0
    reason: str = ""
    cancel_requested: bool = False

    @classmethod
    def of(cls, pair: ModelPair) -> ModelSwap:
        """A swap that has just begun."""
        return cls(pair, "loading", began=time.monotonic())

    @property
    def is_loading(self) -> bool:
        return self.state == "loading"

    def at(self, words: str, now: float) -> ModelSwap:
        """With the next stage, or progress within the same one."""
        *before, last = self.stages or (None,)
        if last is not None and same_stage(last.words, words):
            return replace(self, stages=(*before, replace(last, words=words)))
        return replace(self, stages=(*self.stages, Stage(words, now)))

    def with_cancel_requested(self) -> ModelSwap:
        return replace(self, cancel_requested=True)

    def end_with(self, reason: str, now: float) -> ModelSwap:
        """At its end; successful if there is no reason."""
        state = CANCELLED if reason == CANCELLED else "failed" if reason else "done"
        return replace(self, state=state, reason=reason, end=now)
