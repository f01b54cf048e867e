"""Live and Sessions in a real Chromium: which parts are in sight, also in large type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from bench.page.playback import playback
from tests.synthetic import VOTE_AHEAD, Mechanisms, synthetic_run
from tests.ui import sites
from tests.ui.browser import looks
from tests.ui.browser.looks import turn_to
from tests.ui.fakes import recorded
from tests.ui.live_screen import FIVE, PARTS, ROUNDS, SEEN, SIZES, live_stage, race
from tests.ui.past import record_run
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, Stage
from ui.run.baselines import keep_baseline
from ui.run.frame import Baseline, Frame
from ui.run.votes import proposals_value

pytestmark = pytest.mark.browser


@pytest.fixture
def live(stages: Any) -> Stage:
    return live_stage(stages)


SIX = (*FIVE, "ngram")
RACE = """() => {
  const verdict = document.querySelector("#live-figures .ss-verdict");
  const line = parseFloat(getComputedStyle(verdict).lineHeight);
  const box = document.querySelector("[data-part=race]").getBoundingClientRect();
  return [Math.round(verdict.getBoundingClientRect().height / line), box.height];
}"""
BAR = """() => getComputedStyle(
  document.querySelector("#live-strip .ss-scroll"), "::-webkit-scrollbar").width"""


ROW_SEEN = "() => document.querySelector('#live-run').checkVisibility({ visibilityProperty: true })"
PRESET_CUT = """() => {
  const field = document.querySelector("#preset input");
  return field.scrollWidth - field.clientWidth;
}"""
HEIGHTS = """() => ["#live-strip .ss-scroll", "#live-tree .ss-window"].map((css) =>
  document.querySelector(css).getBoundingClientRect().height)"""


def large_type_takes_no_height_from_the_tree_and_the_text_says_that_it_goes_on(page: Any) -> None:
    page.set_viewport_size({"width": 1920, "height": 1080})
    looks.at_rest(page)
    assert page.evaluate(BAR) == "9px"
    lines, high = page.evaluate(RACE)
    looks.large_type(page, True)
    large, higher = page.evaluate(RACE)
    assert (lines, large) == (1, 1) and higher < high + 14
    looks.large_type(page, False)
    # At 1280x800 the dock gives up height for large text and a large tree.
    page.set_viewport_size({"width": 1280, "height": 800})
    looks.at_rest(page)
    ordinary = page.evaluate(HEIGHTS)
    looks.large_type(page, True)
    text, tree = (
        large / small for large, small in zip(page.evaluate(HEIGHTS), ordinary, strict=True)
    )
    assert text > 1.15 and tree > 1.15
    # In large type the command row is hidden, so that all bars fit in the dock.
    becomes(page, HIDDEN, [], ["why", [*ANSWERS["why"], "#live-inspector .ss-bar:last-child"]])
    becomes(page, ROW_SEEN, False)
    row = page.get_by_role("button", name="Prompt, preset and Run")
    row.click()
    becomes(page, ROW_SEEN, True)
    becomes(page, SEEN, [*PARTS, "still"], list(PARTS))
    row.click()
    becomes(page, ROW_SEEN, False)
    looks.large_type(page, False)
    becomes(page, ROW_SEEN, True)
    assert page.evaluate(PRESET_CUT) <= 1


def test_live_is_one_screen_whose_panes_answer_in_sight(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(recorded(ROUNDS, mechanisms=VOTE_AHEAD))
    page = sites.wait_ready(browser_page(live.url, still=True))
    live_is_one_screen(page, "before", (True, False))
    live_is_one_screen(race(page), "after", (True,))
    looks.large_type(page, False)
    every_pane_answers_in_sight(page)
    tables_are_in_sight_and_move_nothing(page)
    large_type_takes_no_height_from_the_tree_and_the_text_says_that_it_goes_on(page)
    the_longest_words_of_why_are_in_sight(page)
    beside_why_all_words_of_when_are_in_sight(page)


def live_is_one_screen(page: Any, when: str, types: Sequence[bool]) -> None:
    for large in types:
        looks.large_type(page, large)
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            looks.at_rest(page)
            becomes(page, SEEN, [*PARTS, "still"], list(PARTS))
            sites.shot(page, f"screen-{width}-{when}{'-large' * large}")


LONG = "0.80x the speed of plain decoding (0.90 to 13.35 in 3 repeats): no difference is shown"
MANY = "The same 1,280 tokens in 1,000 LLM passes instead of 1,280."
# Returns the race's sentence and the value of `--ss-letters`.
VERDICT = """(words) => {
  const verdict = document.querySelector("[data-part=verdict]");
  if (words) {
    verdict.textContent = words;
    verdict.style.setProperty("--ss-letters", words.length);
  }
  return [verdict.textContent, verdict.style.getPropertyValue("--ss-letters")];
}"""
SAY = """(words) => {
  document.querySelector("#live-figures .ss-race-speed").textContent = words;
}"""
BOXES = """(parts) => parts.map((part) => {
  const { top, height } = document.querySelector(`[data-part=${part}]`).getBoundingClientRect();
  return [top, height];
})"""


def test_runs_of_five_and_six_drafters_are_whole_in_sight(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(playback(synthetic_run(24, seed=5, drafters=FIVE, mechanisms=VOTE_AHEAD)))
    page = sites.wait_ready(browser_page(live.url, still=True, width=1280, height=800))
    sites.ran(sites.dock(page, "who"))
    legend_table_and_chips_are_whole_at_the_smaller_size(page, "minions")
    other_type_or_another_screen_keeps_the_selected_round_in_sight(page)
    live.play(playback(synthetic_run(24, seed=5, drafters=FIVE)))
    sites.ran_again(page, live.context)
    legend_table_and_chips_are_whole_at_the_smaller_size(page, "specinfer")
    live.play(playback(synthetic_run(ROUNDS, seed=5, drafters=SIX)))
    sites.ran_again(page, live.context)
    six_drafters_are_in_sight_and_a_longer_sentence_moves_nothing(page)
    live.play(playback(synthetic_run(24, seed=2, drafters=FIVE)))
    sites.ran_again(page, live.context)
    large_type_enlarges_a_tree_that_fills_its_pane(page)


def six_drafters_are_in_sight_and_a_longer_sentence_moves_nothing(page: Any) -> None:
    words, letters = page.evaluate(VERDICT, "")
    assert int(letters) == len(words), "the type of the sentence depends on its length"
    sites.dock(page, "when").locator("#live-timeline g.ytick").nth(len(SIX) + 3).wait_for()
    looks.at_rest(page)
    assert looks.overlaps(page) == [], "each drafter has a lane, and no text lies on another text"
    sites.dock(page, "who")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for large in (False, True):
            looks.large_type(page, large)
            becomes(page, WHO_BELOW, [], "live")
            page.evaluate(VERDICT, MANY)
            assert page.evaluate(RACE)[0] == 1, "larger numbers stay on one line"
            before = page.evaluate(BOXES, list(PARTS))
            for words in ("", f"{LONG}; above 4.57x is noise, and two more words than that"):
                page.evaluate(SAY, words)
                assert page.evaluate(BOXES, list(PARTS)) == before, (width, large, words)
        looks.large_type(page, False)


ANSWERS = {
    "who": ("#live-proposals .ss-votes th:last-child", "#live-proposals .ss-words"),
    "when": (
        "#live-timeline .ss-plot",
        "#live-timeline .ss-words",
        "#live-timeline .ss-share-words",
        "#live-timeline .ss-lane-remarks",
    ),
    "length": (
        "#live-lengths .ss-plot",
        "#live-lengths .ss-choice-said",
        "#live-lengths .ss-choice > .ss-mini",
        "#live-lengths .ss-choice-offers button:last-child",
    ),
    "inside": ("#live-mask .ss-mask-svg", "#live-mask .ss-mask-said"),
    "whatif": ("#live-what_if .ss-what-if-plot", "#live-what_if .ss-what-if-said"),
    "requests": ("#requests .sp-all-pool", "#requests-schedule label:last-child"),
    "why": ("#live-inspector .ss-sentence", "#live-inspector .ss-meant"),
}
HIDDEN = """([name, parts]) => {
  const pane = document.querySelector(`#live-dock .sp-pane-${name}`).getBoundingClientRect();
  return parts.filter((part) => {
    const found = document.querySelector(part);
    const box = found?.getBoundingClientRect();
    const cut = found?.closest(".ss-scroll")?.getBoundingClientRect() ?? pane;
    return !(box && box.height > 5 && box.top >= pane.top - 1 && box.bottom <= pane.bottom + 1
      && box.left >= cut.left - 1 && box.right <= cut.right + 1);
  });
}"""
ROWS = """(name) => {
  const table = document.querySelector(`#live-${name} .ss-table`).getBoundingClientRect();
  return [...document.querySelectorAll(`#live-${name} .ss-table tbody tr`)]
    .filter((row) => row.getBoundingClientRect().bottom <= table.bottom).length;
}"""


# Whether these are in sight: the root and the LLM's own token in the tree, and the selected round's
# first token in the text.
SHOWN_YET = """() => {
  const within = (part, whole) => {
    const [a, b] = [part, whole].map((one) => document.querySelector(one)?.getBoundingClientRect());
    return Boolean(a && b) && a.left >= b.left - 1 && a.right <= b.right + 1
      && a.top >= b.top - 1 && a.top < b.bottom - 5;
  };
  return [["own", "'-1'"].every((key) =>
    within(`#live-tree .ss-node[data-key=${key}]`, "#live-tree .ss-viewport")),
    within("#live-strip .ss-round[aria-pressed=true] .ss-tok", "#live-strip .ss-scroll")];
}"""


def other_type_or_another_screen_keeps_the_selected_round_in_sight(page: Any) -> None:
    for number, sizes in ((4, SIZES[:1]), (20, SIZES[::-1])):
        page.locator(f"#live-scrubber [data-r='{number - 1}']").click()
        for width, height in sizes:
            page.set_viewport_size({"width": width, "height": height})
            looks.at_rest(page)
            becomes(page, SHOWN_YET, [True, True])
            for large in (True, False):
                looks.large_type(page, large)
                becomes(page, SHOWN_YET, [True, True])


# TOUCHING: the chips of proposals whose words touch the chip's right edge.
LINES = """() => new Set([...document.querySelectorAll("#live-strip .ss-legend-item")]
  .filter((one) => one.checkVisibility()).map((one) => one.offsetTop)).size"""
BELOW_LEGEND = """() => {
  const [panel, legend] = ["#live-strip .ss-body", "#live-strip .ss-legend"]
    .map((css) => document.querySelector(css).getBoundingClientRect());
  return panel.bottom - legend.bottom;
}"""
TOUCHING = """() => [...document.querySelectorAll("#live-proposals .ss-chip")].filter((chip) => {
  const words = [...chip.children].filter((one) => one.checkVisibility()).at(-1);
  return words.getBoundingClientRect().right > chip.getBoundingClientRect().right - 3;
}).map((chip) => chip.textContent)"""
HEADS_CUT = """() => {
  const table = document.querySelector("#live-strip .ss-table").getBoundingClientRect();
  return [...document.querySelectorAll("#live-strip .ss-table th")].filter((head) => {
    const { left, right } = head.getBoundingClientRect();
    return left < table.left - 1 || right > table.right + 1 || head.scrollWidth > head.clientWidth;
  }).map((head) => head.textContent);
}"""


def legend_table_and_chips_are_whole_at_the_smaller_size(page: Any, preset: str) -> None:
    becomes(page, LINES, 1)
    assert page.evaluate(BELOW_LEGEND) < 16, "no height is left empty below the legend"
    page.locator("#live-proposals .ss-chip").first.wait_for()
    becomes(page, TOUCHING, [])
    tools = page.locator("#live-strip .ss-tools")
    tools.hover()
    tools.get_by_text("Table").click()
    page.locator("#live-strip .ss-table td").first.wait_for()
    becomes(page, HEADS_CUT, [])
    tools.get_by_text("Table").click()
    sites.shot(page, f"whole-1280-{preset}")


LETTERS = """() => {
  const zoom = Number(document.querySelector("#live-tree .ss-viewport").dataset.zoom);
  const texts = [...document.querySelectorAll("#live-tree .ss-node-text")];
  return zoom * Math.max(...texts.map((one) => parseFloat(one.getAttribute("font-size"))));
}"""


ZOOM_IN = """() => [...document.querySelectorAll("#live-tree button")]
  .find((one) => one.getAttribute("aria-label") === "Zoom in" || one.title === "Zoom in").click()"""


def large_type_enlarges_a_tree_that_fills_its_pane(page: Any) -> None:
    looks.at_rest(page)
    before = page.evaluate(LETTERS)
    looks.large_type(page, True)
    becomes(page, SHOWN_YET, [True, True])
    assert page.evaluate(LETTERS) > 1.2 * before
    there = page.evaluate(LETTERS)
    page.set_viewport_size({"width": 1280, "height": 800})
    looks.at_rest(page)
    page.set_viewport_size({"width": 1920, "height": 1080})
    becomes(page, f"() => Math.abs(({LETTERS})() - {there}) < 0.1", True)
    for _ in range(3):
        page.evaluate(ZOOM_IN)
    viewport = "document.querySelector('#live-tree .ss-viewport')"
    page.evaluate(f"() => {{ {viewport}.scrollTop = {viewport}.scrollLeft = 0; }}")
    more = page.locator("#live-tree .ss-more:not([hidden])")
    more.filter(has_text=re.compile("[→↓]")).first.click()
    becomes(page, f"() => {viewport}.scrollTop + {viewport}.scrollLeft > 0", True)
    more.filter(has_text=re.compile("[←↑]")).first.click()
    becomes(page, f"() => {viewport}.scrollTop + {viewport}.scrollLeft", 0)


LONGEST = """([words, remarks]) => {
  document.querySelector("#live-timeline .ss-words").textContent = words;
  document.querySelector("#live-timeline .ss-lane-remarks").textContent = remarks;
}"""
WHEN_WORDS = (
    "Round 16 took 19.1 ms: drafting 12.0 ms, LLM pass 3.9 ms, combine, verdict and commit 1.0 ms, "
    "between stages 2.3 ms. Drafting and LLM passes took turns, nothing overlapped. The run: 659.6 "
    "ms measured; largest share: drafting, 42 %. Between stages: no model worked (bookkeeping, "
    "other programs)."
)
WHEN_REMARKS = (
    "Hatched: catching up with the text. SSMs that drafted together share that time: each is "
    "counted for its part of it."
)


def beside_why_all_words_of_when_are_in_sight(page: Any) -> None:
    page.set_viewport_size({"width": 1920, "height": 1080})
    sites.dock(page, "when")
    looks.at_rest(page)
    page.evaluate(LONGEST, [WHEN_WORDS, WHEN_REMARKS])
    becomes(page, HIDDEN, [], ["when", list(ANSWERS["when"])])


def every_pane_answers_in_sight(page: Any) -> None:
    for width, height in reversed(SIZES):
        page.set_viewport_size({"width": width, "height": height})
        for name, parts in ANSWERS.items():
            sites.dock(page, name)
            looks.at_rest(page)
            becomes(page, SEEN, [*PARTS, "still"], list(PARTS))
            becomes(page, HIDDEN, [], [name, list(parts)])
            for faults in (looks.overlaps, looks.tiny_texts, looks.covered_parts):
                assert faults(page) == [], (width, name)


def tables_are_in_sight_and_move_nothing(page: Any) -> None:
    sites.dock(page, "when")
    high = page.locator("#live-figures").bounding_box()
    for name, least in (("timeline", 2), ("figures", 7)):
        tools = page.locator(f"#live-{name} .ss-tools")
        tools.hover()
        tools.get_by_text("Table").click()
        looks.at_rest(page)
        assert page.evaluate(ROWS, name) >= least
        assert page.locator("#live-figures").bounding_box() == high
        tools.get_by_text("Table").click()
        assert page.locator(f"#live-{name} .ss-table").is_hidden()
    sites.dock(page, "why")


# The last of six bars is marked as the explained token.
SIX_BARS = """() => {
  for (const list of document.querySelectorAll("#live-inspector .ss-bars")) {
    while (list.children.length < 6) list.append(list.lastChild.cloneNode(true));
    [...list.children].forEach((bar, i) => bar.toggleAttribute("data-hit", i === 5));
  }
}"""
WHY_WORDS = """([part, words]) => {
  document.querySelector(`#live-inspector ${part}`).textContent = words;
}"""
MEANT = (
    "Bars: the LLM at temperature 0.85; the SSMs always at temperature 1. An SSM's score "
    "(in Who and on hover) is its probability at temperature 0.85 with the noise of this position, "
    "calibrated on committed tokens."
)
DROPPED = (
    "No draft was verified: 12 drafted tokens dropped before the LLM's pass, as not worth its "
    "time. The LLM wrote “ about” (0.512). It was drafted too (by A, B, C, D, E), but dropped "
    "before the LLM's pass."
)


def the_longest_words_of_why_are_in_sight(page: Any) -> None:
    page.evaluate(SIX_BARS)
    page.evaluate(WHY_WORDS, [".ss-meant", MEANT])
    hit = "#live-inspector .ss-bar[data-hit]"
    becomes(page, HIDDEN, [], ["why", [*ANSWERS["why"], hit]])
    looks.large_type(page, True)
    page.evaluate(WHY_WORDS, [".ss-sentence", DROPPED])
    becomes(page, HIDDEN, [], ["why", ["#live-inspector .ss-sentence"]])
    looks.large_type(page, False)


# The last entry tells whether the page scrolls vertically.
CUT = """(parts) => [...parts.filter((part) => {
  const box = document.querySelector(part)?.getBoundingClientRect();
  return !(box && box.left >= 0 && box.top >= 0 && box.right <= innerWidth + 0.5
    && box.bottom <= innerHeight + 0.5 && box.width > 100 && box.height > 30);
}), document.documentElement.scrollHeight <= innerHeight ? "still" : "scrolls"]"""
OPENED = ("#sessions-search", "#sessions-opened", "#sessions-figures", "#sessions-strip")
OPENED += ("#sessions-tree", "#sessions-scrubber", "#sessions-dock")
LEFT_OF = """() => document.querySelector("#sessions-runs").getBoundingClientRect().right
  <= document.querySelector("#sessions-board").getBoundingClientRect().left"""
HIGH = """() => Math.max(...[...document.querySelectorAll("#sessions-runs tbody tr")]
  .map((row) => row.getBoundingClientRect().height))"""


BESIDE = """() => [...document.querySelectorAll("#sessions-figures .ss-score")]
  .map((one) => one.querySelector("b").dataset.text + one.lastElementChild.dataset.text)"""
CHIP_SCORES = """() => [...document.querySelectorAll("#header .sp-drafter .sp-score")]
  .map((one) => one.textContent.replace(/\\s+/g, " ").trim())"""
SCORES = """() => getComputedStyle(document.querySelector("#header .sp-score")).visibility"""


def scores_of(live: Stage, where: str) -> list[str]:
    view = sites.desk_of(live.context, where).frame().view
    counts = [view.scoreboard.get(name, (0, 0)) for name in view.slots]
    return [f"{got} of {of}" if of else "–" for got, of in counts]


def test_sessions_are_a_list_beside_the_opened_run_whatever_the_run(
    live: Stage, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = sites.wait_ready(browser_page(live.url, still=True))
    the_list_is_beside_the_opened_run(page, live)
    of_an_opened_run_the_tree_is_seen_whatever_the_run(page, live, monkeypatch)


def the_list_is_beside_the_opened_run(page: Any, live: Stage) -> None:
    turn_to(page, "Sessions")
    page.locator("#sessions-runs").get_by_text("No runs yet").wait_for()
    page.get_by_text("Runs open here").wait_for()
    turn_to(page, "Live")
    sites.ran(page)
    what_to_press_in_sessions_is_a_line_and_not_a_column(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    turn_to(page, "Live")
    becomes(page, CHIP_SCORES, scores_of(live, "live"))
    sites.open_latest_run(page)
    assert page.evaluate(SCORES) == "hidden", (
        "the header's counts are of Live's run, not of the opened one"
    )
    becomes(page, BESIDE, scores_of(live, "sessions"))
    assert page.locator("#live-figures .ss-score").count() == 0, (
        "the header's chips show the counts"
    )
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        looks.at_rest(page)
        becomes(page, CUT, ["still"], list(OPENED))
        assert page.evaluate(LEFT_OF)
        assert page.evaluate(HIGH) < 60, "prompt, and settings with drafters: two lines"
        sites.shot(page, f"sessions-{width}")
    page.set_viewport_size({"width": 390, "height": 844})
    looks.at_rest(page)
    assert not sites.overflows(page)
    about = page.locator("#sessions-about").bounding_box()
    assert about["width"] > 300, "the run's name is above its buttons"


def what_to_press_in_sessions_is_a_line_and_not_a_column(page: Any) -> None:
    turn_to(page, "Sessions")
    page.locator("#sessions-runs .sp-open").wait_for()
    for width, height in (*SIZES, (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        looks.at_rest(page)
        words = page.get_by_text("Runs open here")
        box = words.bounding_box()
        assert box["height"] < 75, width
        words.hover()
        looks.at_rest(page)
        assert words.bounding_box() == box, "pointed at, the hint stays where it is"


KINDS: tuple[tuple[tuple[str, ...], Mechanisms | None], ...] = (
    (SIX, None),
    (FIVE[:2], None),
    (FIVE, Mechanisms(routing="cosine", draft="fused")),
    (FIVE, VOTE_AHEAD),
)
# The last two values: the number of visible lines about the run, and whether a line has a run's id.
SEEN_RUN = """() => {
  const about = document.querySelector("#sessions-about .sp-shell").getBoundingClientRect();
  const lines = [...document.querySelectorAll("#sessions-about .sp-line")].filter((line) =>
    line.getBoundingClientRect().top < about.bottom - 2);
  const high = document.querySelector("#sessions-tree .ss-window").getBoundingClientRect().height;
  return [high >= 220 || high,
    lines.length, /[0-9a-f]{32}/.test(lines.map((line) => line.textContent).join(" "))];
}"""


WHO_BELOW = """(where) => {
  const pane = document.querySelector(`#${where}-dock .sp-pane-who`);
  if (pane.querySelector(".ss-routing[data-routed]")) return [];
  const scroll = pane.querySelector(".ss-proposals .ss-scroll");
  // This browser hides the scrollbar, which other browsers show.
  const bar = scroll.scrollWidth > scroll.clientWidth
    ? parseFloat(getComputedStyle(scroll, "::-webkit-scrollbar").height) : 0;
  const box = scroll.getBoundingClientRect();
  const cut = [...pane.querySelectorAll(".ss-votes tbody tr")]
    .filter((row) => row.getBoundingClientRect().bottom > box.bottom - bar + 1)
    .map((row) => row.querySelector(".ss-who").textContent);
  const chart = pane.querySelector(".ss-proposals .ss-mini-svg");
  const high = chart.checkVisibility() ? chart.getBoundingClientRect().height : 0;
  return high && high < 90 ? [...cut, `chart of ${high}`] : cut;
}"""
WHY_BELOW = """() => {
  const body = document.querySelector("#sessions-inspector .ss-body").getBoundingClientRect();
  const parts = ":is(.ss-sentence, .ss-inspected-title, .ss-bar)";
  return [...document.querySelectorAll(`#sessions-inspector ${parts}`)]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().bottom > body.bottom + 1)
    .map((one) => one.textContent);
}"""
HITS = """() => [...document.querySelectorAll("#sessions-inspector .ss-bar[data-hit]")]
  .filter((one) => one.checkVisibility()).length"""


def of_an_opened_run_the_tree_is_seen_whatever_the_run(
    page: Any, live: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_to(page, "Live")
    for drafters, uses in KINDS:
        live.play(playback(synthetic_run(24, seed=5, drafters=drafters, mechanisms=uses)))
        run_id = record_run(live.context)
        note = "plain decoding in the same study, same prompt and repeat"
        keep_baseline(live.context.store, run_id, Baseline(100.0, "", note))
    page.set_viewport_size({"width": 1280, "height": 800})
    sites.sessions(page)
    page.locator(".sp-open").nth(len(KINDS)).wait_for()
    open_run_at(page, 0)
    page.locator("#sessions-dock[data-at=who]").wait_for()  # a run with votes opens on Who
    an_opened_run_is_whole(page, 0)
    page.set_viewport_size({"width": 1920, "height": 1080})
    an_opened_run_is_whole(page, 0)
    page.set_viewport_size({"width": 1280, "height": 800})
    with monkeypatch.context() as patch:
        patch.setattr("ui.run.values.proposals_value", decided_late)
        a_vote_that_is_decided_late_is_seen_where_it_is_decided(page)
    for place in range(1, len(KINDS)):
        open_run_at(page, place)
        an_opened_run_is_whole(page, place)
    assert not page.locator("#sessions-delete").is_visible()
    sites.run_tools(page).keyboard.press("Escape")
    page.locator("#sessions-delete").wait_for(state="hidden")


def open_run_at(page: Any, place: int) -> None:
    page.locator(".sp-open").nth(place).click()
    page.locator(".sp-selected .sp-open").and_(page.locator(".sp-open").nth(place)).wait_for()
    sites.wait_notice(page, "Finished: ", "sessions")
    sites.wait_drawn(page, "sessions")


def an_opened_run_is_whole(page: Any, place: int) -> None:
    looks.at_rest(page)
    becomes(page, CUT, ["still"], list(OPENED))
    becomes(page, SEEN_RUN, [True, 2, False])
    why = page.locator("#sessions-docked [data-name=why]")
    if why.get_attribute("aria-pressed") != "true":  # a run with votes or routing opens on Who
        why.click()
    page.locator("#sessions-inspector .ss-bar").first.wait_for()
    becomes(page, WHY_BELOW, [])
    assert page.evaluate(HITS), "the token that is explained is among the bars"
    for faults in (looks.overlaps, looks.covered_parts):
        assert faults(page) == [], place
    sites.dock(page, "who", "sessions")
    becomes(page, WHO_BELOW, [], "sessions")
    sites.shot(page, f"sessions-opened-{place}")


# A vote that is decided late: the depth at which the drafters differ, and the vote's sentence.
SPLIT = 8
LATE = (
    "ssm-stories won. All 5 agree on tokens 1 to 7. They split at token 8: “␣book” weight 3.90 of "
    "5.00, 4 drafters, against “␣make” 1.10, 1 drafter. Of the 4 that drafted it ssm-stories is "
    "the heaviest. 6 of its 8 tokens were accepted (75 %), above the running mean of 41.5 %: its "
    "weight rises from 1.10 to 1.18, after all are rescaled to mean 1."
)
# `last`: the last depth that is wholly in sight in Who.
VOTE_SEEN = """() => {
  const pane = document.querySelector("#sessions-dock .sp-pane-who");
  const box = pane.querySelector(".ss-scroll").getBoundingClientRect();
  const [names, ...depths] = pane.querySelectorAll(".ss-votes thead th");
  const from = names.getBoundingClientRect().right;
  const seen = depths.filter((one) => {
    const { left, right } = one.getBoundingClientRect();
    return left >= from - 1 && right <= box.right + 1;
  });
  const said = pane.querySelector(".ss-vote-said");
  const isWhole = said.scrollHeight <= said.clientHeight + 1
    && said.getBoundingClientRect().bottom <= pane.getBoundingClientRect().bottom;
  return { last: parseInt(seen.at(-1)?.textContent ?? 0), isWhole, said: said.textContent };
}"""

VOTE_BOX = "document.querySelector('#sessions-proposals .ss-scroll')"


def decided_late(frame: Frame) -> dict[str, Any]:
    value = proposals_value(frame)
    tokens = [token for row in value["rows"].values() for token in row.values()]
    if not tokens:
        return value
    rows = {}
    for slot in value["drafters"]:
        ids = [*range(1, SPLIT), 100 + (slot == "1")]
        rows[slot] = {
            str(j): tokens[0] | {"t": " token", "id": ids[j], "depth": j + 1, "parent": j - 1}
            for j in range(SPLIT)
        }
    return value | {"rows": rows, "winner": "4", "sentence": LATE}


def a_vote_that_is_decided_late_is_seen_where_it_is_decided(page: Any) -> None:
    page.locator("#sessions-scrubber [data-r='3']").click()
    expected = {"last": SPLIT, "isWhole": True, "said": LATE}
    for large in (False, True):
        looks.large_type(page, large)
        becomes(page, VOTE_SEEN, expected)
    looks.large_type(page, False)
    page.evaluate(f"() => {{ {VOTE_BOX}.scrollLeft = 0; }}")
    for stage in ("verify", "commit"):
        page.locator(f"#sessions-tree [data-stage={stage}]").first.click()
        page.locator(f"#sessions-tree [data-stage={stage}][aria-current]").wait_for()
        looks.at_rest(page)
        assert page.evaluate(f"() => {VOTE_BOX}.scrollLeft") == 0
    page.locator("#sessions-scrubber [data-r='4']").click()
    becomes(page, VOTE_SEEN, expected)
