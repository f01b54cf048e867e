"""Fixtures for tests of the page in a real Chromium.

Without a Chromium the tests are skipped, or fail with REQUIRE_BROWSER=1.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from httpx._transports import default as transports

from bench.page.browser import Tab, Tabs
from bench.page.site import free_port

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


# By default Gradio sums up all its events with pandas after each event.
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "1000000000")
# Warnings of pandas, which Gradio's queue uses in a background task to count events.
GRADIOS_PANDAS = ("ignore:.future.no_silent_downcasting.", "ignore:The copy keyword is deprecated")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(*GRADIOS_PANDAS))


def _missing(reason: str) -> None:
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"REQUIRE_BROWSER=1, and {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def _pages_may_take_their_time() -> Iterator[None]:
    """At launch Gradio waits only three seconds for the page, too short on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradio.networking.url_ok", lambda url: True)
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Each HTTP client of Gradio reads all certificates, which takes a tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transports, "create_ssl_context", cache(transports.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _events_lag() -> Iterator[None]:
    """Delays a page's events by BROWSER_LAG_MS, which exposes tests that read too early."""
    lag_s = float(os.environ.get("BROWSER_LAG_MS", 0)) / 1000.0
    if not lag_s:
        yield
        return
    from gradio.blocks import Blocks

    process_api = Blocks.process_api

    async def lagging(*arguments: Any, **options: Any) -> Any:
        if options.get("iterator") is None:
            await asyncio.sleep(lag_s)
        return await process_api(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blocks, "process_api", lagging)
        yield


@pytest.fixture(scope="session", autouse=True)
def _loops_are_closed() -> Iterator[None]:
    """Gradio never closes the event loops of its locks.

    A garbage-collected open loop causes a ResourceWarning, which fails the running test.
    """
    made: list[asyncio.AbstractEventLoop] = []
    new_event_loop = asyncio.new_event_loop

    def remember() -> asyncio.AbstractEventLoop:
        made.append(new_event_loop())
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "new_event_loop", remember)
        yield
    for loop in made:
        if not loop.is_running() and not loop.is_closed():
            loop.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        _missing("playwright is not installed (requirements-dev.txt)")
    result = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=result, args=["--no-sandbox"])
        except Error as error:
            _missing(f"no Chromium starts here: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tabs(chromium: Any) -> Tabs:
    return Tabs(chromium)


# Counts the page's unanswered requests in `specscopeAsks`. Without the count, a page that defers a
# change until an answer would look settled. Tabs are reused: the script may run twice on a page.
COUNT_ASKS = """(() => {
  if ("specscopeAsks" in window) return;
  const usual = window.fetch;
  window.specscopeAsks = 0;
  window.fetch = (...given) => {
    const answer = usual(...given);
    if (!String(given[0]?.url ?? given[0]).includes("/run/predict")) return answer;
    window.specscopeAsks += 1;
    return answer.finally(() => { window.specscopeAsks -= 1; });
  };
})()"""


@pytest.fixture
def browser_page(tabs: Tabs) -> Iterator[Callable[..., Any]]:
    """`browser_page(url, forgiven=(), **options)` opens a page. A problem of the page fails the
    test, unless the problem contains a text in `forgiven`."""
    opened: list[tuple[Tab, tuple[str, ...]]] = []

    def open_page(url: str, forgiven: tuple[str, ...] = (), **options: Any) -> Any:
        opened.append((tabs.take(), forgiven))
        opened[-1][0].page.add_init_script(COUNT_ASKS)
        return opened[-1][0].visit(url, **options)

    yield open_page
    problems = [
        problem
        for tab, forgiven in reversed(opened)
        for problem in tabs.give_back(tab)
        if not any(known in problem for known in forgiven)
    ]
    assert not problems, "\n".join(problems)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    served: list[Any] = []

    def start(demo: Any, **arguments: Any) -> str:
        here = {"server_name": "127.0.0.1", "server_port": free_port()}
        options = {"prevent_thread_lock": True, "quiet": True, **here}
        _, url, _ = demo.launch(**{**options, **arguments})
        served.append(demo)
        return str(url)

    yield start
    for demo in served:
        demo.close()


AXE_RUN = """async (selectors) => {
  for (const one of selectors) if (!document.querySelector(one)) throw new Error(`no ${one}`);
  const { violations } = await axe.run(selectors, { resultTypes: ["violations"] });
  return violations.flatMap(({ id, impact, nodes }) =>
    nodes.map((node) => [impact, `${id}: ${node.html} ${node.failureSummary}`]));
}"""


@pytest.fixture
def axe() -> Callable[..., list[str]]:
    """`axe(page, *selectors)`: axe-core's serious and critical violations."""
    try:
        script = files("axe_playwright_python") / "axe.min.js"
    except ModuleNotFoundError:
        _missing("axe-playwright-python is not installed (requirements-dev.txt)")
    source = script.read_text(encoding="utf-8")

    def check(page: Any, *selectors: str) -> list[str]:
        if not page.evaluate("() => 'axe' in window"):
            page.evaluate(source)
        result = page.evaluate(AXE_RUN, selectors)
        return [text for impact, text in result if impact in ("serious", "critical")]

    return check


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    from storage import RunStore
    from tests.logs import log_at

    with RunStore(log_at(tmp_path / "runs.db")) as made:
        yield made


@pytest.fixture
def context(store: Any) -> Iterator[Any]:
    from tests.ui.boards import context

    made = context(store)
    made.hub.worker.slowdown = 0.0
    yield made
    made.conductor.close()
    made.hub.worker.clear()


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Any]:
    """`stages(tabs)`: the page with these tabs and a fake worker."""
    from tests.ui.sites import Stage, open_stage

    with ExitStack() as servers:

        @cache
        def stage_of(tabs: tuple[str, ...]) -> Stage:
            return servers.enter_context(open_stage(tmp_path_factory.mktemp("stage"), tabs))

        yield stage_of


@pytest.fixture
def stage(request: pytest.FixtureRequest, stages: Any) -> Any:
    """The page with the tabs in TABS of the test's file (default: all)."""
    return stages(tuple(getattr(request.module, "TABS", ())))


@pytest.fixture
def site(stage: Any) -> Callable[..., Any]:
    """`site(script, slowdown=1.0, max_live=4)`: address and context, with an empty log."""
    stage.clear()
    return stage.play


@pytest.fixture
def short(site: Callable[..., Any]) -> Any:
    from tests.ui.fakes import recorded

    return site(recorded(8))


@pytest.fixture
def long(site: Callable[..., Any]) -> Any:
    """Like `short`, with a run of minutes."""
    from tests.ui.fakes import recorded

    return site(recorded(400), slowdown=20.0)


@pytest.fixture(scope="module")
def real(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    chromium: Any,
    bundled: Any,
) -> Iterator[Any]:
    """A page over the bundled models, with the tabs in TABS of the test's file (default: all)."""
    from core import Engine
    from core.engine.worker import Worker
    from tests.ui.sites import serve_page

    worker = Worker(Engine(bundled.models))
    tabs = tuple(getattr(request.module, "TABS", ()))
    with serve_page(tmp_path_factory.mktemp("real"), worker, tabs) as made:
        yield made
