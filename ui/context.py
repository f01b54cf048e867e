"""What every page needs: the worker behind its Hub, the store, who is who. Made once per server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.events import Event, ModelInfo
from ui.session import Desks, Hub, WorkerLike
from ui.visitors import Access

__all__ = ["Context", "StoreApi", "make_context"]


class StoreApi(Protocol):
    """storage.RunStore, as far as the pages use it."""

    path: Any

    def record(self, event: Event, owner: str = "") -> None: ...
    def flush(self, timeout: float = 5.0) -> bool: ...
    def status(self) -> Any: ...
    def runs(self, query: Any) -> Any: ...
    def run(self, run_id: str) -> Any: ...
    def events(self, run_id: str) -> tuple[Event, ...]: ...
    def delete(self, run_id: str) -> None: ...
    def annotate(self, run_id: str, note: str) -> None: ...
    def choices(self) -> Any: ...
    def retention(self) -> int | None: ...
    def set_retention(self, keep: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """`models`: the LLM first, then the SSMs. `query` makes the store's RunQuery.

    `exports`: formats that a run's events can be written in, by name (storage's EXPORTS).
    `look_inside`: the command that opens the run log in Datasette.
    """

    hub: Hub
    store: StoreApi
    models: tuple[ModelInfo, ...]
    drafter_names: tuple[str, ...]
    chat: bool
    access: Access
    preset: str
    query: Callable[..., Any]
    exports: Mapping[str, Any] = field(default_factory=dict)
    look_inside: str = ""
    desks: Desks = field(default_factory=Desks)


def make_context(
    worker: WorkerLike,
    store: StoreApi,
    access: Access,
    preset: str,
    query: Callable[..., Any],
    exports: Mapping[str, Any] | None = None,
    look_inside: str = "",
) -> Context:
    """Read from the worker's engine what the page shows of its models."""
    models = worker.engine.models
    tokenizer = getattr(models, "tokenizer", None)
    return Context(
        hub=Hub(worker, store),
        store=store,
        models=tuple(models.infos),
        drafter_names=tuple(models.drafter_names),
        chat=bool(getattr(tokenizer, "chat_template", None)),
        access=access,
        preset=preset,
        query=query,
        exports=exports or {},
        look_inside=look_inside,
    )
