"""A swap of models as plain values: the requested pair, and the progress of loading it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from core.models.loading.catalog import BUNDLED
from core.models.loading.progress import Say, same_stage

__all__ = ["CANCELLED", "ModelSwap", "ModelPair", "Say", "Stage"]

CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ModelPair:
    """An LLM and its SSMs as requested: names, folders, GGUF files or hub ids."""

    llm: str = BUNDLED
    ssms: tuple[str, ...] = (BUNDLED,)
    dtype: str = "auto"
    device: str = "auto"

    @property
    def names(self) -> tuple[str, tuple[str, ...], str, str]:
        """The first arguments of `core.load_models`."""
        return self.llm, self.ssms, self.dtype, self.device


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of loading. `words`: the loader's latest report about the stage, for example
    `SSM 1 of 3 name: weights`. `began`: seconds of `time.monotonic`."""

    words: str
    began: float


@dataclass(frozen=True, slots=True)
class ModelSwap:
    """The state of a swap. `state`: none, loading, done, cancelled or failed;
    `reason`: why the loading failed, or `cancelled`. `began`, `end`: seconds of
    `time.monotonic`."""

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
        """The swap after a report at `now`, about a new stage or about the present stage."""
        *before, last = self.stages or (None,)
        if last is not None and same_stage(last.words, words):
            return replace(self, stages=(*before, replace(last, words=words)))
        return replace(self, stages=(*self.stages, Stage(words, now)))

    def with_cancel_requested(self) -> ModelSwap:
        return replace(self, cancel_requested=True)

    def end_with(self, reason: str, now: float) -> ModelSwap:
        """The swap, ended at `now`: successfully if `reason` is empty."""
        state = CANCELLED if reason == CANCELLED else "failed" if reason else "done"
        return replace(self, state=state, reason=reason, end=now)
