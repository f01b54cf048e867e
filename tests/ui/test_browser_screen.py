"""Live in a real Chromium: one screen, the race, one place for every picture."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest

from bench.page.playback import playback
from core.events import RoundCompleted
from tests.synthetic import MINIONS, Mechanisms, synthetic_run
from tests.ui import decoded, sites
from tests.ui.browser import looks
from tests.ui.browser.looks import turn_to
from tests.ui.fakes import as_asked, recorded, request
from tests.ui.past import record_run
from tests.ui.predicted import RoundCost, predicted_speedup
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, Stage
from ui.run.baselines import keep_baseline, round_ends_ms
from ui.run.explain import probability, quote
from ui.run.frame import Baseline
from ui.run.view import reduce_all
from ui.run.what_if import what_if_value

pytestmark = pytest.mark.browser

PARTS = ("race", "text", "tree", "scrubber", "dock")
SIZES = ((1280, 800), (1920, 1080))
ROUNDS = 12
# Each part's box as far as it is in the window, in parts of the box; and whether the page scrolls.
SEEN = """(parts) => [...parts.map((part) => {
  const all = document.querySelectorAll(`[data-part=${part}]`);
  if (all.length !== 1) return `${all.length} of ${part}`;
  const box = all[0].getBoundingClientRect();
  const whole = box.left >= 0 && box.top >= 0 && box.right <= innerWidth + 0.5
    && box.bottom <= innerHeight + 0.5 && box.width > 100 && box.height > 30;
  return whole ? part : `${part}: ${JSON.stringify(box)}`;
}), document.documentElement.scrollHeight <= innerHeight ? "still" : "scrolls"]"""


@pytest.fixture
def live(stages: Any) -> Stage:
    """The page with Live and Sessions and an empty log."""
    stage: Stage = stages(("live", "sessions"))
    stage.clear()
    stage.play(recorded(ROUNDS))
    return stage


def race(page: Any) -> Any:
    """A run and the race after it, to their ends."""
    sites.open_drawer(page).get_by_label("Race plain decoding").check()
    sites.ran(sites.close_drawer(page))
    page.locator("#live-figures .ss-race-same").get_by_text("same text").wait_for()
    page.locator("#live-figures .ss-race-speed").get_by_text("3 blocks").wait_for()
    return page


# How high the race is, and the lines of its sentence.
RACE = """() => {
  const verdict = document.querySelector("#live-figures .ss-verdict");
  const line = parseFloat(getComputedStyle(verdict).lineHeight);
  const box = document.querySelector("[data-part=race]").getBoundingClientRect();
  return [Math.round(verdict.getBoundingClientRect().height / line), box.height];
}"""
# A thin bar that every system shows: a style of its own takes the place of the system's.
BAR = """() => getComputedStyle(
  document.querySelector("#live-strip .ss-scroll"), "::-webkit-scrollbar").width"""


# How high the windows of text and tree are.
HEIGHTS = """() => ["#live-strip .ss-scroll", "#live-tree .ss-window"].map((css) =>
  document.querySelector(css).getBoundingClientRect().height)"""


def test_large_type_takes_no_height_from_the_tree_and_the_text_says_that_it_goes_on(
    live: Stage, browser_page: OpenPage
) -> None:
    page = race(sites.wait_ready(browser_page(live.url)))
    page.set_viewport_size({"width": 1920, "height": 1080})
    looks.at_rest(page)
    assert page.evaluate(BAR) == "9px"
    lines, high = page.evaluate(RACE)
    looks.large_type(page, True)
    large, higher = page.evaluate(RACE)
    assert (lines, large) == (1, 1) and higher < high + 14
    looks.large_type(page, False)
    # On a notebook the dock gives up height for both.
    page.set_viewport_size({"width": 1280, "height": 800})
    looks.at_rest(page)
    ordinary = page.evaluate(HEIGHTS)
    looks.large_type(page, True)
    text, tree = (
        large / small for large, small in zip(page.evaluate(HEIGHTS), ordinary, strict=True)
    )
    assert text > 1.15 and tree > 1.15
    looks.large_type(page, False)


def test_live_is_one_screen_before_and_after_a_run(live: Stage, browser_page: OpenPage) -> None:
    page = sites.wait_ready(browser_page(live.url))
    expected = [*PARTS, "still"]
    for after in (False, True):
        if after:
            race(page)
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            looks.at_rest(page)
            becomes(page, SEEN, expected, list(PARTS))
            for large in (True, False):
                looks.large_type(page, large)
                becomes(page, SEEN, expected, list(PARTS))
            sites.shot(page, f"screen-{width}-{'after' if after else 'before'}")
    for width, height in reversed(SIZES):
        page.set_viewport_size({"width": width, "height": height})
        for name in ("who", "when", "length", "inside", "whatif", "requests", "why"):
            sites.dock(page, name)
            looks.at_rest(page)
            becomes(page, SEEN, expected, list(PARTS))
            for faults in (looks.overlaps, looks.tiny_texts, looks.covered):
                assert faults(page) == [], (width, name)


# Of each pane the parts that answer its question.
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
    ),
    "inside": ("#live-mask .ss-mask-svg", "#live-mask .ss-mask-said"),
    "whatif": ("#live-what_if .ss-what-if-plot", "#live-what_if .ss-what-if-said"),
    "why": ("#live-inspector .ss-sentence", "#live-inspector .ss-meant"),
}
# Which of them are not whole in sight.
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


# Whether the selected round is in sight: the accepted path in the tree, from the root to the LLM's
# own token, and the text.
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


def test_other_type_or_another_screen_keeps_the_selected_round_in_sight(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(playback(synthetic_run(24, seed=5, drafters=FIVE, mechanisms=MINIONS)))
    page = sites.wait_ready(browser_page(live.url, still=True))
    page.set_viewport_size({"width": 1280, "height": 800})
    sites.ran(page)
    for number in (4, 20):
        page.locator(f"#live-scrubber [data-r='{number - 1}']").click()
        for width, height in (*SIZES, *SIZES):
            page.set_viewport_size({"width": width, "height": height})
            looks.at_rest(page)
            becomes(page, SHOWN_YET, [True, True])
            for large in (True, False):
                looks.large_type(page, large)
                becomes(page, SHOWN_YET, [True, True])


# How many lines the text's legend takes; the proposals' chips whose words touch their right edge.
LINES = """() => new Set([...document.querySelectorAll("#live-strip .ss-legend-item")]
  .filter((one) => one.checkVisibility()).map((one) => one.offsetTop)).size"""
TOUCHING = """() => [...document.querySelectorAll("#live-proposals .ss-chip")].filter((chip) => {
  const words = [...chip.children].filter((one) => one.checkVisibility()).at(-1);
  return words.getBoundingClientRect().right > chip.getBoundingClientRect().right - 3;
}).map((chip) => chip.textContent)"""
# The heads of the text's table that are not whole in sight.
HEADS_CUT = """() => {
  const table = document.querySelector("#live-strip .ss-table").getBoundingClientRect();
  return [...document.querySelectorAll("#live-strip .ss-table th")].filter((head) => {
    const { left, right } = head.getBoundingClientRect();
    return left < table.left - 1 || right > table.right + 1 || head.scrollWidth > head.clientWidth;
  }).map((head) => head.textContent);
}"""


def test_legend_table_and_chips_are_whole_at_the_smaller_size(
    live: Stage, browser_page: OpenPage
) -> None:
    page = sites.dock(sites.wait_ready(browser_page(live.url, width=1280, height=800)), "who")
    for uses in (MINIONS, None):
        live.play(playback(synthetic_run(24, seed=5, drafters=FIVE, mechanisms=uses)))
        sites.ran_again(page, live.context) if uses is None else sites.ran(page)
        becomes(page, LINES, 1)
        page.locator("#live-proposals .ss-chip").first.wait_for()
        becomes(page, TOUCHING, [])
        tools = page.locator("#live-strip .ss-tools")
        tools.hover()
        tools.get_by_text("Table").click()
        page.locator("#live-strip .ss-table td").first.wait_for()
        becomes(page, HEADS_CUT, [])
        tools.get_by_text("Table").click()
        sites.shot(page, f"whole-1280-{'minions' if uses else 'specinfer'}")


# The largest letters of the tree's tokens, in pixels of the screen.
LETTERS = """() => {
  const zoom = Number(document.querySelector("#live-tree .ss-viewport").dataset.zoom);
  const texts = [...document.querySelectorAll("#live-tree .ss-node-text")];
  return zoom * Math.max(...texts.map((one) => parseFloat(one.getAttribute("font-size"))));
}"""


def test_large_type_enlarges_a_tree_that_fills_its_pane(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(playback(synthetic_run(24, seed=5, drafters=FIVE)))
    page = sites.wait_ready(browser_page(live.url, still=True, width=1920, height=1080))
    sites.ran(page)
    looks.at_rest(page)
    before = page.evaluate(LETTERS)
    looks.large_type(page, True)
    becomes(page, SHOWN_YET, [True, True])
    assert page.evaluate(LETTERS) > 1.2 * before
    # What is out of sight is one press away.
    viewport = "document.querySelector('#live-tree .ss-viewport')"
    page.evaluate(f"() => {{ {viewport}.scrollTop = {viewport}.scrollLeft = 0; }}")
    more = page.locator("#live-tree .ss-more:not([hidden])")
    more.filter(has_text=re.compile("[→↓]")).first.click()
    becomes(page, f"() => {viewport}.scrollTop + {viewport}.scrollLeft > 0", True)
    more.filter(has_text=re.compile("[←↑]")).first.click()
    becomes(page, f"() => {viewport}.scrollTop + {viewport}.scrollLeft", 0)
    # From a notebook to a projector, and back: as large as if it had been switched on there.
    there = page.evaluate(LETTERS)
    page.set_viewport_size({"width": 1280, "height": 800})
    looks.at_rest(page)
    page.set_viewport_size({"width": 1920, "height": 1080})
    becomes(page, f"() => Math.abs(({LETTERS})() - {there}) < 0.1", True)


# The longest words of When, of five SSMs in batched passes.
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


def test_beside_why_all_words_of_when_are_in_sight(live: Stage, browser_page: OpenPage) -> None:
    page = race(sites.wait_ready(browser_page(live.url, still=True)))
    page.set_viewport_size({"width": 1920, "height": 1080})
    sites.dock(page, "when")
    looks.at_rest(page)
    page.evaluate(LONGEST, [WHEN_WORDS, WHEN_REMARKS])
    becomes(page, HIDDEN, [], ["when", list(ANSWERS["when"])])


def test_every_pane_answers_in_sight_at_the_smaller_size(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(recorded(ROUNDS, mechanisms=MINIONS))
    page = race(sites.wait_ready(browser_page(live.url)))
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for name, parts in ANSWERS.items():
            sites.dock(page, name)
            looks.at_rest(page)
            becomes(page, HIDDEN, [], [name, list(parts)])
    page.set_viewport_size({"width": 1280, "height": 800})
    sites.dock(page, "when")
    high = page.locator("#live-figures").bounding_box()
    for name, least in (("timeline", 2), ("figures", 7)):
        tools = page.locator(f"#live-{name} .ss-tools")
        tools.hover()
        tools.get_by_text("Table").click()
        looks.at_rest(page)
        assert page.evaluate(ROWS, name) >= least
    # The figures' table lies over what is below, where the button that closes it is in sight.
    assert page.locator("#live-figures").bounding_box() == high
    tools.get_by_text("Table").click()
    assert page.locator("#live-figures .ss-table").is_hidden()


# Which of these boxes are not whole in the window, and whether the page scrolls.
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
    """Of each SSM, accepted of proposed by the run's events."""
    view = sites.desk_of(live.context, where).frame().view
    counts = [view.scoreboard.get(name, (0, 0)) for name in view.slots]
    return [f"{got} of {of}" if of else "–" for got, of in counts]


def test_sessions_are_a_list_beside_the_opened_run(live: Stage, browser_page: OpenPage) -> None:
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    becomes(page, CHIP_SCORES, scores_of(live, "live"))
    sites.open_latest_run(page)
    assert page.evaluate(SCORES) == "hidden", "of Live's run, not of the opened one"
    becomes(page, BESIDE, scores_of(live, "sessions"))
    assert page.locator("#live-figures .ss-score").count() == 0, "the header's chips are it"
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


def test_what_to_press_in_sessions_is_a_line_and_not_a_column(
    live: Stage, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(live.url))
    turn_to(page, "Sessions")
    for width, height in (*SIZES, (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        looks.at_rest(page)
        words = page.get_by_text("Open a run from the list.")
        assert words.bounding_box()["height"] < 75, width


FIVE = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
KINDS: tuple[tuple[tuple[str, ...], Mechanisms | None], ...] = (
    (FIVE, MINIONS),
    (FIVE, Mechanisms(routing="cosine", draft="fused")),
    (FIVE[:2], None),
)
# The tree's window in pixels, and what is longer than a person reads among what is in sight.
SEEN_RUN = """() => {
  const about = document.querySelector("#sessions-about .sp-shell").getBoundingClientRect();
  const lines = [...document.querySelectorAll("#sessions-about .sp-line")].filter((line) =>
    line.getBoundingClientRect().top < about.bottom - 2);
  const high = document.querySelector("#sessions-tree .ss-window").getBoundingClientRect().height;
  return [high >= 220 || high,
    lines.length, /[0-9a-f]{32}/.test(lines.map((line) => line.textContent).join(" "))];
}"""


# Of the open Who the drafters whose rows are not whole in its box, and a chart of weights that is
# too low to be read. Routing has the box for itself, and the pane scrolls.
WHO_BELOW = """() => {
  const pane = document.querySelector("#sessions-dock .sp-pane-who");
  if (pane.querySelector(".ss-routing[data-routed]")) return [];
  const box = pane.querySelector(".ss-proposals .ss-scroll").getBoundingClientRect();
  const cut = [...pane.querySelectorAll(".ss-votes tbody tr")]
    .filter((row) => row.getBoundingClientRect().bottom > box.bottom + 1)
    .map((row) => row.querySelector(".ss-who").textContent);
  const chart = pane.querySelector(".ss-proposals .ss-mini-svg");
  const high = chart.checkVisibility() ? chart.getBoundingClientRect().height : 0;
  return high && high < 90 ? [...cut, `chart of ${high}`] : cut;
}"""
# Of the open Why what lies below its own box.
WHY_BELOW = """() => {
  const body = document.querySelector("#sessions-inspector .ss-body").getBoundingClientRect();
  const parts = ":is(.ss-sentence, .ss-inspected-title, .ss-bar)";
  return [...document.querySelectorAll(`#sessions-inspector ${parts}`)]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().bottom > body.bottom + 1)
    .map((one) => one.textContent);
}"""
HITS = """() => [...document.querySelectorAll("#sessions-inspector .ss-bar[data-hit]")]
  .filter((one) => one.checkVisibility()).length"""


def test_of_an_opened_run_the_tree_is_seen_whatever_the_run(
    live: Stage, browser_page: OpenPage
) -> None:
    for drafters, uses in KINDS:
        live.play(playback(synthetic_run(24, seed=5, drafters=drafters, mechanisms=uses)))
        run_id = record_run(live.context)
        # The longest that is said of a speed.
        note = "plain decoding in the same study, same prompt and repeat"
        keep_baseline(live.context.store, run_id, Baseline(100.0, "", note))
    page = sites.wait_ready(browser_page(live.url))
    page.set_viewport_size({"width": 1280, "height": 800})
    for place in range(len(KINDS)):
        sites.sessions(page)
        page.locator(".sp-open").nth(place).click()
        page.locator(".sp-selected .sp-open").and_(page.locator(".sp-open").nth(place)).wait_for()
        sites.wait_notice(page, "Finished: ", "sessions")
        sites.wait_drawn(page, "sessions")
        for width, height in reversed(SIZES):
            page.set_viewport_size({"width": width, "height": height})
            looks.at_rest(page)
            becomes(page, CUT, ["still"], list(OPENED))
            becomes(page, SEEN_RUN, [True, 2, False])
            why = page.locator("#sessions-docked [data-name=why]")
            if why.get_attribute("aria-pressed") != "true":  # a routed run opens on Who
                why.click()
            page.locator("#sessions-inspector .ss-bar").first.wait_for()
            becomes(page, WHY_BELOW, [])
            assert page.evaluate(HITS), "the token that is explained is among the bars"
            for faults in (looks.overlaps, looks.covered):
                assert faults(page) == [], (place, width)
            sites.dock(page, "who", "sessions")
            becomes(page, WHO_BELOW, [])
        sites.shot(page, f"sessions-1280-{place}")
    assert not page.locator("#sessions-delete").is_visible()
    sites.run_tools(page).keyboard.press("Escape")
    page.locator("#sessions-delete").wait_for(state="hidden")


FIRST = "() => document.querySelector('a[href], button, input, textarea, [tabindex]').className"


def test_keys_skip_to_the_pictures(live: Stage, browser_page: OpenPage) -> None:
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    skip = page.locator(".sp-skip")
    assert page.evaluate(FIRST) == "sp-skip", "the first that Tab comes to"
    skip.focus()
    assert skip.bounding_box()["width"] > 100, "seen while it has the focus"
    page.keyboard.press("Enter")
    becomes(page, "() => document.activeElement.closest('[id$=-scrubber]')?.id", "live-scrubber")
    assert skip.bounding_box()["width"] < 2


LANES = """() => [...document.querySelectorAll("#live-figures .ss-race-lane")]
  .map((lane) => [lane.dataset.lane, Number(lane.dataset.passes), Number(lane.dataset.tokens)])"""


# Of each clock of the race, whether it is on and whether it cannot be chosen.
CLOCK = """() => [...document.querySelectorAll("#live-figures .ss-clock input")]
  .map((input) => [input.labels[0].textContent, input.checked, input.disabled])"""
TIMES = """(wanted) => wanted.every((_, i) => {
  const count = document.querySelectorAll("#live-figures .ss-lane-count")[i];
  const [, seconds, tokens] = /^([\\d.]+) s → (\\d+) tokens?$/.exec(count.textContent) ?? [];
  return Math.abs(1000 * seconds - wanted[i][0]) < 6 && Number(tokens) === wanted[i][1];
})"""


def test_the_race_says_what_the_events_say(live: Stage, browser_page: OpenPage) -> None:
    page = race(sites.wait_ready(browser_page(live.url, still=True)))
    desk = sites.desk_of(live.context)
    events = desk.player.source.events(0, desk.player.source.count)
    tokens = [len(one.token_ids) for one in events if isinstance(one, RoundCompleted)]
    verdict = page.locator("[data-part=verdict]")
    assert verdict.inner_text() == (
        f"The same {sum(tokens)} tokens in {len(tokens)} LLM passes instead of {sum(tokens)}."
    )
    # On the measured clock, which is on now that there are times, a lane's time stops with its
    # last pass.
    becomes(page, CLOCK, [["time", True, False], ["passes", False, False]])
    plain, end = desk.baseline.passes, round_ends_ms(reduce_all(events))[-1]
    done = sum(ms <= end + 0.01 for ms in plain)
    spent = min(end, plain[-1]) if done == len(plain) else end
    page.wait_for_function(TIMES, arg=[[spent, done], [end, sum(tokens)]])
    clock = page.get_by_role("radiogroup", name="Clock of the race")
    clock.get_by_role("radio", name="time").press("ArrowRight")
    becomes(page, CLOCK, [["time", False, False], ["passes", True, False]])
    passes = len(tokens)
    becomes(page, LANES, [["plain", passes, passes], ["ours", passes, sum(tokens)]])
    page.locator("#live-scrubber [data-r='3']").click()
    becomes(page, LANES, [["plain", 4, 4], ["ours", 4, sum(tokens[:4])]])
    clock.get_by_text("time").click()
    page.locator("#live-scrubber [data-r]").last.click()
    page.wait_for_function(TIMES, arg=[[spent, done], [end, sum(tokens)]])
    assert re.fullmatch(
        r"\d+\.\d\dx the speed of plain decoding \(\d+\.\d\d to \d+\.\d\d in 3 blocks\)"
        r"(: no.*)?",
        page.locator("#live-figures .ss-race-speed").inner_text(),
    )


def test_the_race_goes_by_passes_until_plain_decoding_is_timed(
    live: Stage, browser_page: OpenPage
) -> None:
    untimed = [["time", False, True], ["passes", True, False]]
    page = sites.wait_ready(browser_page(live.url, still=True))
    sites.ran(page)
    becomes(page, CLOCK, untimed)
    race(page)
    becomes(page, CLOCK, [["time", True, False], ["passes", False, False]])
    # The log has no times of plain decoding's passes, and Sessions no clock to choose.
    sites.open_latest_run(page)
    page.locator("#sessions-figures .ss-race-speed").get_by_text("3 blocks").wait_for()
    becomes(page, CLOCK.replace("#live", "#sessions"), [])


def test_a_page_that_came_before_the_recording_plays_it_once_it_is_there(
    live: Stage, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = synthetic_run(ROUNDS)
    events = (as_asked(first, request()), *others)
    source = SimpleNamespace(is_done=False, count=len(events), events=lambda *_: events)
    monkeypatch.setattr(live.context.opening, "_source", source)
    page = sites.wait_ready(browser_page(live.url, still=True))
    assert not page.locator("#live-strip .ss-round").count()
    source.is_done = True
    sites.wait_notice(page, "This is a recorded run")
    page.locator("#live-strip .ss-round").first.wait_for()


def test_a_double_click_on_run_is_one_run(live: Stage, browser_page: OpenPage) -> None:
    page = sites.wait_ready(browser_page(live.url, still=True))
    before = len(live.worker.runs)
    page.locator("#live-run").dblclick()
    sites.wait_run(page)
    sites.wait_form_settled(sites.wait_drawn(page))
    assert len(live.worker.runs) - before == 1


# What every picture says of where one is.
PLACE = """() => {
  const of = (css, pick) => {
    const node = document.querySelector(css);
    return node && pick(node);
  };
  const number = (node) => Number(/\\d+/.exec(node.textContent)?.[0]);
  const tree = of("#live-tree .ss-round-name", number);
  return [
    tree, of("#live-tree .ss-stage[aria-current]", (node) => node.dataset.stage),
    of("#live-scrubber .ss-column[aria-current]", (node) => Number(node.dataset.r) + 1),
    of("#live-strip .ss-round[aria-pressed=true]", (node) => Number(node.dataset.r) + 1),
    of("#live-scrubber .ss-at", (node) => node.textContent),
  ];
}"""


def at(page: Any, round_number: int, stage: str) -> None:
    """Wait until every picture says this place."""
    message = f"Round {round_number} of {ROUNDS}"
    becomes(page, PLACE, [round_number, stage, round_number, round_number, message])


def test_one_place_for_tokens_stages_keys_columns_and_the_link(
    live: Stage, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    page.locator("#live-strip [data-r='4']").first.click()
    at(page, 5, "commit")
    page.locator("#live-tree [data-stage=verify]").click()
    at(page, 5, "verify")
    page.locator("body").press(",")
    at(page, 5, "combine")
    page.locator("body").press(".")
    at(page, 5, "verify")
    page.locator("body").press("ArrowLeft")
    at(page, 4, "commit")
    # A column is a place to go to from its top to its foot, whatever was accepted.
    column = page.locator("#live-scrubber [data-r='7']")
    column.click(position={"x": 3, "y": 2})
    at(page, 8, "commit")
    page.locator("#live-scrubber .ss-columns").press("End")
    at(page, ROUNDS, "commit")
    page.locator("#live-tree [data-stage=draft]").click()
    at(page, ROUNDS, "draft")
    page.click("#live-step-back")
    at(page, ROUNDS - 1, "commit")


# Which node is selected in the tree, which token in the text; of what the dock's answer is.
SELECTED = """() => {
  const all = (css) => [...document.querySelectorAll(css)];
  return [
    all("#live-tree .ss-node[aria-pressed=true]").map((node) => node.dataset.key),
    all("#live-strip .ss-tok[data-chosen]").map((token) => Number(token.dataset.i)),
    document.querySelector("#live-inspector .ss-inspected-title").textContent,
  ];
}"""
# Of each model in the dock, its name and the probability of the token that is explained.
EXPLAINED = """() => [...document.querySelectorAll("#live-inspector .ss-source")].map((source) => [
  source.querySelector(".ss-source-name > :last-child").textContent,
  source.querySelector(".ss-bar[data-hit] .ss-bar-number")?.textContent ?? null,
])"""


def test_a_token_of_the_text_is_explained_by_its_own_node(
    live: Stage, browser_page: OpenPage
) -> None:
    """The dock's title, sentence and bars and the tree's node are those of the recorded events; the
    LLM's own token has no node, and the round's end explains it."""
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    recording = decoded.latest_run(live.context)
    for number, kind in ((4, "after a rejection"), (8, "a bonus")):
        tree, verdict = recording.combined[number], recording.verified[number]
        first = sum(len(one.token_ids) for one in recording.completed[:number])
        assert len(verdict.path) + 1 == len(recording.completed[number].token_ids)
        texts = page.locator(f"#live-strip .ss-round[data-r='{number}'] .ss-tok")
        for i, node in enumerate(verdict.path):
            texts.nth(i).click()
            at(page, number + 1, "commit")
            title = f"{quote(tree.texts[node])} at depth {i + 1}, proposed by "
            title += ", ".join(labels(recording, tree.drafters_of(node)))
            becomes(page, SELECTED, [[str(node)], [first + i], title])
            before = quote(tree.texts[tree.parents[node]] if i else tree.root_text)
            said = probability(verdict.llm_probabilities[node])
            words = f"Accepted: after {before} the LLM's most probable token is "
            assert sentence_of(page) == f"{words}{quote(tree.texts[node])} ({said})."
            assert page.evaluate(EXPLAINED)[0] == ["LLM", said]
        texts.last.click()
        own = f"{quote(verdict.own_text)}, the LLM's own token"
        own += f" {kind}" if verdict.own_kind == "recovered" else f", {kind}"
        becomes(page, SELECTED, [[], [], own])
        assert quote(verdict.own_text) in sentence_of(page)
        # The other way round: a node of the accepted path is a token of the text, others are none.
        for node, outcome in enumerate(verdict.outcomes):
            page.locator(f"#live-tree .ss-node[data-key='{node}']").press("Enter")
            is_text = outcome == "accepted"
            chosen = [first + verdict.path.index(node)] if is_text else []
            becomes(page, f"() => ({SELECTED})().slice(0, 2)", [[str(node)], chosen])


def labels(recording: decoded.Recorded, names: tuple[str, ...]) -> list[str]:
    letters = ["ABC"[recording.started.drafters.index(name)] for name in names]
    if len(names) > 2:
        return letters
    return [f"{letter} ({name})" for letter, name in zip(letters, names, strict=True)]


def sentence_of(page: Any) -> str:
    return str(page.locator("#live-inspector .ss-sentence").text_content())


# How a round's tree is drawn: the places of all nodes, the scale, and whether nodes have numbers.
DRAWN = """() => {
  const svg = document.querySelector("#live-tree .ss-tree-svg");
  const numbers = [...svg.querySelectorAll(".ss-node-p")].some((one) => one.textContent);
  return [
    svg.getAttribute("viewBox"), svg.parentElement.dataset.zoom, numbers,
    !numbers || !document.querySelector("#live-tree .ss-numbers-meant").hidden,
    [...svg.querySelectorAll(".ss-node")].map((node) => node.getAttribute("transform")).sort(),
  ];
}"""
# Of a tree with several levels the share of the panel's width that it takes.
WIDE = """() => {
  const panel = document.querySelector("#live-tree .ss-viewport").getBoundingClientRect();
  const nodes = [...document.querySelectorAll("#live-tree .ss-node")]
    .map((one) => one.getBoundingClientRect());
  const lefts = new Set(nodes.map((one) => Math.round(one.left)));
  return [lefts.size, (Math.max(...nodes.map((one) => one.right)) - panel.left) / panel.width];
}"""


def test_a_rounds_tree_is_drawn_alike_whatever_was_seen_before(
    live: Stage, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(live.url, still=True))
    page.set_viewport_size({"width": 1280, "height": 800})
    sites.ran(page)
    for number in (3, 6, 9):
        drawn = []
        for before in (number - 1, number + 1):
            page.locator(f"#live-scrubber [data-r='{before - 1}']").click()
            at(page, before, "commit")
            page.locator(f"#live-scrubber [data-r='{number - 1}']").click()
            at(page, number, "commit")
            looks.at_rest(page)
            drawn.append(page.evaluate(DRAWN))
            page.locator("#live-tree [data-stage=draft]").click()
            at(page, number, "draft")
            page.locator("#live-tree [data-stage=commit]").click()
            at(page, number, "commit")
            looks.at_rest(page)
            drawn.append(page.evaluate(DRAWN))
        assert drawn == [drawn[0]] * 4, number
        assert drawn[0][3], "what the numbers are is said beside them"
        levels, share = page.evaluate(WIDE)
        assert levels < 4 or share > 0.7, (number, levels, share)


ADDRESS = "() => Object.fromEntries(new URLSearchParams(location.search))"


# Timers end at once, so that the address is known when the call returns: the run in it, and how
# many steps the history got. (Its length ends at 50.)
PLACED = """(value) => {
  const { setTimeout } = window;
  const { pushState } = history;
  let steps = 0;
  window.setTimeout = (call) => { call(); return 0; };
  history.pushState = (...step) => { steps += 1; pushState.apply(history, step); };
  try {
    window.specscopeLink.place("live", value);
  } finally {
    window.setTimeout = setTimeout;
    delete history.pushState;
  }
  return [new URLSearchParams(location.search).get("run"), steps];
}"""


def test_a_run_that_waits_to_begin_is_no_step_of_the_history(
    stages: Any, browser_page: OpenPage
) -> None:
    stage: Stage = stages(())
    stage.clear()
    stage.play(recorded(ROUNDS))
    page = sites.wait_ready(browser_page(stage.url))
    sites.ran(page)
    run = sites.desk_of(stage.context).frame().run_id
    page.wait_for_function("(run) => location.search.includes(run)", arg=run)
    waiting = {"run": "", "sel": -1, "stage": "", "moving": True}
    assert page.evaluate(PLACED, waiting) == [run, 0]
    assert page.evaluate(PLACED, waiting | {"run": "next"}) == ["next", 1]


def test_a_link_of_live_opens_what_is_seen_and_history_goes_through_runs(
    stages: Any, browser_page: OpenPage
) -> None:
    stage: Stage = stages(())
    stage.clear()
    stage.play(recorded(ROUNDS))
    page = sites.wait_ready(browser_page(stage.url))
    page.locator("#prompt textarea").fill("Another prompt")
    sites.choose(page, "preset", "minions")
    sites.number_box(page, "sampling-temperature").fill("0.8")
    sites.ran(sites.wait_form_settled(page))
    first = sites.desk_of(stage.context).frame().run_id
    form, chips = page.evaluate(FORM), page.evaluate(CHIPS)
    page.locator("#live-strip [data-r='4'] .ss-tok").last.click()  # the LLM's own: no node
    page.locator("#live-tree [data-stage=verify]").click()
    at(page, 5, "verify")
    expected = {"__theme": "light", "tab": "live", "run": first, "round": "5", "stage": "verify"}
    becomes(page, ADDRESS, expected)
    link = page.evaluate("() => location.href")
    page.locator("#prompt textarea").fill("A third prompt")
    sites.choose(page, "preset", "sequence")
    sites.wait_form_settled(page)
    sites.ran_again(page, stage.context)
    second = sites.desk_of(stage.context).frame().run_id
    page.wait_for_function("(run) => location.search.includes(run)", arg=second)
    turn_to(page, "Compare")
    page.wait_for_function("() => location.search.includes('tab=compare')")
    page.go_back()
    page.wait_for_function("(run) => location.search.includes(run)", arg=second)
    page.locator("#live-tree").wait_for()
    page.go_back()
    page.wait_for_function("(run) => location.search.includes(run)", arg=first)
    sites.until(page, lambda: sites.desk_of(stage.context).frame().run_id == first)
    becomes(page, FORM, form)
    page.go_forward()
    sites.until(page, lambda: sites.desk_of(stage.context).frame().run_id == second)
    becomes(page, FORM, ["A third prompt", "sequence", "0.8"])
    other = browser_page(stage.url)
    other.goto(link)
    at(other, 5, "verify")
    becomes(other, FORM, form)
    becomes(other, CHIPS, chips)
    sites.wait_form_settled(other)
    assert not other.evaluate("() => document.documentElement.hasAttribute('data-changed')")
    seed = sites.text_box(sites.open_drawer(other), "sampling-seed").input_value()
    assert seed == str(stage.context.store.run(first).seed)
    assert other.locator("#live-strip .ss-tok").count()


# The name of the page, where it is, is what a visitor sees there.
TITLE_SEEN = """() => {
  const box = document.querySelector("#header .sp-title").getBoundingClientRect();
  const seen = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return seen?.closest("#header") !== null;
}"""


def test_a_wrong_link_is_said_on_one_screen_until_the_next_press(
    stages: Any, browser_page: OpenPage
) -> None:
    stage: Stage = stages(())
    stage.clear()
    stage.play(recorded(ROUNDS))
    page = browser_page(stage.url)
    page.goto(f"{stage.url}?__theme=light&tab=nonsense")
    wrong = page.locator("#link-said").get_by_text("tab is 'nonsense': one of live")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        wrong.wait_for()
        looks.at_rest(page)
        becomes(page, SEEN, [*PARTS, "still"], list(PARTS))
        assert page.evaluate(TITLE_SEEN)
    page.set_viewport_size({"width": 390, "height": 844})
    looks.at_rest(page)
    assert page.evaluate(TITLE_SEEN) and not sites.overflows(page)
    page.keyboard.press("Tab")
    wrong.wait_for(state="hidden")


FORM = """() => [document.querySelector("#prompt textarea").value,
  document.querySelector("#preset input").value.split(" ")[0],
  document.querySelector("#sampling-temperature input").value]"""
CHIPS = """() => [...document.querySelectorAll("#header .sp-score b")]
  .map((one) => one.textContent)"""
INSIDE = """() => [...document.querySelectorAll("#live-mask .ss-mask-on")]
  .map((cell) => [Number(cell.dataset.row), Number(cell.dataset.column)]).sort()"""
# The tokens whose names are to be seen, each right of where its row and its column meet.
NAMED = """() => [...document.querySelectorAll("#live-mask .ss-mask-name")]
  .filter((name) => getComputedStyle(name).display !== "none")
  .map((name) => {
    const { row } = name.dataset;
    const cell = document.querySelector(`#live-mask [data-row="${row}"][data-column="${row}"]`);
    const [own, meeting] = [name, cell].map((one) => one.getBoundingClientRect());
    const beside = own.left >= meeting.right && own.left < meeting.right + 8;
    return [Number(row), beside && own.top < meeting.bottom && own.bottom > meeting.top];
  })"""
SLOTS = """() => [...document.querySelectorAll("#live-mask .ss-slots")].map((strip) =>
  [...strip.querySelectorAll(".ss-slot[data-row]")].map((slot) =>
    [Number(slot.dataset.row), Number(slot.querySelector("small").textContent)]))"""

# What looks otherwise than when it was last called with `true`: rows of the mask, slots that are
# outlined, slots that are tinted, nodes of the tree.
HIGHLIGHTED = """(keep) => {
  const looks = new Map();
  const found = { rows: [], outlined: [], tinted: [], nodes: [] };
  const look = (kind, key, style, ...names) => {
    const text = names.map((name) => style[name]).join(" ");
    looks.set(`${kind} ${key}`, text);
    if (keep || text === window.specscopeAtRest.get(`${kind} ${key}`)) return;
    found[kind].push(Number(key));
  };
  for (const one of document.querySelectorAll("#live-mask rect[data-column]"))
    look("rows", one.dataset.row, getComputedStyle(one), "stroke", "strokeWidth");
  for (const one of document.querySelectorAll("#live-mask .ss-slots [data-row]")) {
    look("outlined", one.dataset.row, getComputedStyle(one), "outlineStyle", "outlineWidth");
    look("tinted", one.dataset.row, getComputedStyle(one), "backgroundColor", "borderTopColor");
  }
  for (const one of document.querySelectorAll("#live-tree .ss-node .ss-ring"))
    look("nodes", one.closest(".ss-node").dataset.key, getComputedStyle(one), "stroke");
  if (keep) window.specscopeAtRest = looks;
  return Object.values(found).map((keys) => [...new Set(keys)].sort((a, b) => a - b));
}"""


def test_mask_and_slots_are_the_trees(live: Stage, browser_page: OpenPage) -> None:
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    sites.dock(page, "inside")
    desk = sites.desk_of(live.context)
    number = desk.frame().selected_round
    page.locator(f"#live-scrubber [data-r='{number}']").click()
    detail = desk.player.frame().detail
    tree, verdict = detail.combined, detail.verified
    seen = [[-1, -1]]
    for node in range(len(tree.token_ids)):
        above, at = [[node, node], [node, -1]], tree.parents[node]
        while at >= 0:
            above.append([node, at])
            at = tree.parents[at]
        seen += above
    # JavaScript sorts as text.
    becomes(page, INSIDE, sorted(seen, key=lambda pair: ",".join(map(str, pair))))
    rounds = desk.frame().view.rounds[:number]
    prompt = len(desk.frame().view.started.prompt_token_ids)
    first = prompt + sum(line.emitted for line in rounds) - 1
    nodes = range(len(tree.token_ids))
    before = [[-1, first], *([node, first + 1 + node] for node in nodes)]
    after = [[-1, first], *([node, first + 1 + i] for i, node in enumerate(verdict.path))]
    becomes(page, SLOTS, [before, after])
    page.locator("#live-tree .ss-node[data-key='0']").hover()
    page.locator("#live-mask .ss-mask-said").get_by_text(f"slot {first + 1}, position").wait_for()
    page.locator("#prompt textarea").hover()
    page.locator("#live-mask .ss-mask-said").get_by_text("Point at a node").wait_for()
    becomes(page, HIGHLIGHTED, [[], [], [], []], arg=True)
    deepest = max(nodes, key=tree.depths.__getitem__)
    path = sorted([-1, *(column for row, column in seen if row == deepest and column >= 0)])
    assert len(path) > 3, "the root, two ancestors, the node"
    page.locator(f"#live-tree .ss-node[data-key='{deepest}']").hover()
    becomes(page, HIGHLIGHTED, [[deepest], [deepest], path, path], arg=False)
    # In a low dock the name of the token that is pointed at; where rows are high enough, all.
    becomes(page, NAMED, [[deepest, True]])
    page.set_viewport_size({"width": 1920, "height": 1080})
    becomes(page, NAMED, [[node, True] for node in (-1, *nodes)])


WORDS_CUT = """() => [...document.querySelectorAll("#live-inspector .ss-bar-text")]
  .filter((one) => one.title.length <= 6 && one.scrollWidth > one.clientWidth)
  .map((one) => one.title)"""
BARS_BELOW = """() => {
  const pane = document.querySelector("#live-dock .sp-pane-why").getBoundingClientRect();
  return [...document.querySelectorAll("#live-inspector .ss-bar")]
    .filter((one) => one.getBoundingClientRect().bottom > pane.bottom).length;
}"""


def test_why_and_the_temperature_are_read_at_the_smaller_size(
    live: Stage, browser_page: OpenPage
) -> None:
    page = race(sites.wait_ready(browser_page(live.url)))
    page.set_viewport_size({"width": 1280, "height": 800})
    page.locator("#live-tree .ss-node[data-key='0']").click()
    page.locator("#live-inspector .ss-bar").first.wait_for()
    becomes(page, WORDS_CUT, [])
    becomes(page, BARS_BELOW, 0)
    hint = page.locator("#sampling-temperature").get_by_text("unlikely token")
    assert not hint.is_visible()
    page.locator("#sampling-temperature input").hover()
    hint.wait_for()
    rate = sites.desk_of(live.context).frame().view.stats.draft_acceptance_rate
    hint.get_by_text(f"This run, accepted of depth: {100 * rate:.0f} % at 0.").wait_for()
    box = hint.bounding_box()
    assert box["x"] > 0 and box["x"] + box["width"] < 1280 and box["y"] + box["height"] < 800


def test_a_vote_is_explained_without_a_further_click(live: Stage, browser_page: OpenPage) -> None:
    live.play(recorded(ROUNDS, mechanisms=MINIONS))
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    assert page.locator("#live-dock").get_attribute("data-at") == "why", "a union has no vote"
    sites.choose(page, "preset", "minions")  # which runs it
    page.locator("#live-dock[data-at=who]").wait_for()
    sites.wait_notice(page, "Finished: ")
    page.locator("#live-proposals").get_by_text(re.compile(r" won(\.|:) ")).first.wait_for()
    page.locator("#live-tree").get_by_text("draft won the vote").wait_for()


DOTS = """() => [...document.querySelectorAll("#live-what_if .ss-what-if-dot")]
  .map((dot) => Number(dot.dataset.speedup))"""
SLIDE = """([key, value]) => {
  const input = document.querySelector(`#live-what_if input[data-key=${key}]`);
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def test_what_if_draws_the_formula_and_says_predicted(live: Stage, browser_page: OpenPage) -> None:
    page = race(sites.wait_ready(browser_page(live.url, still=True)))
    sites.dock(page, "whatif")
    page.locator("#live-what_if .ss-what-if-said").get_by_text("Predicted: ").wait_for()
    page.locator("#live-what_if").get_by_text("measured", exact=True).wait_for()
    desk = sites.desk_of(live.context)
    told = what_if_value(desk.frame(), desk.baseline)
    for acceptance, size, trip in ((0.5, 1, 0), (0.9, 8, 0), (0.9, 8, 100)):
        # As the sliders have it: cost and size in powers of two.
        for key, at in (("acceptance", acceptance), ("ratio", -2), ("size", math.log2(size))):
            page.evaluate(SLIDE, [key, at])
        page.evaluate(SLIDE, ["trip_ms", trip])
        cost = RoundCost(
            0.25 * told["pass_ms"], told["pass_ms"], told["plain_ms"], told["other_ms"], trip
        )
        expected = [predicted_speedup(cost, acceptance, k, size) for k in range(17)]
        assert page.evaluate(DOTS) == pytest.approx(expected, abs=2e-3)
    # The sentence is about the slider's own LLM, with the draft depths that the budget allows.
    said = page.locator("#live-what_if .ss-what-if-said")
    page.evaluate(SLIDE, ["trip_ms", 0])
    allowed = max(page.evaluate(DOTS)[: told["most"] + 1])
    said.get_by_text(f"Predicted for an LLM 8.0 times as slow: {allowed:.2f}x (").wait_for()
    page.evaluate(SLIDE, ["size", 0])
    said.get_by_text(f"An LLM 8 times as slow: {allowed:.2f}x (").wait_for()
    page.get_by_role("button", name="As measured").click()
    ratio = page.locator("#live-what_if input[data-key=ratio]").input_value()
    assert 2 ** float(ratio) == pytest.approx(told["step_ms"] / told["pass_ms"], rel=0.1)
    sites.shot(page, "what-if")
