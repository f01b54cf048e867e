"""The panel "All requests now" in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core import Engine
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.worker import Worker
from tests.ui import sites
from tests.ui.gates import PASS_S, PassGate, gated_passes
from tests.ui.reading import becomes, in_looks
from tests.ui.sites import Axe, OpenPage, Served
from ui.server.context import Context

pytestmark = pytest.mark.browser
PROMPTS = (
    "Once upon a time, in a small village by the sea, there lived",
    "class Stack:\n    def __init__(self):\n        self.items = []\n",
    "User: I want to book a table for two at an Italian restaurant.\nAssistant:",
)
WATCH_PASS = """() => { new MutationObserver(() => {
  const cells = [...document.querySelectorAll("#learn-requests td")];
  if (cells.some((cell) => cell.innerText === "in the pass")) window.seenInPass = true;
}).observe(document.body, {
  subtree: true, childList: true, attributes: true, characterData: true
});
}"""
ROWS_IN_SIGHT = """() => {
  const pane = document.querySelector("#learn-dock .sp-pane-requests").getBoundingClientRect();
  return [...document.querySelectorAll("#learn-requests tbody tr")]
    .filter((row) => row.getBoundingClientRect().bottom <= pane.bottom + 0.5).length;
}"""

LONG_REASONS = """() => {
  for (const one of document.querySelectorAll("#learn-requests .sp-all-reason")) {
    one.parentNode.hidden = false;
    one.textContent = "a long reason ".repeat(20);
  }
}"""


@pytest.fixture(scope="module")
def gated_site(
    tmp_path_factory: pytest.TempPathFactory, chromium: Any, bundled: Engine
) -> Iterator[tuple[Served, PassGate]]:
    with gated_passes(bundled.models.llm) as gate:
        worker = Worker(Engine(bundled.models))
        with sites.serve_page(tmp_path_factory.mktemp("requests"), worker) as site:
            gate.pass_s = PASS_S
            yield site, gate
            gate.closed = False


@pytest.fixture
def gate(gated_site: tuple[Served, PassGate]) -> Iterator[PassGate]:
    gate = gated_site[1]
    gate.closed = False
    yield gate
    gate.closed = False


@pytest.fixture
def scheduled_site(gated_site: tuple[Served, PassGate], gate: PassGate) -> Served:
    site = gated_site[0]
    site[1].model_host.schedule = "each"
    return site


def open_panel(page: Any) -> Any:
    sites.wait_ready(page)
    sites.dock(page, "requests")
    page.locator("#requests .sp-all-pool").get_by_text("No request is decoded now").wait_for()
    return page


def request_of(number: int) -> Request:
    config = replace(SpeculationConfig.preset("cosine"), record_top_k=0)
    sampling = SamplingParams(300, ignore_eos=True)
    return Request(PROMPTS[number % len(PROMPTS)], sampling, config)


def test_six_requests_fit_and_the_lesson_shows_the_pool(
    scheduled_site: Served, gate: PassGate, browser_page: OpenPage, axe: Axe
) -> None:
    url, context = scheduled_site
    page = open_panel(browser_page(url, forgiven=sites.LEAVING))
    six_requests_fit(page, context, gate, axe)
    context.model_host.schedule = "each"
    page.goto(f"{url}?__theme=light&lesson=10")
    the_lesson_shows_the_pool(page, context, gate)


def six_requests_fit(page: Any, context: Context, gate: PassGate, axe: Axe) -> None:
    context.model_host.schedule = "shared"
    sources = [context.hub.start(request_of(i), f"visitor-{i}") for i in range(6)]
    page.locator("#requests .sp-all-pool").get_by_text("requests wait in the queue").wait_for()
    page.locator("#requests .sp-lane").first.wait_for()
    gate.closed = True  # no request ends while the page is checked
    for look in in_looks(page, (390, False), (1280, False)):
        sites.shot_in_motion(page, f"requests-{look}")
        assert not sites.overflows(page), look
        if not look.startswith("390"):
            scrolls = "(one) => one.scrollWidth > one.clientWidth"
            assert not page.locator("#requests .sp-scroll").evaluate(scrolls), look
    assert not axe(page, "#requests-box")
    gate.closed = False
    all_end(page, sources)


def all_end(page: Any, sources: Sequence[Any]) -> None:
    for source in sources:
        source.cancel()
    sites.until(page, lambda: all(source.is_done for source in sources))


def the_lesson_shows_the_pool(page: Any, context: Context, gate: PassGate) -> None:
    page.locator("#learn-lesson").get_by_text("10. Sharing one LLM").wait_for()
    page.evaluate(WATCH_PASS)
    page.click("#learn-run")
    sites.until(page, lambda: context.model_host.schedule == "shared")
    gate.closed = True  # no request ends before all four are drawn
    gate.step_until_drawn(page, "#learn-requests tbody tr.sp-own:nth-child(4)")
    desk = sites.desk_of(context, "learn")
    kept = desk.lecture.requests

    def four_are_kept() -> bool:
        views = kept.get(desk.player.source.run_id, {}).values()
        return any(len(view["rows"]) == 4 for view in views)

    gate.step_until(page, four_are_kept)  # `kept` gets at most one view a frame
    gate.closed = False
    page.wait_for_function("() => window.seenInPass")
    sites.shot_in_motion(page, "requests-lesson-1280")
    scrolls = "(one) => one.scrollWidth > one.clientWidth"
    assert not page.locator("#learn-requests .sp-scroll").evaluate(scrolls)
    page.locator("#learn-rows").get_by_text("one budget").wait_for()
    sites.until(page, lambda: context.model_host.schedule == "each")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.locator("#learn-requests .sp-all-pool").get_by_text("The run shown, as it").wait_for()
    views = kept[desk.player.source.run_id]
    full = max(views, key=lambda number: len(views[number]["rows"]))
    page.locator(f"#learn-scrubber [data-r='{full - 1}']").click()
    becomes(page, ROWS_IN_SIGHT, 4)
    page.evaluate(LONG_REASONS)
    assert page.evaluate(ROWS_IN_SIGHT) == 4
    number = min(views)
    page.locator(f"#learn-scrubber [data-r='{number - 1}']").click()
    pool = page.locator("#learn-requests .sp-all-pool")
    pool.get_by_text(f" in its round {number}: ").wait_for()
