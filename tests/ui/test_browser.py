"""The page in a real Chromium: what a visitor does and sees.

Every test also fails if the page logs an error or asks another host for anything (conftest).
Screenshots go to artifacts/, which git ignores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage import RunQuery, RunStore
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.fakes import FakeWorker, recorded, scripted
from tests.ui.serving import served
from tests.ui.watched import open_watched
from ui.context import Context, make_context
from ui.page import build_page
from ui.pages.form import EXAMPLES
from ui.view import reduce_all
from ui.visitors import Access

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
OpenPage = Callable[..., Any]


@contextmanager
def site(folder: Path, script: Any, **options: Any) -> Iterator[tuple[str, Context]]:
    """A server with a fake worker and a real store."""
    with RunStore(folder / "runs.db") as store:
        worker = FakeWorker(script, **options)
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
        with served(build_page(context)) as url:
            yield url, context
            worker.close()


@pytest.fixture
def short(tmp_path: Path) -> Iterator[tuple[str, Context]]:
    with site(tmp_path, recorded(8)) as made:
        yield made


@pytest.fixture
def long(tmp_path: Path) -> Iterator[tuple[str, Context]]:
    with site(tmp_path, recorded(400)) as made:
        yield made


def said(page: Any, words: str | re.Pattern[str], where: str = "live") -> None:
    """Wait until the notice says it."""
    page.locator(f"#{where}-notice").get_by_text(words).first.wait_for()


def ready(page: Any) -> Any:
    said(page, "Press Run")
    page.locator("#live-strip .ss-panel, #live-strip .ss-shell > *").first.wait_for()
    return page


def strip_text(page: Any, where: str = "live") -> str:
    return str(page.locator(f"#{where}-strip").inner_text())


def shot(page: Any, name: str) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)


def sessions(page: Any) -> None:
    page.get_by_role("tab", name="Sessions").click()
    page.locator("#sessions-said").get_by_text(re.compile(r"\d+ runs?, page")).wait_for()


def test_a_run_from_the_first_example_to_pictures_and_into_sessions(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = ready(browser_page(url))
    page.click("#example-story")
    page.click("#live-run")
    said(page, "Finished: ")
    view = reduce_all(synthetic_run(8))
    for picture in ("tree", "proposals", "inspector", "lengths", "timeline", "legend", "figures"):
        assert page.locator(f"#live-{picture}").inner_text().strip(), picture
    page.locator("#live-lengths .js-plotly-plot").first.wait_for()
    page.locator("#live-timeline .js-plotly-plot").first.wait_for()
    assert str(len(view.tokens)) in page.locator("#live-figures").inner_text()
    shot(page, "run-1280-light")
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    assert EXAMPLES[0][1][:20] in page.locator("#sessions-runs").inner_text()
    assert context.store.runs(RunQuery()).total == 1


def test_replay_shows_the_same_pictures_round_by_round(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.click("#live-run")
    said(page, "Finished: ")
    figures = page.locator("#live-figures").inner_text()
    live_text = strip_text(page)
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    page.locator("#sessions-figures").get_by_text("tokens").first.wait_for()
    assert page.locator("#sessions-figures").inner_text() == figures
    assert strip_text(page, "sessions") == live_text
    scrub = page.locator("#sessions-scrub input[type=range]")
    scrub.focus()
    page.keyboard.press("Home")
    said(page, "you are at round 0 of 8", "sessions")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    said(page, "you are at round 3 of 8", "sessions")
    assert len(strip_text(page, "sessions")) < len(live_text)
    page.click("#sessions-rewind")
    said(page, "Engine finished, you are at round", "sessions")
    said(page, "Finished: ", "sessions")


def test_stop_keeps_what_was_written(long: tuple[str, Context], browser_page: OpenPage) -> None:
    url, context = long
    page = ready(browser_page(url))
    page.click("#live-run")
    said(page, "Writing: ")
    page.click("#live-stop")
    said(page, "Stopped: ")
    written = strip_text(page)
    assert context.hub.worker.runs[0].cancelled  # type: ignore[attr-defined]
    page.click("#live-run")
    said(page, "Writing: ")
    assert written
    page.click("#live-stop")
    said(page, "Stopped: ")


def test_two_visitors_at_once_see_each_their_own_run(
    tmp_path: Path, browser_page: OpenPage
) -> None:
    with site(tmp_path, recorded(60), max_live=1, speed=4.0) as (url, context):
        one, two = ready(browser_page(url)), ready(browser_page(url))
        one.fill("#prompt textarea", "The first visitor")
        two.fill("#prompt textarea", "The second visitor")
        one.click("#live-run")
        said(one, "Writing: ")
        two.click("#live-run")
        said(two, "In the queue: 1st in line.")
        said(one, "Finished: ")
        said(two, "Finished: ")
        assert "The first visitor" in strip_text(one) and "second" not in strip_text(one)
        assert "The second visitor" in strip_text(two)
        prompts = {row.prompt for row in context.store.runs(RunQuery()).rows}
        assert prompts == {"The first visitor", "The second visitor"}


def test_hostile_text_is_text(tmp_path: Path, browser_page: OpenPage) -> None:
    nasty = " ".join(HOSTILE_TEXTS) + "y" * 10_000
    with site(tmp_path, scripted(10, hostile=True)) as (url, context):
        page = ready(browser_page(url))
        page.fill("#prompt textarea", nasty.replace("\r", "").replace("\x00", ""))
        page.click("#live-run")
        said(page, "Finished: ")
        shot(page, "hostile-live")
        for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft"):
            page.locator("body").press(key)
        sessions(page)
        page.locator(".sp-open").first.click()
        said(page, "Finished: ", "sessions")
        shot(page, "hostile-sessions")
        assert page.evaluate("() => globalThis.pwned") is None
        assert page.locator("img[src='x']").count() == 0
        assert not overflows(page)
        assert context.store.runs(RunQuery()).total == 1


def overflows(page: Any) -> bool:
    """Whether the page can be scrolled sideways."""
    script = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"
    return bool(page.evaluate(script))


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, True), (1920, False), (1920, True), (390, False), (390, True)]
)
def test_every_width_in_light_and_dark(
    short: tuple[str, Context], browser_page: OpenPage, width: int, dark: bool
) -> None:
    page = ready(browser_page(short[0], width=width, height=900, dark=dark))
    page.click("#live-run")
    said(page, "Finished: ")
    page.locator("#live-timeline .js-plotly-plot").first.wait_for()
    assert not overflows(page)
    name = f"{width}-{'dark' if dark else 'light'}"
    shot(page, f"run-{name}")
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", background)[0])
    assert (red < 80) == dark
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    assert not overflows(page)
    shot(page, f"sessions-{name}")


def test_the_keyboard_runs_steps_and_selects(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.locator("#live-speed, #live-playback").get_by_text("step", exact=True).click()
    page.locator("h1").click()
    page.keyboard.press("r")
    said(page, "Engine finished, you are at round 0 of 8")
    for stage in ("drafted", "combined", "verified"):
        page.keyboard.press(".")
        said(page, f"you are at round 1 of 8, {stage}.")
    shot(page, "step-verified")
    page.keyboard.press(".")
    said(page, "you are at round 1 of 8.")
    page.keyboard.press(",")
    said(page, "you are at round 1 of 8, verified.")
    for _ in range(6):
        page.keyboard.press(".")
    said(page, "you are at round 3 of 8, drafted.")
    page.keyboard.press("ArrowLeft")
    page.locator("#live-tree").get_by_text("Round 2").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator("#live-tree").get_by_text("Round 3").wait_for()
    page.keyboard.press("s")
    page.fill("#prompt textarea", "r s . ,")
    assert page.input_value("#prompt textarea") == "r s . ,", "keys are letters where one types"


def test_slow_motion_says_where_it_is_and_play_goes_on(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.locator("#live-playback").get_by_text("slow motion").click()
    page.click("#live-run")
    said(page, re.compile(r"Engine finished, you are at round [1-7] of 8"))
    page.click("#live-step")
    page.wait_for_timeout(500)  # the click has arrived
    stepped = page.locator("#live-notice .sp-shell").inner_text()
    page.wait_for_timeout(700)  # in slow motion another round would have come by now
    assert page.locator("#live-notice .sp-shell").inner_text() == stepped
    page.locator("#live-playback").get_by_text("full speed").click()
    said(page, "Finished: ")


def test_a_click_selects_the_round_everywhere(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.click("#live-run")
    said(page, "Finished: ")
    page.locator("#live-strip [data-round='2'], #live-strip [data-r='2']").first.click()
    page.locator("#live-tree").get_by_text("Round 3").wait_for()
    page.locator("#live-proposals").get_by_text("Round 3").wait_for()
    page.click("#live-follow")
    page.locator("#live-tree").get_by_text("Round 8").wait_for()


# What Gradio's own script says when a page with an open stream is left.
LEAVING = (
    "AbortError",
    "Connection errored out",
    "ERR_INCOMPLETE_CHUNKED",
    "network error",
    "Unexpected client exception",
)


def test_a_reload_while_it_writes_breaks_nothing(long: tuple[str, Context], chromium: Any) -> None:
    url, context = long
    page, watch = open_watched(chromium, url)
    ready(page).click("#live-run")
    said(page, "Writing: ")
    page.reload()
    ready(page)
    sessions(page)
    page.click("#sessions-refresh")
    page.locator("#sessions-runs").get_by_text("cancelled").wait_for()
    assert context.hub.worker.runs[0].cancelled  # type: ignore[attr-defined]
    page.context.close()
    assert not [x for x in watch.problems if not any(known in x for known in LEAVING)]


def test_bad_settings_grey_run_and_say_why(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("Every setting of the engine").click()
    page.locator("#field-expansion input, #field-expansion textarea").first.fill("1,zwei")
    page.locator("#live-validity").get_by_text("expansion is '1,zwei'").wait_for()
    page.wait_for_function("() => document.querySelector('#live-run').disabled")
    page.locator("#field-expansion input, #field-expansion textarea").first.fill("1,2")
    page.wait_for_function("() => !document.querySelector('#live-run').disabled")
    page.fill("#prompt textarea", "   ")
    page.click("#live-run")
    said(page, "prompt is '   '")
    shot(page, "bad-input")


def test_measure_and_prove_answer_on_the_page(tmp_path: Path, browser_page: OpenPage) -> None:
    with site(tmp_path, scripted(8)) as (url, _):
        page = ready(browser_page(url))
        page.click("#live-prove")
        said(page, "not finished")
        page.click("#live-run")
        said(page, "Finished: ")
        page.click("#live-measure")
        page.locator("#live-figures").get_by_text("measured now").wait_for()
        page.click("#live-prove")
        said(page, "Identical: plain decoding with the same seed writes the same")


def test_a_run_is_deleted_only_when_asked_twice(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = ready(browser_page(url))
    page.click("#live-run")
    said(page, "Finished: ")
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    page.click("#sessions-delete")
    assert context.store.runs(RunQuery()).total == 1
    page.click("#sessions-sure")
    page.locator("#sessions-runs").get_by_text("No run yet").wait_for()
    assert context.store.runs(RunQuery()).total == 0


@pytest.mark.parametrize("dark", [False, True])
def test_our_own_parts_are_accessible(
    short: tuple[str, Context], browser_page: OpenPage, axe: Any, dark: bool
) -> None:
    page = ready(browser_page(short[0], dark=dark))
    page.click("#live-run")
    said(page, "Finished: ")
    for part in ("#header", "#live-notice", ".sp-keys", "#live-playback"):
        assert axe(page, part) == []
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    for part in ("#sessions-runs", "#sessions-said"):
        assert axe(page, part) == []


def test_large_type_is_kept(short: tuple[str, Context], browser_page: OpenPage) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_role("button", name="Large type").click()
    assert page.evaluate("() => document.documentElement.classList.contains('ss-large')")
    page.goto(short[0])
    ready(page)
    assert page.evaluate("() => document.documentElement.classList.contains('ss-large')")
    pressed = page.get_by_role("button", name="Large type").get_attribute("aria-pressed")
    assert pressed == "true"
    assert not overflows(page)


def test_own_presets_stay_in_the_browser(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("Every setting of the engine").click()
    page.locator("#field-expansion input, #field-expansion textarea").first.fill("2,2")
    page.get_by_text("A preset of your own").click()
    page.locator("#own-name input, #own-name textarea").first.fill("wide")
    page.click("#own-save")
    page.locator("#live-validity").get_by_text("Saved in this browser as wide.").wait_for()
    page.goto(short[0])
    ready(page)
    page.locator("#preset input").click()
    page.get_by_role("option", name="wide").click()
    page.click("#live-run")
    said(page, "Finished: ")
    asked = short[1].hub.worker.requests[-1]  # type: ignore[attr-defined]
    assert asked.speculation.expansion == (2, 2)
