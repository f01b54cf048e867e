"""The gallery, served once for the browser tests of the pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.ui.components.gallery import build
from tests.ui.watched import Watch, free_port, open_watched
from ui.components import launch_options


@pytest.fixture(scope="session")
def gallery_url(chromium: Any) -> Iterator[str]:
    """Address of the gallery; without a browser it is not even started."""
    demo = build(play_delay=0.05)
    here = {"server_name": "127.0.0.1", "server_port": free_port()}
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **here, **launch_options())
    yield str(url)
    demo.close()


@pytest.fixture(scope="session")
def common_page(chromium: Any, gallery_url: str) -> Iterator[tuple[Any, Watch]]:
    """One page for all tests that leave nothing behind: loading one takes seconds."""
    page, watch = open_watched(chromium, gallery_url)
    yield page, watch
    page.context.close()


@pytest.fixture
def show(request: pytest.FixtureRequest, gallery_url: str) -> Iterator[Callable[..., Any]]:
    """`show("verify")` gives the common page on one of the gallery's scenes, drawn.

    With options of `browser_page`, or fresh=True, a page of its own.
    """
    shared: list[Watch] = []

    def open_scene(scene: str, fresh: bool = False, **options: Any) -> Any:
        if fresh or options:
            page = request.getfixturevalue("browser_page")(gallery_url, **options)
        else:
            page, watch = request.getfixturevalue("common_page")
            shared.append(watch)
        page.wait_for_selector("#picture-timeline .ss-panel")
        turn(page, scene)
        return page

    yield open_scene
    problems = [problem for watch in shared for problem in watch.problems]
    assert not problems, "\n".join(problems)


DRAWN = """(scene) => document.querySelector("#now textarea").value === scene
  && document.querySelectorAll(".ss-shell[data-mounted]").length === 8
  && !document.querySelector(".ss-shell[data-pending]")"""


def turn(page: Any, scene: str) -> None:
    """Another scene on the same page; returns when it has been drawn."""
    page.click(f"#scene-{scene}")
    page.wait_for_function(DRAWN, arg=scene)
