"""Where room is short, many models or large type on a notebook: nothing is cut, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.page.looks import at_rest, cut_texts, large_type, overflow, tabs, turn_to
from core.events import ModelInfo
from tests.ui.fakes import FakeWorker, scripted
from tests.ui.sites import OpenPage, Stage, hosted, ready, text_box, usable
from ui.context import Context

pytestmark = pytest.mark.browser

KINDS = ("ssm-code", "ssm-dialogue", "ssm-stories")


@contextmanager
def drafting(folder: Path, count: int, llm: str = "llm") -> Iterator[str]:
    """The page before an LLM and `count` SSMs; its address."""
    names = [KINDS[i % 3] + (f"-{i // 3 + 1}" if i > 2 else "") for i in range(count)]
    infos = [ModelInfo(llm, "llm", 7_475_456, "None", 64, 64, "float32", "cpu")]
    infos += [ModelInfo(name, "ssm", 926_336, "None", 64, 64, "float32", "cpu") for name in names]
    worker = FakeWorker(scripted(6), 0.0)
    models = SimpleNamespace(infos=tuple(infos), drafter_names=tuple(names))
    worker.engine = SimpleNamespace(models=models)
    with hosted(folder, worker) as (url, _):
        yield url


# Of each chip in sight its words, and whether its name is cut; the header's height in lines.
CHIPS = """() => [...document.querySelectorAll(".sp-chip")].filter((chip) => chip.offsetParent)
  .map((chip) => { const name = chip.querySelector(".sp-name");
    const box = chip.getBoundingClientRect(), line = chip.parentElement.getBoundingClientRect();
    return { words: chip.innerText.replace(/\\s+/g, " "), top: Math.round(box.top + box.height / 2),
      cut: !!name && name.scrollWidth > name.clientWidth || box.right > line.right + 1 }; })"""


def chips_fit(page: Any, count: int) -> list[str]:
    """The chips' words: the LLM first, then SSMs, then how many more there are."""
    chips = page.evaluate(CHIPS)
    words = [chip["words"] for chip in chips]
    assert not any(chip["cut"] for chip in chips), words
    assert max(c["top"] for c in chips) - min(c["top"] for c in chips) <= 2, "one line"
    assert words[0].startswith("LLM llm")
    hidden = int(words[-1][1:]) if words[-1].startswith("+") else 0
    assert len(words) - 1 - bool(hidden) + hidden == count, words
    return words


@pytest.mark.parametrize("count", [4, 6, 16])
def test_of_many_models_those_are_shown_that_stand_whole(
    tmp_path: Path, browser_page: OpenPage, count: int
) -> None:
    with drafting(tmp_path, count) as url:
        page = ready(browser_page(url))
        for width, least in ((1280, 4), (390, 1), (1920, 4)):
            page.set_viewport_size({"width": width, "height": 900})
            for large in (False, True):
                large_type(page, large)
                at_rest(page)
                words = chips_fit(page, count)
                assert len(words) >= 1 + least - large, (width, words)
                assert overflow(page) <= 0, (width, words)
            large_type(page, False)


def test_the_names_of_the_others_are_told_to_who_asks(
    tmp_path: Path, browser_page: OpenPage
) -> None:
    with drafting(tmp_path, 6) as url:
        page = ready(browser_page(url, width=390))
        rest = page.locator(".sp-rest")
        page.locator(".sp-rest", has_text="+5").wait_for()  # fitted again as fonts come
        rest.focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        told = rest.evaluate("(one) => getComputedStyle(one, '::after').content")
        assert told.count("SSM ") == int(rest.inner_text()[1:]) == 5
        place = rest.evaluate("(one) => getComputedStyle(one).position")
        assert place == "static", "told under the whole line, not beside the page"
        assert "SSM F ssm-stories-2" in told and rest.get_attribute("aria-label") in told
        assert overflow(page) <= 0


def test_a_name_wider_than_the_page_ends_in_an_ellipsis(
    tmp_path: Path, browser_page: OpenPage
) -> None:
    with drafting(tmp_path, 2, llm="some-owner/" + "a-very-long-name-" * 4) as url:
        page = ready(browser_page(url, width=390))
        page.locator(".sp-rest", has_text="+2").wait_for()
        assert overflow(page) <= 0


# Every style that large type sets, where another rule is the stronger one.
OVERRULED = """() => {
  const rules = (list) => [...list].flatMap((rule) => {
    if (rule instanceof CSSStyleRule) return [rule];
    const holds = rule.cssRules && (!rule.media || matchMedia(rule.media.mediaText).matches);
    return holds ? rules(rule.cssRules) : [];
  });
  const large = [...document.styleSheets].flatMap((sheet) => rules(sheet.cssRules))
    .filter((rule) => /^(html)?\\.ss-large/.test(rule.selectorText));
  const found = new Set();
  let count = 0;
  for (const { selectorText, style } of large) {
    for (const node of document.querySelectorAll(selectorText)) {
      for (const name of [...style].filter((name) => !name.startsWith("--"))) {
        const now = () => getComputedStyle(node).getPropertyValue(name);
        const [before, own] = [now(), node.style.getPropertyValue(name)];
        node.style.setProperty(name, style.getPropertyValue(name), "important");
        const meant = now();
        node.style.setProperty(name, own);
        count += 1;
        if (before !== meant) found.add(`${selectorText} ${name}: ${before}, not ${meant}`);
      }
    }
  }
  return [count, [...found]];
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_what_large_type_sets_is_what_is_seen(
    short: tuple[str, Context], browser_page: OpenPage, width: int
) -> None:
    page = ready(browser_page(short[0], width=width))
    large_type(page, True)
    for name in tabs(page):
        turn_to(page, name)
        page.wait_for_timeout(400)
    count, overruled = page.evaluate(OVERRULED)
    assert count > 100 and overruled == []
    page.locator("#models-need").wait_for()
    assert [told for told in cut_texts(page) if "models-" in told] == []


WIDE = "(box) => box.scrollWidth - box.clientWidth"


def test_large_tables_fit_on_a_notebook(stage: Stage, browser_page: OpenPage) -> None:
    stage.clear()
    stage.play(scripted(6), speed=0.0)
    page = ready(browser_page(stage.url))
    large_type(page, True)
    turn_to(page, "Compare")
    page.click("#compare-begin")
    page.locator("#compare-progress").get_by_text("Complete").wait_for()
    table = page.locator(".ss-compared-scroll")
    table.get_by_text(" to ").first.wait_for()
    at_rest(page)
    assert table.evaluate(WIDE) <= 0
    turn_to(page, "Prompts")
    page.locator("#prompts-source").get_by_text("typed").click()
    usable(page, text_box(page, "prompts-typed")).fill(
        "Once upon a time\nUser: I want to book a table"
    )
    page.click("#prompts-measure")
    page.locator("#prompts-progress").get_by_text("Complete").wait_for()
    table = page.locator(".ss-prompts-box")
    for settings in ("specinfer", ""):
        page.locator("#prompts-table").get_by_label("Settings", exact=True).select_option(settings)
        at_rest(page)
        assert table.evaluate(WIDE) <= 0, settings
    assert cut_texts(page) == []


# A bar that, of another width by now, moves a tab to the menu while it is being pressed.
MOVING = """data:text/html,<div id="tabs"><button role="tab">Live</button>
<button role="tab" id="bar" disabled>Sessions</button>
<button aria-label="More tabs" hidden onclick="menu.hidden = !menu.hidden">...</button>
<div class="overflow-dropdown" id="menu" hidden><button onclick="document.title = 'opened'">
Sessions</button></div></div><script>var narrower = () => setTimeout(() => { bar.remove();
document.querySelector('[aria-label]').hidden = false }, 700)</script>"""


def test_a_tab_that_moves_as_it_is_pressed_is_opened_where_it_went(
    browser_page: OpenPage,
) -> None:
    page = browser_page(MOVING.replace("\n", " "))
    page.evaluate("narrower()")
    turn_to(page, "Sessions")
    assert page.title() == "opened"
