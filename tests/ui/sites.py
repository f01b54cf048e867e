"""For browser tests: serves the page, whole or with some tabs, and acts as a visitor does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from bench.page.browser import WAIT_MS
from bench.page.site import serve
from storage import RunQuery, RunStore
from storage.exports import EXPORTS
from tests.logs import log_at
from tests.ui.browser.looks import at_rest, turn_to
from tests.ui.fakes import FakeWorker
from ui.compare.tab import build_compare, wire_compare
from ui.learn.tab import build_learn, wire_learn
from ui.live.tab import build_live, wire_live
from ui.models_tab.tab import build_models, wire_models
from ui.prompts.tab import build_prompts, wire_prompts
from ui.server.context import Context, make_context
from ui.server.page import SECRET, TITLE, _leave, _poll_less_often, build_page
from ui.server.session import TabSession
from ui.server.visitors import Access, new_key
from ui.sessions.layout import build_sessions
from ui.sessions.wiring import wire_sessions
from ui.shared.event_options import QUICK
from ui.shared.parts import header, header_value
from ui.tune.tab import build_tune
from ui.tune.wiring import wire_tune

CALM = 6
RUN_MS = 240_000  # for a run of real models on a busy machine
AT_REST = """(calm) => {
  const busy = window.specscopeSettled?.busy() || window.specscopeAsks > 0;
  window.specscopeCalm = busy ? 0 : window.specscopeCalm + 1;
  return window.specscopeCalm > calm;
}"""
ARTIFACTS = Path(__file__).parents[2] / "artifacts"
OpenPage = Callable[..., Any]
Axe = Callable[..., list[str]]
Served = tuple[str, Context]
# Errors that Gradio's own script logs when a visitor leaves a page with an open stream.
LEAVING = (
    "AbortError",
    "Connection errored out",
    "ERR_INCOMPLETE_CHUNKED",
    "network error",
    "Unexpected client exception",
    "Unexpected error 404",
)
OpenSite = Callable[..., Served]


@dataclass(frozen=True)
class Stage:
    url: str
    context: Context
    worker: FakeWorker

    def play(self, script: Any, **options: Any) -> tuple[str, Context]:
        self.worker.set_script(script, **options)
        return self.url, self.context

    def clear(self) -> None:
        self.context.conductor.close()
        self.worker.clear()
        store: Any = self.context.store
        for study in store.studies.studies(limit=1000):
            store.studies.delete(study.study_id)
        store.flush()
        while rows := store.runs(RunQuery()).rows:
            for row in rows:
                store.delete(row.run_id)


@contextmanager
def open_stage(folder: Path, tabs: Sequence[str] = ()) -> Iterator[Stage]:
    worker = FakeWorker()
    with serve_page(folder, worker, tabs) as (url, context):
        yield Stage(url, context, worker)


@contextmanager
def serve_page(
    folder: Path, worker: Any, tabs: Sequence[str] = ()
) -> Iterator[tuple[str, Context]]:
    """`tabs`: empty for the whole page."""
    with RunStore(log_at(folder / "runs.db")) as store:
        access = Access("127.0.0.1")
        context = make_context(worker, store, access, "specinfer", RunQuery, EXPORTS, race=False)
        page = build_some_tabs(context, *tabs) if tabs else build_page(context)
        with serve(page) as url:
            yield url, context
            context.conductor.close()
            worker.close()


def wait_notice(
    page: Any, words: str | re.Pattern[str], where: str = "live", timeout: float = WAIT_MS
) -> None:
    page.locator(f"#{where}-notice").get_by_text(words).first.wait_for(timeout=timeout)


def wait_run(page: Any) -> None:
    wait_notice(page, "Finished: ", timeout=RUN_MS)


def wait_ready(page: Any) -> Any:
    wait_notice(page, "Press Run")
    # Gradio shows a page before the page's buttons work.
    page.wait_for_function("() => window.specscopeStops")
    page.locator("#live-strip .ss-panel, #live-strip .ss-shell > *").first.wait_for()
    return page


def shows(page: Any, name: str, words: str) -> None:
    script = "([id, words]) => document.querySelector(id + ' input').value.split(' ')[0] === words"
    page.wait_for_function(script, arg=[f"#field-{name}", words])


def ran(page: Any) -> Any:
    page.click("#live-run")
    wait_run(page)
    return wait_drawn(page)


def ran_again(page: Any, context: Context) -> Any:
    return ran_after(page, context, lambda: page.click("#live-run"))


AWAIT_RUN = """(where) => {
  window.specscopeRan = false;
  const tell = () => { window.specscopeRan = true; };
  document.querySelector(`#${where}-dock`).addEventListener("specscope-run", tell, { once: true });
}"""


def ran_after(page: Any, context: Context, press: Callable[[], object], where: str = "live") -> Any:
    # At first the notice still shows the end of the previous run. All sessions are watched, since
    # another browser tab may have sent the latest request.
    before = [desk.player for desk in desks_of(context, where)]

    def ended(player: Any) -> bool:
        return player.source.is_done and all(player is not old for old in before)

    page.evaluate(AWAIT_RUN, where)
    press()
    until(page, lambda: any(ended(desk.player) for desk in desks_of(context, where)))
    page.wait_for_function("() => window.specscopeRan")
    wait_notice(page, "Finished: ", where)
    return wait_drawn(page, where)


def desk_of(context: Context, board: str = "live") -> TabSession:
    """The session that sent the latest request on `board`."""
    return desks_of(context, board)[-1]


def desks_of(context: Context, board: str = "live") -> list[TabSession]:
    """The sessions with a run on `board`, the latest request last."""
    desks = [desk for (_, name), desk in context.tab_sessions._sessions.items() if name == board]
    return [desk for desk in desks if desk.player]


def open_latest_run(page: Any) -> Any:
    sessions(page)
    page.locator(".sp-open").first.click()
    wait_notice(page, "Finished: ", "sessions")
    return wait_drawn(page, "sessions")


def wait_drawn(page: Any, where: str = "live") -> Any:
    """The notice shows the end of a run some frames before the pictures."""
    page.locator(f"#{where}-figures .ss-state:not([data-state=running])").wait_for(state="attached")
    at_rest(page)
    return page


def open_drawer(page: Any) -> Any:
    if not page.locator("#live-drawer-close").is_visible():
        page.click("#live-drawer")
    page.locator("#sampling-top_p").wait_for()
    return page


def close_drawer(page: Any) -> Any:
    page.click("#live-drawer-close")
    page.locator("#live-settings").wait_for(state="hidden")
    return page


def run_tools(page: Any) -> Any:
    if not page.locator("#sessions-tools").is_visible():
        page.click("#sessions-more")
    page.locator("#sessions-delete").wait_for()
    return page


def dock(page: Any, name: str, where: str = "live") -> Any:
    page.locator(f"#{where}-docked [data-name={name}]").click()
    return page


ALL_PANES = """
.sp-dock.sp-dock[data-at] > .sp-pane.sp-pane.sp-pane {
  display: flex !important; flex: none !important;
}
#live-screen, #sessions-screen, #sessions-screen > *, .sp-dock.sp-dock.sp-dock,
.sp-dock.sp-dock .ss-panel.ss-panel { height: auto !important; }
#sessions-screen { display: block !important; }
#live-board, #sessions-board { grid-template-rows: auto 600px auto auto !important; }
.sp-dock.sp-dock .sp-pane .ss-panel .ss-body { min-height: 420px !important; }
/* The line beside the dock's tabs would lie on what is above them now. */
.sp-board.sp-board > :is(#live-notice, #sessions-notice) {
  position: relative !important; inset: auto !important; height: auto !important;
}
"""


def all_panes(page: Any) -> Any:
    page.add_style_tag(content=ALL_PANES)
    return page


def speed(page: Any, choice: str, where: str = "live") -> None:
    """Choose how runs play: `full`, `step`, or rounds per second."""
    page.select_option(f"#{where}-speed", choice)


def unfold_settings(page: Any) -> Any:
    return every_setting(wait_ready(page))


def every_setting(page: Any) -> Any:
    open_drawer(page)
    page.get_by_text("Every setting of the engine").click()
    number_box(page, "sampling-top_p").wait_for()
    return wait_form_settled(page)


def wait_form_settled(page: Any) -> Any:
    """A box that comes into sight and a field with a new value send a request one frame later."""
    page.evaluate("() => { window.specscopeCalm = 0; }")
    page.wait_for_function(AT_REST, arg=CALM)
    return page


def wait_usable(page: Any, box: Any) -> Any:
    """A box that is coming into sight may lose an entry."""
    box.wait_for()
    wait_form_settled(page)
    return box


def number_box(page: Any, name: str) -> Any:
    return page.locator(f"#{name} input[type=number]")


def text_box(page: Any, name: str) -> Any:
    return page.locator(f"#{name} input, #{name} textarea").first


def choose(page: Any, name: str, option: str) -> None:
    """For a field, the drawer is opened and stays open."""
    if name.startswith("field-"):
        # An earlier choice may still change this menu.
        wait_form_settled(open_drawer(page))
    page.locator(f"#{name} input").click()
    words = re.compile(rf"^{re.escape(option)}( \(|$)")  # a meaning in brackets may follow
    page.locator(f"#{name}").get_by_role("option", name=words).click()


def strip_text(page: Any, where: str = "live") -> str:
    return str(page.locator(f"#{where}-strip").inner_text())


def shot(page: Any, name: str) -> None:
    at_rest(page)
    shot_in_motion(page, name, full_page=True)


def shot_in_motion(page: Any, name: str, full_page: bool = False) -> None:
    if os.environ.get("BROWSER_SHOTS") == "1":
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=full_page)


def sessions(page: Any) -> None:
    turn_to(page, "Sessions")
    page.locator("#sessions-said").get_by_text(re.compile(r"\d+ runs?(, page|\.)")).wait_for()


def until(page: Any, condition: Callable[[], bool]) -> None:
    for _ in range(WAIT_MS // 50):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen in time")


def in_sight(page: Any, *parts: str) -> None:
    script = """(part) => { const box = document.querySelector(part).getBoundingClientRect();
      return box.height > 0 && box.top >= 0 && box.top < innerHeight - 20; }"""
    for part in parts:
        page.wait_for_function(script, arg=part)


def overflows(page: Any) -> bool:
    script = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"
    return bool(page.evaluate(script))


BUILD = {
    "compare": build_compare,
    "tune": build_tune,
    "prompts": build_prompts,
    "sessions": build_sessions,
    "learn": build_learn,
    "models": build_models,
}
# For each tab, the tabs that are built with the tab, since the tab leads to them.
WITH = {
    "compare": {"sessions"},
    "tune": {"sessions"},
    "prompts": {"sessions"},
    "models": {"sessions", "learn"},
}


def build_some_tabs(context: Context, *names: str) -> gr.Blocks:
    """A page with Live, the tabs `names` and the tabs in WITH, without endpoints and links."""
    expected = {*names}.union(*(WITH.get(name, ()) for name in names))
    with gr.Blocks(title=TITLE, analytics_enabled=False) as blocks:
        visitor = gr.BrowserState("", storage_key="specscope-visitor", secret=SECRET)
        own = gr.BrowserState({}, storage_key="specscope-presets", secret=SECRET)
        chips = header(header_value(context.models))
        tab: dict[str, gr.Tab] = {}
        built: dict[str, Any] = {}
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Live", id="live") as tab["live"]:
                live = build_live(context, chips)
            for name in (name for name in BUILD if name in expected):
                with gr.Tab(name.title(), id=name) as tab[name]:
                    built[name] = BUILD[name](context)
        sessions, learn = built.get("sessions"), built.get("learn")
        wires: dict[str, Callable[[Any, gr.Tab], None]] = {
            "compare": lambda one, at: wire_compare(one, visitor, own, at, live, tabs, sessions),
            "tune": lambda one, at: wire_tune(one, visitor, own, at, live, tabs, sessions),
            "prompts": lambda one, at: wire_prompts(one, visitor, at, tabs, sessions),
            "sessions": lambda one, at: wire_sessions(one, visitor, at, live, tabs),
            "learn": lambda one, at: wire_learn(one, visitor, live, tabs, blocks),
            "models": lambda one, at: wire_models(one, live, learn, own, tab, tabs, blocks),
        }
        wire_live(live, visitor, own, blocks)
        for name, one in built.items():
            wires[name](one, tab[name])
        blocks.load(lambda key: key or new_key(), visitor, visitor, **QUICK)
        blocks.unload(_leave(context))
    blocks.queue(default_concurrency_limit=None)
    _poll_less_often(blocks)
    return blocks
