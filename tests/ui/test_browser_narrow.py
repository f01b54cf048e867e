"""The page with many models, and in large type, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
import pytest

from bench.page.site import serve
from core.events import ModelInfo
from tests.ui.browser.looks import at_rest, cut_texts, large_type, overflow, turn_to
from tests.ui.fakes import script_of
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, OpenSite, text_box, wait_form_settled, wait_ready
from ui.shared.event_options import QUICK
from ui.shared.parts import header, header_value

pytestmark = pytest.mark.browser

TABS = ("live", "compare", "prompts")
KINDS = ("ssm-code", "ssm-dialogue", "ssm-stories")
FIVE = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
LONG = "some-owner/" + "a-very-long-name-" * 4


def models(count: int, llm: str = "llm") -> list[ModelInfo]:
    names = [KINDS[i % 3] + (f"-{i // 3 + 1}" if i > 2 else "") for i in range(count)]
    names = list(FIVE) if count == len(FIVE) else names
    infos = [ModelInfo(llm, "llm", 7_475_456, "None", 64, 64, "float32", "cpu")]
    return infos + [ModelInfo(n, "ssm", 926_336, "None", 64, 64, "float32", "cpu") for n in names]


@contextmanager
def header_alone() -> Iterator[str]:
    """`proposed`: the number of tokens that each drafter proposed (0: no scores). `idle`: the
    number of SSMs that draft nothing while `ngram` drafts (negative: no `ngram`)."""
    with gr.Blocks() as page:
        chips = header(header_value(models(0)))
        count, llm = gr.Number(0, elem_id="count"), gr.Textbox("llm", elem_id="llm")

        proposed, idle = gr.Number(0, elem_id="proposed"), gr.Number(-1, elem_id="idle")

        def show(number: float, name: str, tokens: float, resting: float) -> dict[str, Any]:
            infos = models(int(number), name)
            scores = {one.name: (int(tokens) - i, int(tokens)) for i, one in enumerate(infos)}
            if resting >= 0:
                for one in infos[: int(resting) + 1]:
                    del scores[one.name]
                scores["ngram"] = (int(tokens) - 9, int(tokens))
            return header_value(infos, scores=scores if tokens else None)

        given = [count, llm, proposed, idle]
        gr.on([box.change for box in given], show, given, chips, **QUICK)
    with serve(page) as url:
        yield url


# `top`: the y of the chip's middle, in pixels.
CHIPS = """() => [...document.querySelectorAll(".sp-chip")].filter((chip) => chip.offsetParent)
  .map((chip) => { const name = chip.querySelector(".sp-name");
    const box = chip.getBoundingClientRect(), line = chip.parentElement.getBoundingClientRect();
    return { words: chip.innerText.replace(/\\s+/g, " "), top: Math.round(box.top + box.height / 2),
      cut: !!name && name.scrollWidth > name.clientWidth || box.right > line.right + 1 }; })"""
DRAWN = (
    """() => Object.keys(JSON.parse(document.querySelector(".sp-chips").dataset.drawn)).length"""
)


def chips_fit(page: Any, count: int, width: int) -> list[str]:
    chips = page.evaluate(CHIPS)
    words = [chip["words"] for chip in chips]
    assert not any(chip["cut"] for chip in chips), words
    lines = 40 if width < 640 else 2  # pixels: two lines on a phone, elsewhere one
    assert max(c["top"] for c in chips) - min(c["top"] for c in chips) <= lines, width
    assert words[0].startswith("LLM")
    hidden = int(words[-1][1:]) if words[-1].startswith("+") else 0
    assert len(words) - 1 - bool(hidden) + hidden == count, words
    return words


def test_of_many_models_those_are_shown_that_stand_whole(browser_page: OpenPage) -> None:
    with header_alone() as url:
        page = browser_page(url)
        page.locator(".sp-chip").first.wait_for()
        page.wait_for_function(
            "() => window.specscopeLargeType && document.fonts.status === 'loaded'"
        )
        for count in (4, 16):
            page.locator("#count input").fill(str(count))
            becomes(page, DRAWN, 1 + count)
            for large in (True, False):
                large_type(page, large)
                for width in (1280, 390, 1920):
                    page.set_viewport_size({"width": width, "height": 900})
                    at_rest(page)
                    words = chips_fit(page, count, width)
                    assert len(words) >= 5 - large, (width, words)
                    assert overflow(page) <= 0, (width, words)
        page.set_viewport_size({"width": 390, "height": 900})
        page.locator("#count input").fill("16")
        names_of_the_others(page)
        page.locator("#count input").fill("2")
        page.locator("#llm :is(input, textarea)").fill(LONG)
        page.locator(".sp-name").get_by_text(LONG).wait_for()
        page.locator(".sp-rest").wait_for(state="detached")
        assert overflow(page) <= 0, "a name wider than the page ends in an ellipsis"
        page.set_viewport_size({"width": 1280, "height": 900})
        page.locator("#llm :is(input, textarea)").fill("SmolLM2-135M-Instruct.Q4_1")
        page.locator("#proposed input").fill("181")
        for count in (4, 6):
            page.locator("#count input").fill(str(count))
            page.locator(".sp-score", has_text="of 181").nth(count - 1).wait_for()
            at_rest(page)
            scores = [one["words"].split(" ", 1)[1] for one in page.evaluate(CHIPS)[1:]]
            assert all("of 181" in one for one in scores), (
                "scores are whole: only the LLM's name is shortened"
            )
        each_of_five_ssms_says_accepted_of_proposed(page)
        six_drafters_say_accepted_of_proposed(page)
        a_tab_of_the_menu(page)


TAB_IN_MENU = """() => {
  document.body.insertAdjacentHTML("beforeend", '<div id="tabs"><div class="tab-wrapper">'
    + '<button role="tab" data-tab-id="live" aria-selected="true"></button></div></div>');
  const live = document.querySelector("[data-tab-id=live]");
  window.leave = () => live.setAttribute("aria-selected", "false");
  window.arrive = () => live.insertAdjacentHTML("afterend",
    '<button role="tab" data-tab-id="learn" aria-selected="true"></button>');
}"""
TAB = "() => document.documentElement.dataset.tab"


def a_tab_of_the_menu(page: Any) -> None:
    page.evaluate(TAB_IN_MENU)
    page.evaluate("leave()")
    becomes(page, TAB, "live")
    page.evaluate("arrive()")
    becomes(page, TAB, "learn")
    page.locator(".sp-score").first.wait_for(state="hidden")


# Left and right end of a chip's tooltip, in pixels.
TOLD = """(chip) => { const style = getComputedStyle(chip, "::after");
  const inLine = getComputedStyle(chip).position === "static";
  const { left } = (inLine ? chip.parentElement : chip).getBoundingClientRect();
  const from = left + parseFloat(style.left);
  return [from, from + parseFloat(style.width)]; }"""


def each_of_five_ssms_says_accepted_of_proposed(page: Any) -> None:
    page.locator("#llm :is(input, textarea)").fill("llm")
    # The chip of an LLM named `llm` shows the LLM's size.
    page.locator(".sp-name").get_by_text("7.48M", exact=True).wait_for(state="attached")
    page.locator("#count input").fill("5")
    becomes(page, DRAWN, 6)
    for width in (1280, 1920, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.locator("#proposed input").fill("0")
        page.locator(".sp-score b").first.wait_for(state="detached")
        room = page.locator(".sp-chips").bounding_box()
        for most in (181, 640):
            page.locator("#proposed input").fill(str(most))
            page.locator(".sp-score", has_text=f"of {most}").last.wait_for()
            at_rest(page)
            scores = [f"{most - 1 - i} of {most}" for i in range(5)]
            names = [name.removeprefix("ssm-") for name in FIVE]
            expected = [f"{'ABCDE'[i]} {names[i]} {scores[i]}" for i in range(5)]
            assert [" ".join(one.split()) for one in chips_fit(page, 5, width)[1:]] == expected
            assert page.locator(".sp-chips").bounding_box() == room, "nothing moves"
        for chip in page.locator(".sp-chip").all():
            chip.hover()
            left, right = chip.evaluate(TOLD)
            assert 0 <= left < right <= width, "the tooltip is within the page"


def six_drafters_say_accepted_of_proposed(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.locator("#proposed input").fill("81")
    names = [*(name.removeprefix("ssm-") for name in FIVE), "ngram"]
    for idle in (4, 0):
        page.locator("#idle input").fill(str(idle))
        page.locator(".sp-drafter[data-idle]").nth(4 - idle).wait_for() if idle else None
        page.locator(".sp-score", has_text="of 81").nth(5 - idle).wait_for()
        at_rest(page)
        expected = [f"{letter} –" for letter in "ABCD"[:idle]]
        for i in range(idle, 6):
            expected.append(f"{'ABCDEF'[i]} {names[i]} {81 - (i + 1 if i < 5 else 9)} of 81")
        assert [" ".join(one.split()) for one in chips_fit(page, 6, 1280)[1:]] == expected


def names_of_the_others(page: Any) -> None:
    rest = page.locator(".sp-rest")
    page.locator(
        ".sp-rest", has_text=re.compile(r"\+(9|1\d)")
    ).wait_for()  # the number of chips that do not fit now
    rest.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    told = rest.evaluate("(one) => getComputedStyle(one, '::after').content")
    assert told.count("SSM ") == int(rest.inner_text()[1:])
    place = rest.evaluate("(one) => getComputedStyle(one).position")
    assert place == "static", "the tooltip is under the whole line, not beyond the page"
    assert "SSM P ssm-code-6" in told and rest.get_attribute("aria-label") in told
    assert overflow(page) <= 0


IN_SIGHT = """() => { const line = document.querySelector("#compare-progress .sp-study-line");
  const { top, bottom } = line.getBoundingClientRect();
  return top >= 0 && bottom > top && bottom <= innerHeight; }"""
WIDE = "(box) => box.scrollWidth - box.clientWidth"


RANGES_BROKEN = """(table) => [...table.querySelectorAll("tbody .ss-compared-note")]
  .filter((one) => / to /.test(one.textContent)
    && one.getBoundingClientRect().height > 1.9 * parseFloat(getComputedStyle(one).fontSize))
  .map((one) => one.textContent)"""


# Scrolls a table to its right end. Returns whether the table scrolled, and whether the first column
# stayed in sight.
SCROLLED = """(box) => {
  box.scrollLeft = box.scrollWidth;
  const [left, ...cells] = [box, ...box.querySelectorAll("tr > :first-child")]
    .map((one) => Math.round(one.getBoundingClientRect().left));
  return [box.scrollLeft > 0, cells.every((cell) => cell === left)];
}"""


def test_large_tables_fit_on_a_notebook(site: OpenSite, browser_page: OpenPage) -> None:
    url, _ = site(script_of(6), slowdown=0.0)
    page = wait_ready(browser_page(url))
    large_type(page, True)
    turn_to(page, "Compare")
    page.set_viewport_size({"width": 390, "height": 560})
    page.click("#compare-begin")
    becomes(page, IN_SIGHT, True)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.locator("#compare-progress").get_by_text("Complete").wait_for()
    table = page.locator(".ss-compared-scroll")
    table.get_by_text(" to ").first.wait_for()
    at_rest(page)
    assert table.evaluate(WIDE) <= 0
    assert table.evaluate(RANGES_BROKEN) == []
    result = page.locator("#compare-compared .ss-words")
    assert result.get_attribute("aria-live") == "polite", "a screen reader reads the result"
    page.set_viewport_size({"width": 390, "height": 844})
    at_rest(page)
    assert table.evaluate(SCROLLED) == [True, True], "the first column stays in sight"
    page.set_viewport_size({"width": 1280, "height": 800})
    turn_to(page, "Prompts")
    page.locator("#prompts-source").get_by_text("typed").click()
    text_box(page, "prompts-typed").wait_for()
    wait_form_settled(page)
    text_box(page, "prompts-typed").fill("Once upon a time\nUser: I want to book a table")
    page.click("#prompts-measure")
    page.locator("#prompts-progress").get_by_text("Complete").wait_for()
    table = page.locator(".ss-prompts-box")
    for settings in ("specinfer", ""):
        page.locator("#prompts-table").get_by_label("Settings", exact=True).select_option(settings)
        at_rest(page)
        assert table.evaluate(WIDE) <= 0, settings
    assert page.locator("#prompts-table .ss-words").get_attribute("aria-live") == "polite"
    page.set_viewport_size({"width": 390, "height": 844})
    at_rest(page)
    assert table.evaluate(SCROLLED) == [True, True]
    page.set_viewport_size({"width": 1280, "height": 800})
    at_rest(page)
    assert cut_texts(page) == []


# A tab bar that moves a tab to its menu 0.7 s after `narrower()`, while the tab is being clicked.
# As in Gradio's bar, the tab that is opened in the menu comes back into the bar.
MOVING = """data:text/html,<div id="tabs"><button role="tab">Live</button>
<button role="tab" id="bar" disabled>Sessions</button>
<button aria-label="More tabs" hidden onclick="menu.hidden = !menu.hidden">...</button>
<div class="overflow-dropdown" id="menu" hidden><button onclick="document.title = 'opened';
tabs.insertAdjacentHTML('afterbegin', '<i role=tab aria-selected=true>Sessions</i>')">
Sessions</button></div></div><script>var narrower = () => setTimeout(() => { bar.remove();
document.querySelector('[aria-label]').hidden = false }, 700)</script>"""


def test_a_tab_that_moves_as_it_is_pressed_is_opened_where_it_went(browser_page: OpenPage) -> None:
    page = browser_page(MOVING.replace("\n", " "))
    page.evaluate("narrower()")
    turn_to(page, "Sessions")
    assert page.title() == "opened"
