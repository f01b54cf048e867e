"""The gallery, served once for the browser tests of the pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from bench.page.looks import at_rest
from tests.ui.components.gallery import build
from tests.ui.watched import Tab, Tabs, free_port
from ui.components import launch_options


@pytest.fixture(scope="session")
def gallery_url(chromium: Any) -> Iterator[str]:
    """Address of the gallery; without a browser it is not even started."""
    demo = build(play_delay=0.05)
    here = {"server_name": "127.0.0.1", "server_port": free_port()}
    options = {"prevent_thread_lock": True, "quiet": True, "run_history": False}
    _, url, _ = demo.launch(**options, **here, **launch_options())
    yield str(url)
    demo.close()


@dataclass
class CommonPage:
    """One page for all tests that leave nothing behind; a visit anew for those that do."""

    tab: Tab
    url: str
    shown: dict[str, Any] | None = None

    def show(self, fresh: bool, **options: Any) -> Any:
        if fresh or options != self.shown:
            self.tab.leave()
            self.tab.visit(self.url, **options)
            self.shown = None if fresh else options
        self.tab.page.set_viewport_size({"width": 1280, "height": 900})
        return self.tab.page


@pytest.fixture(scope="session")
def common_page(tabs: Tabs, gallery_url: str) -> CommonPage:
    return CommonPage(tabs.take(), gallery_url)


@pytest.fixture
def show(common_page: CommonPage) -> Iterator[Callable[..., Any]]:
    """`show("verify")` gives the common page on one of the gallery's scenes, drawn.

    With fresh=True it is loaded anew, and once more after the test, which may do what it likes;
    without, a test may change the window's size. `dark` and `still` are those of `browser_page`.
    """
    common_page.tab.watch.problems.clear()

    def open_scene(scene: str, fresh: bool = False, dark: bool = False, still: bool = False) -> Any:
        page = common_page.show(fresh, dark=dark, still=still)
        page.wait_for_selector("#picture-timeline .ss-panel")
        turn(page, scene)
        return page

    yield open_scene
    assert not common_page.tab.watch.problems, "\n".join(common_page.tab.watch.problems)


DRAWN = """(scene) => document.querySelector("#now textarea").value === scene
  && document.querySelectorAll(".ss-shell[data-mounted]").length === 8
  && !document.querySelector(".ss-shell[data-pending]")"""


def turn(page: Any, scene: str) -> None:
    """Another scene on the same page; returns when it has been drawn."""
    page.click(f"#scene-{scene}")
    page.wait_for_function(DRAWN, arg=scene)
    at_rest(page)  # also where the scene stood there already, in another window
