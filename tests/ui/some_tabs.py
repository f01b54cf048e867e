"""The page with some of its tabs, for tests: a browser mounts all seven in four times the time of
Live alone. Each tab is built and connected by the functions that build the whole page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from ui.compare.tab import build_compare, wire_compare
from ui.learn.tab import build_learn, wire_learn
from ui.live.tab import build_live, wire_live
from ui.models_tab.tab import build_models, wire_models
from ui.prompts.tab import build_prompts, wire_prompts
from ui.server.context import Context
from ui.server.page import SECRET, TITLE, _leave, _look_less_often
from ui.server.visitors import new_key
from ui.sessions.layout import build_sessions
from ui.sessions.wiring import wire_sessions
from ui.shared.event_options import QUICK
from ui.shared.parts import header, header_value
from ui.tune.tab import build_tune
from ui.tune.wiring import wire_tune

BUILD = {
    "compare": build_compare,
    "tune": build_tune,
    "prompts": build_prompts,
    "sessions": build_sessions,
    "learn": build_learn,
    "models": build_models,
}
# Tabs that lead into others, which are then built too.
WITH = {
    "compare": {"sessions"},
    "tune": {"sessions"},
    "prompts": {"sessions"},
    "models": {"sessions", "learn"},
}


def build_some_tabs(context: Context, *names: str) -> gr.Blocks:
    """Live and the tabs of these names, in the order of BUILD; without endpoints and links."""
    wanted = {*names}.union(*(WITH.get(name, ()) for name in names))
    with gr.Blocks(title=TITLE, analytics_enabled=False) as blocks:
        visitor = gr.BrowserState("", storage_key="specscope-visitor", secret=SECRET)
        own = gr.BrowserState({}, storage_key="specscope-presets", secret=SECRET)
        chips = header(header_value(context.models))
        tab: dict[str, gr.Tab] = {}
        built: dict[str, Any] = {}
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Live", id="live") as tab["live"]:
                live = build_live(context, chips)
            for name in (name for name in BUILD if name in wanted):
                with gr.Tab(name.title(), id=name) as tab[name]:
                    built[name] = BUILD[name](context)
        sessions, learn = built.get("sessions"), built.get("learn")
        wires: dict[str, Callable[[Any, gr.Tab], None]] = {
            "compare": lambda one, at: wire_compare(one, visitor, own, at, live, tabs, sessions),
            "tune": lambda one, at: wire_tune(one, visitor, own, at, live, tabs, sessions),
            "prompts": lambda one, at: wire_prompts(one, visitor, at, tabs, sessions),
            "sessions": lambda one, at: wire_sessions(one, visitor, at, live, tabs),
            "learn": lambda one, at: wire_learn(one, visitor, live, tabs, blocks),
            "models": lambda one, at: wire_models(one, live, sessions, learn, own, tab, blocks),
        }
        wire_live(live, visitor, own, blocks)
        for name, one in built.items():
            wires[name](one, tab[name])
        blocks.load(lambda key: key or new_key(), visitor, visitor, **QUICK)
        blocks.unload(_leave(context))
    blocks.queue(default_concurrency_limit=None)
    _look_less_often(blocks)
    return blocks
