"""The state that all tabs of a server share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.config.mechanisms import MODEL_FREE
from core.events import ModelInfo
from core.models.loading.catalog import SMOLLM2
from lab.conductor import Conductor
from ui.run.opening import Opening
from ui.run.source import StoreLike
from ui.server.loaded_models import WorkerLike
from ui.server.model_host import ModelHost
from ui.server.session import Hub, TabSessions
from ui.server.study_runs import StudyRuns
from ui.server.visitors import Access

__all__ = ["MAX_WAITING", "Context", "StoreApi", "make_context"]

MAX_WAITING = 256
"""The most calls that may wait in the page's queue."""


class StoreApi(StoreLike, Protocol):
    """The part of storage.RunStore that the pages use."""

    path: Any
    studies: Any

    def status(self) -> Any: ...
    def runs(self, query: Any) -> Any: ...
    def run(self, run_id: str) -> Any: ...
    def settle(self) -> None: ...
    def datasette(self) -> str: ...
    def annotate(self, run_id: str, note: str) -> None: ...
    def choices(self) -> Any: ...
    def retention(self) -> int | None: ...
    def set_retention(self, keep: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """`preset`: the page's initial preset. `query`: makes the store's RunQuery. `race`: whether
    plain decoding follows each run of Live by default."""

    hub: Hub
    store: StoreApi
    access: Access
    preset: str
    query: Callable[..., Any]
    conductor: Conductor
    exports: Mapping[str, Any] = field(default_factory=dict)
    race: bool = True
    opening: Opening = field(default_factory=Opening)
    tab_sessions: TabSessions = field(default_factory=TabSessions)

    @property
    def drafting_preset(self) -> str:
        """The page's preset, or `specinfer` if that preset is plain decoding."""
        return "specinfer" if self.preset == "autoregressive" else self.preset

    @property
    def model_host(self) -> ModelHost:
        """The host of the loaded models."""
        return self.hub.model_host

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """The models loaded now, the LLM first."""
        return self.hub.model_host.infos

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """The names of the SSMs loaded now."""
        return self.hub.model_host.drafter_names

    @property
    def user_drafters(self) -> tuple[str, ...]:
        """The import paths of user-defined drafters."""
        return self.hub.model_host.user_drafters

    @property
    def model_free(self) -> tuple[str, ...]:
        """The names of the drafters that are not SSMs."""
        return (*MODEL_FREE, *self.user_drafters)

    @property
    def chat(self) -> bool:
        """Whether the LLM has a chat template."""
        return self.hub.model_host.chat

    @property
    def chats_by_default(self) -> bool:
        """Whether prompts are sent as chat messages by default."""
        return self.chat and self.hub.model_host.pair.llm == SMOLLM2

    @property
    def offer(self) -> str:
        """The model that the header offers to load; empty if it offers none."""
        host = self.hub.model_host
        may_load = host.can_load and self.access.anyone_may_load
        return "" if host.pair.llm == SMOLLM2 or not may_load else "SmolLM2"


def make_context(
    worker: WorkerLike | ModelHost,
    store: StoreApi,
    access: Access,
    preset: str,
    query: Callable[..., Any],
    exports: Mapping[str, Any] | None = None,
    race: bool = True,
) -> Context:
    """A new server's context."""
    hub = Hub(worker, store)
    return Context(
        hub=hub,
        store=store,
        access=access,
        preset=preset,
        query=query,
        conductor=Conductor(StudyRuns(hub), store.studies),
        exports=exports or {},
        race=race,
    )
