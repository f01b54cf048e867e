"""Live in a real Chromium: the race, the place in the run, and links."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from core.events import RoundCompleted
from tests.synthetic import synthetic_run
from tests.ui import decoded, sites
from tests.ui.browser import looks
from tests.ui.browser.looks import turn_to
from tests.ui.fakes import recorded, request, with_request
from tests.ui.live_screen import PARTS, ROUNDS, SEEN, SIZES, live_stage, race
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, Stage
from ui.run.explain import probability, quote

pytestmark = pytest.mark.browser


@pytest.fixture
def live(stages: Any) -> Stage:
    return live_stage(stages)


FIRST = "() => document.querySelector('a[href], button, input, textarea, [tabindex]').className"


def test_a_run_is_raced_and_gone_through_by_keys_tokens_stages_and_columns(
    live: Stage, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(live.url, still=True))
    a_double_click_is_one_run(page, live)
    the_race_says_what_the_events_say(race(page), live)
    keys_skip_to_the_pictures(page)
    one_place_for_tokens_stages_keys_columns_and_the_link(page)
    a_token_of_the_text_is_explained_by_its_own_node(page, live)
    a_rounds_tree_is_drawn_alike_whatever_was_seen_before(page)
    # The log has no times of plain decoding's passes, so Sessions offers no clock.
    sites.open_latest_run(page)
    page.locator("#sessions-figures .ss-race-speed").get_by_text("3 repeats").wait_for()
    becomes(page, CLOCK.replace("#live", "#sessions"), [])


def keys_skip_to_the_pictures(page: Any) -> None:
    skip = page.locator(".sp-skip")
    assert page.evaluate(FIRST) == "sp-skip", "the first element that Tab reaches"
    skip.focus()
    assert skip.bounding_box()["width"] > 100, "seen while it has the focus"
    page.keyboard.press("Enter")
    becomes(page, "() => document.activeElement.closest('[id$=-scrubber]')?.id", "live-scrubber")
    assert skip.bounding_box()["width"] < 2


LANES = """() => [...document.querySelectorAll("#live-figures .ss-race-lane")]
  .map((lane) => [lane.dataset.lane, Number(lane.dataset.passes), Number(lane.dataset.tokens)])"""


CLOCK = """() => [...document.querySelectorAll("#live-figures .ss-clock input")]
  .map((input) => [input.labels[0].textContent, input.checked, input.disabled])"""
WHOSE = """() => [...document.querySelectorAll("#live-figures .ss-lane-whose"),
  ...document.querySelectorAll("#live-figures [data-key=tokens_per_second]")]
  .map((one) => one.innerText.replace(/^[\\d.]+ /, ""))"""
# Whether each lane shows its entry of `wanted`: the clock in milliseconds, the number of tokens by
# then, and the time of the last token (null if this token is written by then).
TIMES = """(wanted) => wanted.every(([ms, count, last], i) => {
  const [now, end] = document.querySelectorAll("#live-figures .ss-lane-count")[i].children;
  const [, seconds, tokens] = /^([\\d.]+) s → (\\d+) tokens?$/.exec(now.textContent) ?? [];
  const [, later] = /^all \\d+ in ([\\d.]+) s$/.exec(end.textContent) ?? [];
  const isSaid = last === null ? end.hidden : Math.abs(1000 * later - last) < 6;
  return Math.abs(1000 * seconds - ms) < 6 && Number(tokens) === count && isSaid;
})"""


UNTIMED = [["time", False, True], ["passes", True, False]]
TIMED = [["time", True, False], ["passes", False, False]]


def a_double_click_is_one_run(page: Any, live: Stage) -> None:
    before = len(live.worker.runs)
    page.locator("#live-run").dblclick()
    sites.wait_run(page)
    sites.wait_form_settled(sites.wait_drawn(page))
    assert len(live.worker.runs) - before == 1
    # Plain decoding has not been timed, so the race uses the clock of passes.
    becomes(page, CLOCK, UNTIMED)


def test_stop_ends_a_race_and_the_key_of_run_begins_a_new_run(
    live: Stage, browser_page: OpenPage
) -> None:
    live.play(recorded(60), slowdown=20.0)
    page = sites.wait_ready(browser_page(live.url))
    run, stop = page.locator("#live-run"), page.locator("#live-stop")
    page.evaluate("() => document.fonts.ready.then(() => true)")  # another font moves the buttons
    place = run.bounding_box()
    sites.open_drawer(page).get_by_label("Race plain decoding").check()
    sites.close_drawer(page).click("#live-run")
    sites.wait_notice(page, "Writing: ")
    desk = sites.desk_of(live.context)
    live.worker.slowdown = 1.0
    sites.until(page, lambda: desk.side is not None)
    live.worker.slowdown = 20.0
    raced = desk.player
    page.locator("[data-live-state=racing]").wait_for()
    assert stop.bounding_box() == place and not run.is_visible(), "nothing moves"
    page.keyboard.press("r")
    sites.until(page, lambda: desk.side is None and desk.player is not raced)
    live.worker.slowdown = 1.0
    sites.until(page, lambda: desk.side is not None)
    live.worker.slowdown = 20.0
    page.locator("[data-live-state=racing]").wait_for()
    stop.click()
    sites.until(page, lambda: desk.side is None)
    sites.wait_notice(page, "Plain decoding did not finish: ")
    run.wait_for()
    assert not stop.is_visible()


def the_race_says_what_the_events_say(page: Any, live: Stage) -> None:
    desk = sites.desk_of(live.context)
    events = desk.player.source.events(0, desk.player.source.count)
    tokens = [len(one.token_ids) for one in events if isinstance(one, RoundCompleted)]
    verdict = page.locator("[data-part=verdict]")
    assert verdict.inner_text() == (
        f"The same {sum(tokens)} tokens in {len(tokens)} LLM passes instead of {sum(tokens)}."
    )
    becomes(page, CLOCK, TIMED)
    # The times come from the repeat with the median speed-up. A lane stops with its last pass.
    plain, ours = desk.baseline.ends[desk.baseline.median_block]
    end = ours[-1]
    assert len(ours) == len(tokens)
    done = sum(ms <= end + 0.01 for ms in plain)
    spent = min(end, plain[-1]) if done == len(plain) else end
    last = plain[-1] if done < len(plain) else None
    times = [[spent, done, last], [end, sum(tokens), None]]
    page.wait_for_function(TIMES, arg=times)
    becomes(page, WHOSE, ["median of 3", "median of 3", "tokens / s, this run"])
    clock = page.get_by_role("radiogroup", name="Clock of the race")
    clock.get_by_role("radio", name="time").press("ArrowRight")
    becomes(page, CLOCK, [["time", False, False], ["passes", True, False]])
    passes = len(tokens)
    becomes(page, LANES, [["plain", passes, passes], ["ours", passes, sum(tokens)]])
    page.locator("#live-scrubber [data-r='3']").click()
    becomes(page, LANES, [["plain", 4, 4], ["ours", 4, sum(tokens[:4])]])
    clock.get_by_text("time").click()
    page.locator("#live-scrubber [data-r]").last.click()
    page.wait_for_function(TIMES, arg=times)
    assert re.fullmatch(
        r"\d+\.\d\dx the speed of plain decoding \(\d+\.\d\d to \d+\.\d\d in 3 repeats\)"
        r"(: no.*)?",
        page.locator("#live-figures .ss-race-speed").inner_text(),
    )


def test_a_page_that_came_before_the_recording_plays_it_once_it_is_there(
    live: Stage, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = synthetic_run(ROUNDS)
    events = (with_request(first, request()), *others)
    source = SimpleNamespace(is_done=False, count=len(events), events=lambda *_: events)
    monkeypatch.setattr(live.context.opening, "_source", source)
    page = sites.wait_ready(browser_page(live.url, still=True))
    assert not page.locator("#live-strip .ss-round").count()
    source.is_done = True
    sites.wait_notice(page, "This is a recorded run")
    page.locator("#live-strip .ss-round").first.wait_for()


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
    """`round_number` is counted from 1."""
    message = f"Round {round_number} of {ROUNDS}"
    becomes(page, PLACE, [round_number, stage, round_number, round_number, message])


def one_place_for_tokens_stages_keys_columns_and_the_link(page: Any) -> None:
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
    # A column can be clicked at any height.
    column = page.locator("#live-scrubber [data-r='7']")
    column.click(position={"x": 3, "y": 2})
    at(page, 8, "commit")
    page.locator("#live-scrubber .ss-columns").press("End")
    at(page, ROUNDS, "commit")
    page.locator("#live-tree [data-stage=draft]").click()
    at(page, ROUNDS, "draft")
    page.click("#live-step-back")
    at(page, ROUNDS - 1, "commit")


SELECTED = """() => {
  const all = (css) => [...document.querySelectorAll(css)];
  return [
    all("#live-tree .ss-node[aria-pressed=true]").map((node) => node.dataset.key),
    all("#live-strip .ss-tok[data-chosen]").map((token) => Number(token.dataset.i)),
    document.querySelector("#live-inspector .ss-inspected-title").textContent,
  ];
}"""
EXPLAINED = """() => [...document.querySelectorAll("#live-inspector .ss-source")].map((source) => [
  source.querySelector(".ss-source-name > :last-child").textContent,
  source.querySelector(".ss-bar[data-hit] .ss-bar-number")?.textContent ?? null,
])"""


def a_token_of_the_text_is_explained_by_its_own_node(page: Any, live: Stage) -> None:
    """The LLM's own token has no node, so the inspector explains how the round ended."""
    recording = decoded.latest_run(live.context)
    for number, kind in ((4, "the LLM's own token after a rejection"), (8, "a bonus token")):
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
        becomes(page, SELECTED, [[], [], f"{quote(verdict.own_text)}, {kind}"])
        assert quote(verdict.own_text) in sentence_of(page)
        # A node on the accepted path selects its token in the text. Other nodes select no token.
        last = {outcome: node for node, outcome in enumerate(verdict.outcomes)}
        assert len(last) == 3
        for outcome, node in last.items():
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


# How a round's tree is drawn: the view box, the scale, whether nodes have numbers, whether the
# numbers are explained (true without numbers), and the nodes' places.
DRAWN = """() => {
  const svg = document.querySelector("#live-tree .ss-tree-svg");
  const numbers = [...svg.querySelectorAll(".ss-node-p")].some((one) => one.textContent);
  return [
    svg.getAttribute("viewBox"), svg.parentElement.dataset.zoom, numbers,
    !numbers || !document.querySelector("#live-tree .ss-numbers-meant").hidden,
    [...svg.querySelectorAll(".ss-node")].map((node) => node.getAttribute("transform")).sort(),
  ];
}"""
# The number of the tree's levels, and the share of the panel's width that the tree takes.
WIDE = """() => {
  const panel = document.querySelector("#live-tree .ss-viewport").getBoundingClientRect();
  const nodes = [...document.querySelectorAll("#live-tree .ss-node")]
    .map((one) => one.getBoundingClientRect());
  const lefts = new Set(nodes.map((one) => Math.round(one.left)));
  return [lefts.size, (Math.max(...nodes.map((one) => one.right)) - panel.left) / panel.width];
}"""


def a_rounds_tree_is_drawn_alike_whatever_was_seen_before(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    for number in (3, 6):  # round 6 is seen after round 7, which has no draft
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
        assert drawn[0][3], "the numbers on the nodes are explained"
        levels, share = page.evaluate(WIDE)
        assert levels < 4 or share > 0.7, (number, levels, share)


ADDRESS = "() => Object.fromEntries(new URLSearchParams(location.search))"


# Returns the run in the address and the number of new entries in the history. Timers end at once,
# so that the address is set when the call returns.
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


def a_run_that_waits_to_begin_is_no_step_of_the_history(page: Any, run: str) -> None:
    page.wait_for_function("(run) => location.search.includes(run)", arg=run)
    waiting = {"run": "", "sel": -1, "stage": "", "moving": True}
    assert page.evaluate(PLACED, waiting) == [run, 0]
    assert page.evaluate(PLACED, waiting | {"run": "next"}) == ["next", 1]


def test_links_open_what_is_seen_history_goes_through_runs_and_a_wrong_one_is_said(
    stages: Any, browser_page: OpenPage
) -> None:
    stage: Stage = stages(())
    stage.clear()
    stage.play(recorded(ROUNDS))
    page = sites.wait_ready(browser_page(stage.url, forgiven=sites.LEAVING))
    page.locator("#prompt textarea").fill("Another prompt")
    sites.choose(page, "preset", "minions")
    sites.number_box(page, "sampling-temperature").fill("0.8")
    sites.ran(sites.wait_form_settled(page))
    first = sites.desk_of(stage.context).frame().run_id
    form, chips = page.evaluate(FORM), page.evaluate(CHIPS)
    page.locator("#live-strip [data-r='4'] .ss-tok").last.click()  # the LLM's own token: no node
    at(page, 5, "commit")
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
    # Without the browser's storage, a link is opened as by a new visitor.
    page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    page.goto(link)
    at(page, 5, "verify")
    becomes(page, FORM, form)
    becomes(page, CHIPS, chips)
    sites.wait_form_settled(page)
    assert not page.evaluate("() => document.documentElement.hasAttribute('data-changed')")
    seed = sites.text_box(sites.open_drawer(page), "sampling-seed").input_value()
    assert seed == str(stage.context.store.run(first).seed)
    assert page.locator("#live-strip .ss-tok").count()
    a_run_that_waits_to_begin_is_no_step_of_the_history(page, first)
    a_wrong_link_is_said_on_one_screen_until_the_next_press(page, stage)


TITLE_SEEN = """() => {
  const box = document.querySelector("#header .sp-title").getBoundingClientRect();
  const seen = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return seen?.closest("#header") !== null;
}"""


def a_wrong_link_is_said_on_one_screen_until_the_next_press(page: Any, stage: Stage) -> None:
    page.goto(f"{stage.url}?__theme=light&tab=nonsense&dock=x")
    page.locator("#link-said").get_by_text("dock is 'x': it must be one of why, who").wait_for()
    wrong = page.locator("#link-said").get_by_text("tab is 'nonsense': it must be one of live")
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
