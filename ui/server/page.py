"""Builds the page and launches it."""

from __future__ import annotations

import argparse
import os
import socket
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import gradio as gr
from gradio import http_server
from starlette.routing import Route

from core.errors import ConfigError
from ui.api.endpoints import add_endpoints
from ui.compare.tab import Compare, build_compare, wire_compare
from ui.components import launch_options
from ui.learn.layout import Learn
from ui.learn.tab import build_learn, wire_learn
from ui.live.handlers import record_opening
from ui.live.tab import Live, build_live, wire_live
from ui.models_tab.tab import Models, build_models, wire_models
from ui.openai.routes import openai_routes
from ui.prompts.tab import Prompts, build_prompts, wire_prompts
from ui.server.arguments import server_name
from ui.server.context import MAX_WAITING, Context
from ui.server.visitors import is_loopback, new_key
from ui.sessions.layout import Sessions, build_sessions
from ui.sessions.wiring import wire_sessions
from ui.shared.event_options import QUICK
from ui.shared.into_study import into_study
from ui.shared.links import wire_links
from ui.shared.parts import header, header_value, notice, page_css, page_js
from ui.tune.tab import Tune, build_tune
from ui.tune.wiring import wire_tune

__all__ = ["build_page", "launch", "page_options", "who_can_reach"]

TITLE = "SpecScope"
POLL_WORK_S, POLL_PROGRESS_S = 0.01, 0.1
# For all handlers together: each run that plays occupies a thread.
MAX_THREADS = 128

# Fixed: the key and presets in a visitor's browser stay readable after a restart. The secret
# may be public: a visitor's key cannot be guessed.
SECRET = "specscope"
EVERYWHERE = ("0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True)
class Pages:
    """The components of every tab, and the tabs by name."""

    live: Live
    compare: Compare
    tune: Tune
    prompts: Prompts
    sessions: Sessions
    learn: Learn
    models: Models
    tabs: gr.Tabs
    tab: dict[str, gr.Tab]


def build_page(context: Context) -> gr.Blocks:
    """All tabs on one page."""
    # Otherwise Gradio recomputes analytics, with pandas, after events.
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "1000000000")
    blocks: gr.Blocks
    with gr.Blocks(title=TITLE, analytics_enabled=False) as blocks:
        visitor = gr.BrowserState("", storage_key="specscope-visitor", secret=SECRET)
        own_presets = gr.BrowserState({}, storage_key="specscope-presets", secret=SECRET)
        host = context.model_host
        chips = header(header_value(context.models, offer=context.offer, ranks=host.ranks))
        link_notice = notice("link-said")
        pages = _build(context, chips)
        add_endpoints(context)  # before the handlers, whose names must not take an endpoint's name
        _wire(pages, visitor, own_presets, blocks)
        wire_links(context, pages.live, pages.sessions, (link_notice, pages.tabs, blocks), visitor)
        blocks.load(
            lambda key: key or new_key(),
            visitor,
            visitor,
            **QUICK,
        )
        blocks.unload(_leave(context))
    # By default Gradio answers one call of a handler at a time: a visitor's run would delay all
    # others.
    blocks.queue(default_concurrency_limit=None, max_size=MAX_WAITING)
    _poll_less_often(blocks)
    return blocks


def _poll_less_often(blocks: gr.Blocks) -> None:
    # Each of Gradio's polls takes the GIL from the engine. There is no public setting.
    queue = blocks._queue
    queue.sleep_when_free = max(queue.sleep_when_free, POLL_WORK_S)
    progress_s = max(queue.progress_update_sleep_when_free, POLL_PROGRESS_S)
    queue.progress_update_sleep_when_free = progress_s


def _build(context: Context, chips: gr.HTML) -> Pages:
    tab: dict[str, gr.Tab] = {}
    with gr.Tabs(elem_id="tabs") as tabs:
        with gr.Tab("Live", id="live") as tab["live"]:
            live = build_live(context, chips)
        with gr.Tab("Compare", id="compare") as tab["compare"]:
            compare = build_compare(context)
        with gr.Tab("Tune", id="tune") as tab["tune"]:
            tune = build_tune(context)
        with gr.Tab("Prompts", id="prompts") as tab["prompts"]:
            prompts = build_prompts(context)
        with gr.Tab("Sessions", id="sessions") as tab["sessions"]:
            sessions = build_sessions(context)
        with gr.Tab("Learn", id="learn") as tab["learn"]:
            learn = build_learn(context)
        with gr.Tab("Models", id="models") as tab["models"]:
            models = build_models(context)
    return Pages(live, compare, tune, prompts, sessions, learn, models, tabs, tab)


def _wire(
    pages: Pages, visitor: gr.BrowserState, own_presets: gr.BrowserState, blocks: gr.Blocks
) -> None:
    live, sessions, tabs, tab = pages.live, pages.sessions, pages.tabs, pages.tab
    wire_live(live, visitor, own_presets, blocks)
    wire_compare(pages.compare, visitor, own_presets, tab["compare"], live, tabs, sessions)
    wire_tune(pages.tune, visitor, own_presets, tab["tune"], live, tabs, sessions)
    wire_prompts(pages.prompts, visitor, tab["prompts"], tabs, sessions)
    wire_sessions(sessions, visitor, tab["sessions"], live, tabs)
    boards = (pages.compare.board, pages.tune.board, pages.prompts.board)
    into_study(sessions, tabs, boards, visitor)
    wire_learn(pages.learn, visitor, live, tabs, blocks)
    wire_models(pages.models, live, pages.learn, own_presets, tab, tabs, blocks)


def _leave(context: Context) -> Any:
    def leave(request: gr.Request) -> None:
        context.tab_sessions.leave(request.session_hash)

    return leave


def page_options(routes: Iterable[Route] = ()) -> dict[str, Any]:
    """Options of `Blocks.launch`, with `routes` added."""
    options = launch_options()
    options["app_kwargs"]["routes"] += routes
    return {
        **options,
        "css": page_css(),
        "js": page_js(),
        "run_history": False,
        "max_threads": MAX_THREADS,
        "footer_links": ["api", "settings"],
        "show_error": True,
        "share": False,
        "enable_monitoring": False,
        "ssr_mode": False,
    }


def check_host(field: str, host: str, family: int, allowed: str) -> None:
    """Raises ConfigError if `host` is not an address of this machine and of this `family`."""
    try:
        address = socket.getaddrinfo(host, 0, family, socket.SOCK_STREAM)[0]
        with socket.socket(address[0], address[1]) as probe:
            # Port 0 means any free port: only the address is tested.
            probe.bind(address[4])
    except (OSError, UnicodeError) as error:  # UnicodeError: a name with an empty label
        allowed = f"{allowed} of this machine, as 127.0.0.1 or 0.0.0.0"
        raise ConfigError.must_be(field, host, allowed) from error


def request_once(url: str) -> None:
    """Requests the page once and waits for the answer."""
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except (OSError, HTTPException):
        return  # with --auth or a proxy the page may answer with an error; it is open nevertheless


def own_address() -> str:
    """This machine's address on its network, or its host name if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a UDP socket chooses a route, and with it the socket's own address.
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def who_can_reach(host: str, port: int, auth: bool) -> str:
    """A line about who can reach the page and what they may do; empty on loopback."""
    if is_loopback(host):
        return ""
    address = own_address() if host in EVERYWHERE else host.strip("[]")
    where = f"http://{f'[{address}]' if ':' in address else address}:{port}/"
    if auth:
        return (
            f"Others reach it at {where}: whoever has the login may run prompts on this machine, "
            "and see and delete the runs made with that login."
        )
    return (
        f"Others reach it at {where}: anyone on the network may run prompts on this machine, "
        "and see and delete the runs of their own browser, nobody else's. "
        "--auth USER:PASSWORD asks for a login."
    )


def launch(context: Context, args: argparse.Namespace, started: float) -> None:
    """Opens the server, prints its address and the time since `started` (seconds of
    `time.perf_counter`), and serves until interrupted.

    Raises ConfigError if the port is taken or the host is not this machine's."""
    if name := os.environ.get("GRADIO_SERVER_NAME"):
        # Gradio looks for a free port with an IPv4 socket at this address, even with --host.
        check_host("GRADIO_SERVER_NAME", name, socket.AF_INET, "an IPv4 address")
    if args.host is not None:
        check_host("--host", args.host, socket.AF_UNSPEC, "an address")
    blocks = build_page(context)
    record_opening(context)
    routes = openai_routes(context, args.auth) if args.openai else []
    try:
        _, url, _ = blocks.launch(
            server_name=server_name(args.host),
            server_port=args.port,
            auth=args.auth,
            prevent_thread_lock=True,
            quiet=True,
            **page_options(routes),
        )
    except OSError as error:
        if args.port:
            free = "a free port of this machine"
            raise ConfigError.must_be("--port", args.port, free) from error
        first, count = http_server.INITIAL_PORT_VALUE, http_server.TRY_NUM_PORTS
        tried = f"none of the ports {first} to {first + count - 1} is free"
        raise ConfigError.of("--port", None, f"{tried}, so it must name a free one") from error
    request_once(url)
    seconds = time.perf_counter() - started
    print(
        f"SpecScope is open at {url} (first request answered {seconds:.1f} s after the start). "
        "Ctrl+C ends it.",
        flush=True,
    )
    others = who_can_reach(server_name(args.host), blocks.server_port, args.auth is not None)
    if others:
        print(others, flush=True)
    try:
        blocks.block_thread()
    finally:
        blocks.close()
