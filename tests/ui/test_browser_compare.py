"""The Compare tab in a real Chromium: measured, followed from other tabs, stopped, opened again."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.page.looks import at_rest, turn_to
from core.config import Request
from core.events import Event
from tests.synthetic import HOSTILE_TEXTS
from tests.ui.fakes import endless, scripted
from tests.ui.sites import (
    LEAVING,
    OpenPage,
    appeared,
    in_sight,
    overflows,
    ready,
    said,
    shot,
    until,
    usable,
)
from tests.ui.test_compare import differing

pytestmark = pytest.mark.browser

PICTURES = [f"#compare-{name}" for name in ("progress", "studies", "compared", "ratios")]
PICTURES += [f"#compare-{name}" for name in ("portions", "rounds", "rates", "texts")]


@pytest.fixture
def lab(stage: Any) -> Any:
    """The page with no run and no study; `lab.play(script)` as the stage's own."""
    stage.clear()
    return stage


def compare_tab(page: Any) -> Any:
    turn_to(page, "Compare")
    page.locator("#compare-studies").get_by_text(re.compile("None yet|study")).first.wait_for()
    return appeared(page)


def stands(page: Any, words: str) -> None:
    page.locator("#compare-progress").get_by_text(words).first.wait_for()


def compared(page: Any, tokens: int = 8) -> Any:
    """A comparison to its end, of two presets."""
    compare_tab(page)
    page.locator("#compare-configurations").get_by_label("minions", exact=True).uncheck()
    page.get_by_role("button", name="Sampling").last.click()
    usable(page, page.locator("#compare-max_new_tokens input")).fill(str(tokens))
    page.click("#compare-begin")
    stands(page, "Complete")
    page.locator("#compare-compared").get_by_text("specinfer").first.wait_for()
    at_rest(page)
    return page


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_comparison_to_its_table_charts_and_texts(
    lab: Any, browser_page: OpenPage, axe: Any, width: int, dark: bool
) -> None:
    url, context = lab.play(scripted(8), speed=0.2)
    page = compared(ready(browser_page(url, width=width, dark=dark)))
    table = page.locator("#compare-compared")
    assert table.locator("tbody tr").count() == 3
    table.get_by_text("identical").nth(1).wait_for()  # drawn a frame after the bar
    stands(page, "9 of 9")
    for name in ("ratios", "portions", "rounds", "rates"):
        page.locator(f"#compare-{name} .ss-mini-svg").wait_for()
    page.locator("#compare-texts .ss-text-column").nth(2).wait_for()
    assert page.locator("#compare-texts mark").count() == 0
    assert not overflows(page)
    assert axe(page, *PICTURES) == []
    shot(page, f"compare-{width}-{'dark' if dark else 'light'}")
    page.locator("#compare-rounds").get_by_role("button", name="as a table").click()
    assert "specinfer" in page.locator("#compare-rounds .ss-table").inner_text()
    assert len(context.store.studies.studies()) == 1


def test_charts_are_saved_as_files(lab: Any, browser_page: OpenPage) -> None:
    url, _ = lab.play(scripted(8), speed=0.0)
    page = compared(ready(browser_page(url)))
    for name in ("compared", "ratios", "portions", "texts"):
        for kind in ("SVG", "PNG"):
            with page.expect_download() as download:
                page.locator(f"#compare-{name}").get_by_role("button", name=kind).click()
            assert download.value.suggested_filename == f"specscope-{name}.{kind.lower()}"
            if kind == "SVG":
                drawing = download.value.path().read_text(encoding="utf-8")
                told = " ".join(re.sub("<[^>]+>", " ", drawing).split())
                caption = page.locator(f"#compare-{name} .ss-words").text_content()
                assert caption and " ".join(caption.split()) in told, name


def test_a_name_opens_its_run_in_sessions_and_settings_in_live(
    lab: Any, browser_page: OpenPage
) -> None:
    url, context = lab.play(scripted(8), speed=0.0)
    page = compared(ready(browser_page(url)))
    page.locator("#compare-compared").get_by_role("button", name="specinfer", exact=True).click()
    said(page, "Finished: ", "sessions")
    said(page, "Made with specinfer", "sessions")
    page.locator("#sessions-about").get_by_text("It was made for a comparison: ").wait_for()
    page.click("#sessions-study")
    page.locator("#compare-progress").get_by_text("Complete").first.wait_for()
    page.locator("#compare-compared").get_by_role("button", name="Open sequence in Live").click()
    said(page, "These settings are in the form now")
    until(page, lambda: page.locator("#preset input").input_value() == "sequence")
    (study,) = context.store.studies.studies()
    context.store.studies.delete(study.study_id)
    turn_to(page, "Sessions")
    page.click("#sessions-study")
    page.locator("#sessions-about").get_by_text("was deleted").wait_for()
    page.locator("#sessions-study").wait_for(state="hidden")


def test_the_form_is_in_sight_after_open_in_live(lab: Any, browser_page: OpenPage) -> None:
    """On a narrow page the table lies thousands of pixels down."""
    url, _ = lab.play(scripted(8), speed=0.0)
    page = compared(ready(browser_page(url, width=390)))
    take = page.get_by_role("button", name="Open specinfer in Live")
    take.scroll_into_view_if_needed()
    assert page.evaluate("() => scrollY") > 300
    take.click()
    said(page, "These settings are in the form now")
    in_sight(page, "#prompt textarea", "#live-run")


def test_differing_texts_are_marked_where_they_part(lab: Any, browser_page: OpenPage) -> None:
    url, _ = lab.play(differing(0.5), speed=0.0)
    page = compared(ready(browser_page(url)))
    page.locator("#compare-compared").get_by_text("differs: a bug").first.wait_for()
    page.locator("#compare-compared").get_by_text("Differs at token 4: a bug").first.wait_for()
    page.locator("#compare-texts mark").nth(1).wait_for()
    shot(page, "compare-differs")


def test_a_second_tab_follows_stops_and_goes_on(lab: Any, browser_page: OpenPage) -> None:
    url, context = lab.play(endless, speed=5.0)
    one = compare_tab(ready(browser_page(url)))
    one.click("#compare-begin")
    stands(one, "Running")
    two = compare_tab(ready(browser_page(url)))
    stands(two, "Now: plain decoding")
    shot(two, "compare-running")
    two.locator("#compare-progress").get_by_role("button", name="Stop").click()
    stands(two, "Stopped")
    stands(one, "Stopped")
    until(one, lambda: not context.conductor.progress().live)
    lab.worker.cast(scripted(8), speed=0.0)
    one.locator("#compare-progress").get_by_role("button", name="Go on").click()
    stands(one, "Complete")
    stands(two, "Complete")  # at rest it asks seldom, but it asks
    rows = two.locator("#compare-compared tbody tr")
    rows.nth(3).wait_for()  # drawn a frame after the bar
    assert rows.count() == 4


def test_a_reload_finds_what_is_measured(lab: Any, browser_page: OpenPage) -> None:
    url, _ = lab.play(endless, speed=5.0)
    page = compare_tab(ready(browser_page(url, forgiven=LEAVING)))
    page.click("#compare-begin")
    stands(page, "Running")
    page.reload()  # the address names the tab
    stands(page, "Running")
    page.locator("#compare-progress").get_by_role("button", name="Stop").click()
    stands(page, "Stopped")


def test_a_live_run_goes_first(lab: Any, browser_page: OpenPage) -> None:
    def script(request: Request, run_id: str) -> list[Event]:
        """Live's run takes seconds, a study's none."""
        lives = request.sampling.max_new_tokens > 100
        return scripted(150 if lives else 8)(request, run_id)

    url, context = lab.play(script, speed=2.0)
    page = compare_tab(ready(browser_page(url)))
    page.locator("#compare-repeats input").fill("50")
    page.click("#compare-begin")
    stands(page, "Running")
    other = ready(browser_page(url))
    other.click("#live-run")
    stands(page, "a visitor's run goes first")
    said(other, "Finished: ")
    stands(page, "Running")
    assert context.conductor.progress().live


def test_hostile_prompts_and_texts_stay_text(lab: Any, browser_page: OpenPage) -> None:
    url, _ = lab.play(scripted(8, hostile=True), speed=0.0)
    page = ready(browser_page(url))
    compare_tab(page).fill("#compare-prompt textarea", "\n".join(HOSTILE_TEXTS)[:2000])
    compared(page)
    page.locator("#compare-studies tbody tr").first.wait_for()
    for where in PICTURES:
        assert page.locator(f"{where} :is(img, script, iframe)").count() == 0
    assert not overflows(page)


def test_past_comparisons_open_and_are_deleted(lab: Any, browser_page: OpenPage) -> None:
    url, context = lab.play(scripted(8), speed=0.0)
    page = compared(ready(browser_page(url)))
    page.fill("#compare-prompt textarea", "Another prompt")
    page.click("#compare-begin")
    listed = page.locator("#compare-studies")
    listed.get_by_text("Another prompt").wait_for()
    stands(page, "Another prompt")  # what stood there until then is complete too
    stands(page, "Complete")
    listed.get_by_role("button", name=re.compile("^Open .*Italian")).click()
    page.locator("#compare-progress").get_by_text("Italian").wait_for()
    listed.get_by_role("button", name=re.compile("^Delete .*Italian")).click()
    listed.get_by_role("button", name=re.compile("^Yes, delete .*Italian")).click()
    page.locator("#compare-progress").get_by_text("No comparison yet").wait_for()
    assert len(context.store.studies.studies()) == 1
    page.click("#compare-begin")
    stands(page, "Complete")


def test_a_refused_form_says_why(lab: Any, browser_page: OpenPage) -> None:
    url, _ = lab.play(scripted(8), speed=0.0)
    page = compare_tab(ready(browser_page(url)))
    for name in ("sequence", "specinfer", "minions"):
        page.locator("#compare-configurations").get_by_label(name, exact=True).uncheck()
    page.click("#compare-begin")
    stands(page, "configurations is 0: 1 to 5")
