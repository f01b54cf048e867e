"""Every tab in a real Chromium: widths, both themes, large type and keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ui.browser import looks
from tests.ui.fakes import recorded
from tests.ui.reading import becomes, in_looks, steady
from tests.ui.sites import (
    LEAVING,
    Axe,
    OpenPage,
    Stage,
    dock,
    every_setting,
    open_drawer,
    ran,
    sessions,
    shot,
    wait_drawn,
    wait_notice,
    wait_ready,
)

pytestmark = pytest.mark.browser

# For each tab, an element that exists once the tab is open and the server has answered.
OPENED = {
    "Live": "#live-scrubber .ss-column",
    "Compare": "#compare-studies .sp-shell > *",
    "Tune": "#tune-progress .sp-study-more:not(:empty)",
    "Prompts": "#prompts-progress .sp-study-more:not(:empty)",
    "Sessions": "#sessions-scrubber .ss-column",
    "Learn": ".sp-measured",
    "Models": "table.sp-offers td",
}


@pytest.fixture
def whole(stages: Any) -> Stage:
    stage: Stage = stages(())
    stage.clear()
    stage.play(recorded(8))
    return stage


@pytest.fixture
def live(stages: Any) -> Stage:
    stage: Stage = stages(("live",))
    stage.clear()
    stage.play(recorded(8))
    return stage


def each_tab(page: Any) -> Iterator[str]:
    names = looks.tabs(page)
    assert names == list(OPENED)
    for name in names:
        if name == "Sessions":
            sessions(page)
            page.locator(".sp-open").first.click()
            wait_notice(page, "Finished: ", "sessions")
            wait_drawn(page, "sessions")
        else:
            looks.turn_to(page, name)
        page.locator(OPENED[name]).first.wait_for()
        looks.at_rest(page)
        yield name


# The number of styles that large type sets, and the styles that another rule overrules.
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
# CONTRAST: one look for each theme, since colours depend on the theme.
LOOKS = ((390, True), (1920, True), (1280, False))
CONTRAST = ("1920-dark", "1280-light")
LARGE = CONTRAST
RULES_OF_WIDTH = ("scrollable-region-focusable",)
ONLY_RULES = """(ids) => axe.configure({ rules: axe.getRules().map(({ ruleId }) =>
  ({ id: ruleId, enabled: ids.includes(ruleId) })) })"""


GRADIOS = """() => ["#tabs .overflow-menu", "footer"].map((css) =>
  document.querySelector(css).getBoundingClientRect().height > 0)"""
BEGINS = {"Compare": "#compare-begin", "Tune": "#tune-start", "Prompts": "#prompts-measure"}
IN_WINDOW = """(css) => {
  scrollTo(0, 0);
  return document.querySelector(css).getBoundingClientRect().bottom <= innerHeight;
}"""


def check_fit(page: Any, name: str, look: str) -> None:
    assert looks.overflow(page) <= 1, (name, look)
    assert looks.covered_parts(page) == [], (name, look)
    # Gradio's menu of tabs that do not fit, and Gradio's footer.
    becomes(page, GRADIOS, [look.startswith("390"), False])
    if name in BEGINS:
        assert page.evaluate(IN_WINDOW, BEGINS[name]), (name, look)
    assert looks.tiny_texts(page) == [], (name, look)
    if name in ("Live", "Sessions") and look not in LARGE:
        shot(page, f"{name.lower()}-{look}")


def check_large_type(page: Any, name: str) -> None:
    assert looks.keep_sizes(page) > 20
    looks.large_type(page, True)
    shot(page, f"hall-{name}")
    assert looks.small_texts(page) == [], name
    assert looks.cut_texts(page) == [], name
    assert looks.overlaps(page) == [], name
    assert looks.covered_parts(page) == [], name
    assert looks.overflow(page) <= 1, name
    page.evaluate("() => specscopeLargeType(false)")


def what_large_type_sets_is_what_is_seen(page: Any) -> None:
    page.locator("#models-need").wait_for()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        looks.large_type(page, True)
        count, overruled = page.evaluate(OVERRULED)
        assert count > 100 and overruled == []
        assert [told for told in looks.cut_texts(page) if "models-" in told] == []


# The ids of our own parts in sight. tests/ui/components checks the pictures that are left out.
OWN = """() => [...new Set([...document.querySelectorAll(".ss-shell, .sp-shell")]
  .filter((node) => node.checkVisibility() && node.children.length)
  .map((node) => `#${node.closest("[id]:not([id^=html-])").id}`))]
  .filter((id) => !/-(strip|figures|inspector|proposals|lengths|scrubber)$/.test(id))"""
LIVE = {"#header", "#live-notice", "#live-tree", "#live-docked"}


# Elements that a mouse can press but keys cannot reach. A race's lane is left out, since keys reach
# its rounds through the scrubber.
MOUSE_ONLY = """() => {
  const reached = "a[href], button, input, select, textarea, summary, label, [tabindex]";
  const hand = (node) => Boolean(node) && getComputedStyle(node).cursor === "pointer";
  return [...document.querySelectorAll("body *")]
    .filter((node) => hand(node) && !hand(node.parentElement) && node.checkVisibility()
      && node.getBoundingClientRect().width > 1 && !node.matches(".ss-lane-track")
      && !node.closest(reached) && !node.querySelector(reached))
    .map((node) => `${node.closest("[id]")?.id} ${node.getAttribute("class")}`);
}"""


def axe_for_width(page: Any, axe: Axe) -> list[str]:
    page.evaluate(ONLY_RULES, RULES_OF_WIDTH)
    found = axe(page, "body")
    page.evaluate("() => axe.reset()")
    return found


def check_live_without_drawer(page: Any, axe: Axe, look: str) -> None:
    own = page.evaluate(OWN)
    assert {*own} >= LIVE
    if look == "1280-light":
        assert axe(page, *own, "#live-scrubber", "#live-figures") == []
    else:
        assert page.evaluate("() => specscopeContrast.texts()")["found"] == [], look
    assert looks.overflow(page) <= 1, look


CONTRAST_JS = looks.SCRIPT.with_name("contrast.js")

# Sets whether Run or Stop is in sight.
STATE = "(state) => { document.documentElement.dataset.liveState = state; }"


def check_run_and_stop(page: Any, axe: Axe, look: str) -> None:
    before = page.evaluate("() => document.documentElement.dataset.liveState")
    for state, button in ((before, "live-run"), ("running", "live-stop")):
        page.evaluate(STATE, state)
        ratios = page.evaluate("() => specscopeContrast.labels('#live-run, #live-stop')")
        assert list(ratios) == [button] and ratios[button] >= 4.5, (look, ratios)
    if look == "1280-light":
        assert axe(page, "#live-stop") == []
    page.evaluate(STATE, before)


def check_contrast(page: Any, axe: Axe, name: str, look: str) -> Counter[str]:
    assert page.evaluate(MOUSE_ONLY) == [], (name, look)
    if name == "Live":
        check_run_and_stop(page, axe, look)
    panes = ("who", "when", "length", "inside", "whatif", "why") if name == "Live" else ("",)
    kinds = [(4.5, "drawnContrasts"), (3.0, "boxes")] + [(4.5, "texts")] * look.endswith("dark")
    counts = Counter[str]()
    for pane in panes:
        if pane:
            dock(page, pane)
            looks.at_rest(page)
        for least, kind in kinds:
            seen = page.evaluate(f"() => specscopeContrast.{kind}({least})")
            assert seen["found"] == [], (name, pane, look)
            counts[kind] += seen["count"]
    return counts


def test_every_tab_fits_and_is_accessible_at_every_width_theme_and_type_size(
    whole: Stage, browser_page: OpenPage, axe: Axe
) -> None:
    """One visit serves all checks, since a visit is slow."""
    page = ran(wait_ready(browser_page(whole.url)))
    (run,) = whole.context.store.runs(whole.context.query()).rows
    whole.context.store.annotate(run.run_id, "A good one for the lecture on votes")
    page.evaluate(CONTRAST_JS.read_text(encoding="utf-8"))
    counts = Counter[str]()
    for name in each_tab(page):
        if name == "Live":
            for look in in_looks(page, (390, True), (1280, False)):
                check_live_without_drawer(page, axe, look)
            every_setting(page)
            page.get_by_text("A preset of your own").click()
        for look in in_looks(page, *LOOKS):
            check_fit(page, name, look)
            if look in CONTRAST:
                counts += check_contrast(page, axe, name, look)
            if look == "1280-light" or (name, look) == ("Live", "390-dark"):
                assert axe(page, "body") == [], (name, look)
            elif look == "390-dark":
                assert axe_for_width(page, axe) == [], (name, look)
            if look in LARGE:
                check_large_type(page, f"{name.lower()}-{look}")
    enough = {"drawnContrasts": 500, "boxes": 50, "texts": 1000}
    assert all(counts[kind] > least for kind, least in enough.items()), counts
    what_large_type_sets_is_what_is_seen(page)


LARGE_NOW = """() => [document.documentElement.classList.contains("ss-large"),
  document.querySelector(".sp-large").getAttribute("aria-pressed") === "true"]"""


def is_large(page: Any, large: bool) -> None:
    becomes(page, LARGE_NOW, [large, large])


def size_in_menu(page: Any) -> float:
    page.locator("#preset input").click()
    option = page.get_by_role("option").first
    size = option.evaluate("(one) => parseFloat(getComputedStyle(one).fontSize)")
    page.keyboard.press("Escape")
    page.locator("#preset input").blur()
    return float(size)


BAD_TEXTS = """() => {
  document.body.innerHTML = `<div style="font: 20px monospace">
    <button style="width: 60px; white-space: nowrap; padding: 0">Step forward</button>
    <div style="width: 40px; overflow-wrap: anywhere">dialogue</div>
    <div style="width: 40px; overflow: hidden; white-space: nowrap">hidden in part</div>
    <button style="width: 300px">Step back</button>
    <div style="width: 120px; overflow-wrap: anywhere">whole words of a0b1c2d3e4f5a6b7c8d9 too</div>
  </div>`;
}"""


BAD_DRAWING = """() => {
  document.body.innerHTML = `<div id="drawing" style="background: white">
    <svg width="200" height="120" style="font: 16px monospace">
      <g opacity="0.5"><text class="faint" x="10" y="20" fill="rgb(80, 80, 80)">half</text></g>
      <g><rect y="40" width="200" height="30" fill="rgb(60, 60, 60)"></rect>
        <text class="dark" x="10" y="60" fill="rgb(0, 0, 0)">on dark</text></g>
      <g><rect x="150" y="80" width="40" height="30" fill="rgb(0, 0, 0)"></rect>
        <text class="plain" x="10" y="100" fill="rgb(0, 0, 0)">plain</text></g>
    </svg>
    <p class="grey" style="color: rgb(130, 130, 130)">too light</p>
    <p style="color: rgb(80, 80, 80)">dark enough</p>
    <p class="half" style="color: rgb(80, 80, 80); opacity: 0.5">half</p></div>`;
}"""


def test_large_type_by_button_key_and_function_is_kept(live: Stage, browser_page: OpenPage) -> None:
    page = wait_ready(browser_page(live.url, forgiven=LEAVING))
    is_large(page, False)
    ordinary = size_in_menu(page)
    page.get_by_role("button", name="Large type").click()
    is_large(page, True)
    page.get_by_role("button", name="Prompt, preset and Run").click()
    assert size_in_menu(page) > 1.15 * ordinary, "an open menu is large too"
    page.keyboard.press("t")
    is_large(page, False)
    page.fill("#prompt textarea", "t")
    is_large(page, False)  # a letter in a text box
    assert page.evaluate("() => specscopeLargeType(true)") is True
    is_large(page, True)
    page.reload()
    is_large(wait_ready(page), True)  # kept in the browser
    page.evaluate("() => specscopeLargeType(false, { keep: false })")
    is_large(page, False)
    page.goto(live.url)
    is_large(wait_ready(page), True)  # the ordinary type was not kept
    page.evaluate(BAD_TEXTS)
    told = [line.rpartition(": ")[2] for line in looks.cut_texts(page)]
    assert told == ["Step forward", "dialogue", "hidden in part"], "a control of cut_texts"
    page.evaluate(BAD_DRAWING)
    page.evaluate(CONTRAST_JS.read_text(encoding="utf-8"))
    drawn = page.evaluate("() => specscopeContrast.drawnContrasts(4.5)")
    faint = [line.split(" ", 1)[1] for line in drawn["found"]]
    assert drawn["count"] == 3, "a control of contrast.js"
    assert faint == ["drawing .faint half", "drawing .dark on dark"], "a control of contrast.js"
    texts = page.evaluate("() => specscopeContrast.texts()")
    faint = [line.split(" ", 1)[1] for line in texts["found"]]
    assert texts["count"] == 3, "a control of contrast.js"
    assert faint == ["drawing .grey too light", "drawing .half half"], "a control of contrast.js"


KEYS_SHOWN = """() => {
  const list = document.querySelector("dialog.sp-keys");
  const { top, bottom, left, right } = list.getBoundingClientRect();
  return list.open && top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth;
}"""


def test_the_question_mark_shows_the_keys_on_every_tab(
    whole: Stage, browser_page: OpenPage, axe: Axe
) -> None:
    page = wait_ready(browser_page(whole.url, height=800))
    for name in looks.tabs(page):
        looks.turn_to(page, name)
        keys_are_shown_and_put_away(page, name)
    page.set_viewport_size({"width": 390, "height": 844})
    looks.turn_to(page, "Live")
    keys_are_shown_and_put_away(page, "Live at 390")
    page.fill("#prompt textarea", "")
    page.locator("#prompt textarea").press_sequentially("?")
    assert page.input_value("#prompt textarea") == "?" and not page.evaluate(KEYS_SHOWN)
    open_drawer(page).get_by_role("button", name="Keys (press ?)").click()
    becomes(page, KEYS_SHOWN, True)
    assert axe(page, "dialog.sp-keys") == []


def keys_are_shown_and_put_away(page: Any, name: str) -> None:
    page.locator(".sp-large").focus()
    page.keyboard.press("?")
    becomes(page, KEYS_SHOWN, True)
    page.keyboard.press("t")
    is_large(page, False)  # no other key is taken meanwhile
    page.keyboard.press("Escape")
    becomes(page, KEYS_SHOWN, False)
    assert page.evaluate("() => document.activeElement.matches('.sp-large')"), name


PLACES = """() => [...document.querySelectorAll(".sp-bar, .sp-chip, .sp-state, .sp-large")]
  .map((one) => { const { left, top, width, height } = one.getBoundingClientRect();
    return [left, top, width, height].map(Math.round); })"""
LETTER_INKS = """() => new Set([document.querySelector(".sp-letter[data-slot='1']"),
  document.querySelector(".ss-panel .ss-badge[data-slot='1']")]
  .map((one) => getComputedStyle(one).color)).size"""
CUT_NAMES = """() => [...document.querySelectorAll(".sp-name")]
  .filter((one) => one.scrollWidth > one.clientWidth).length"""
SCROLL = "document.querySelector('#live-strip .ss-scroll')"
AT_TOP = f"""() => {{
  const at = {SCROLL}.scrollTop;
  {SCROLL}.scrollTop = 0;
  return at === 0;
}}"""
IS_AT_END = """() => {
  const [text, written] = ["#live-strip .ss-scroll", "#live-strip .ss-round:last-child"]
    .map((css) => document.querySelector(css).getBoundingClientRect());
  return written.bottom <= text.bottom + 1 && written.top >= text.top;
}"""
NEWEST = "Number([...document.querySelectorAll('#live-strip .ss-tok')].at(-1)?.dataset.i)"


def test_as_a_run_goes_on_whoever_scrolls_up_stays_there_and_chips_stay(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(recorded(240), slowdown=25.0)  # a run of 1.5 minutes, for a busy machine
    page = wait_ready(browser_page(live.url, forgiven=LEAVING, height=640))
    page.click("#live-run")
    page.wait_for_function(f"() => {SCROLL}.scrollTop > 150")
    # Another type size moves the lines; the page still follows the newest text.
    for large in (True, False):
        page.evaluate(f"(on) => {{ specscopeLargeType(on); window.newest = {NEWEST}; }}", large)
        page.wait_for_function(f"() => {NEWEST} > newest + 12 && ({IS_AT_END})()")
    # AT_TOP also waits until the scroll event has been dispatched.
    page.wait_for_function(AT_TOP)
    page.evaluate(f"() => {{ window.newest = {NEWEST}; }}")
    page.wait_for_function(f"() => {NEWEST} > newest + 24")
    assert page.evaluate(f"() => {SCROLL}.scrollTop") == 0, "a visitor who scrolls up stays there"
    page.locator("#live-stop").press("Enter")
    wait_notice(page, "Stopped: ")
    for large in (False, True):
        looks.large_type(page, large)
        chips_stay(page)


def largest_move(before: list[list[int]], after: list[list[int]]) -> int:
    pairs = zip(before, after, strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


def chips_stay(page: Any) -> None:
    before = steady(page, PLACES)
    middles = {round(top + height / 2) for _, top, _, height in before}
    assert max(middles) - min(middles) <= 2, "one line"
    assert page.evaluate(CUT_NAMES) == 0, "no name is cut"
    assert page.locator(".sp-bar").inner_text().count("float32") <= 1
    assert page.evaluate(LETTER_INKS) == 1, "as on the pictures' badges of that colour"
    button = page.locator(".sp-large")
    button.focus()
    page.keyboard.press("r")
    page.locator(".sp-state-running").wait_for()
    assert largest_move(before, page.evaluate(PLACES)) <= 1, "no chip moves by more than a pixel"
    assert button.evaluate("(one) => one === document.activeElement"), "no focus is lost"
    # Stop by a key, since large type hides the command row with the button Stop.
    page.keyboard.press("s")
    page.locator(".sp-state-ready").wait_for()
    assert largest_move(before, page.evaluate(PLACES)) <= 1, "no chip moves by more than a pixel"
    chip = page.locator(".sp-chip").nth(1)
    chip.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    told = chip.evaluate("(one) => getComputedStyle(one, '::after').content")
    assert "SSM A ssm-code: 1k parameters, float32, cpu" in told
    assert chip.get_attribute("aria-label") in told
