"""The tabs Live and Sessions over a fake worker, for tests of their handlers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr

from storage import RunQuery, RunStore
from storage.exports import EXPORTS
from tests.ui.fakes import FakeWorker, script_of
from tests.ui.test_form import form_values
from ui.live.handlers import Press, start_run
from ui.live.tab import Live, build_live
from ui.server.context import Context, make_context
from ui.server.session import TabSession
from ui.server.visitors import Access
from ui.sessions.history import CallerRights
from ui.sessions.tab import Sessions, build_sessions

ALL = CallerRights(None, True)


def context(store: RunStore, host: str = "127.0.0.1", **script: Any) -> Context:
    worker = FakeWorker(script_of(**{"rounds": 8, **script}), slowdown=0.2)
    return make_context(worker, store, Access(host), "specinfer", RunQuery, EXPORTS)


def with_drafters(store: RunStore, names: tuple[str, ...]) -> Context:
    worker = FakeWorker(script_of(8), slowdown=0.2)
    worker.engine.models.drafter_names = names
    return make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)


@cache
def layouts() -> tuple[Live, Sessions]:
    """Cached, since making the components is slow."""
    with gr.Blocks():
        stub = cast(
            Context,
            SimpleNamespace(
                drafter_names=(),
                user_drafters=(),
                preset="specinfer",
                chat=False,
                chats_by_default=False,
                models=(),
                race=True,
            ),
        )
        return build_live(stub, gr.HTML()), build_sessions(stub)


def live_of(ctx: Context) -> Live:
    live = layouts()[0]
    return replace(live, board=replace(live.board, context=ctx))


def notice_of(values: list[Any], at: int = 1) -> str:
    """`at`: the place of the notice among a handler's values."""
    return "\n".join(line["text"] for line in values[at]["lines"].values())


def press(
    compare: bool = False, stops: int | None = None, owner: str = "me", **changes: Any
) -> Press:
    return Press(owner, form_values(**changes), compare, stops=stops)


def run(live: Live, desk: TabSession, owner: str = "me", **changes: Any) -> list[Any]:
    return list(start_run(live, desk, press(owner=owner, **changes)))[-1]


def until_writing(frames: Iterator[list[Any]], at: int = 1) -> None:
    assert any("Writing" in notice_of(values, at) for values in frames)


def sessions_of(ctx: Context) -> Sessions:
    sessions = layouts()[1]
    return replace(sessions, board=replace(sessions.board, context=ctx))
