"""The Sessions tab in a real Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.synthetic import HOSTILE_TEXTS
from tests.ui import sites
from tests.ui.browser.looks import at_rest, frames
from tests.ui.fakes import endless, recorded
from tests.ui.past import REQUEST, about, open_run, record_run, run_ids
from tests.ui.reading import becomes, click_in_motion, read, saved_file
from tests.ui.sites import OpenPage, OpenSite, Served, Stage
from tests.ui.test_browser_change import WATCH_HAND, still
from tests.ui.test_studies import study
from ui.run.player import Pace, Player
from ui.server.context import Context
from ui.shared.studies import Studies

pytestmark = pytest.mark.browser

TABS = ("live", "sessions")
FORM = """(boxes) => boxes.map((box) =>
  document.querySelector(`#${box} :is(input, textarea)`).value)"""
ASKED_FORM = {
    "prompt": REQUEST.prompt,
    "sampling-max_new_tokens": "33",
    "sampling-temperature": "0.7",
    "sampling-seed": "12",
    "sampling-stop": "END\nx y",
    "field-weight_bounds": "0.125,3.5",
    "preset": "own settings",
}
PAGES = """() => ["previous", "next"].map((name) => {
  const turn = document.querySelector(`#sessions-${name}`);
  return [!turn.disabled, Number(getComputedStyle(turn).opacity) === 1];
})"""
NOTE = "() => document.querySelector('#sessions-note textarea').value"
ROUND = "() => document.querySelector('#sessions-scrubber .ss-columns').ariaValueNow"
# The shown round in a list, once the round is above `low` and below `high`.
BETWEEN = """([low, high]) => {
  const at = Number(document.querySelector("#sessions-scrubber .ss-columns").ariaValueNow);
  return low < at && at < high && [at];
}"""


def open_row(page: Any, place: int, run_id: str) -> None:
    page.locator(".sp-open").nth(place).click()
    about(page, run_id)


def count_said(page: Any, words: str, rows: int) -> None:
    page.locator("#sessions-said").get_by_text(words).wait_for()
    becomes(page, "() => document.querySelectorAll('#sessions-runs tbody tr').length", rows)


def test_a_past_run_goes_into_live_is_noted_and_rerun(
    short: Served, browser_page: OpenPage
) -> None:
    url, context = short
    run_id = record_run(context)
    page = sites.wait_ready(browser_page(url))
    its_settings_fill_lives_form(page, context, run_id)
    runs_as_filled_in(page, context)
    note = note_is_kept_and_found(page, context, run_id)
    another_run_has_another_note(page, context, run_id, note)
    files_are_saved(page, run_id)
    again_it_writes_the_same_text(page, context)


def its_settings_fill_lives_form(page: Any, context: Context, run_id: str) -> None:
    """Filling Live's form begins no run, although "Run on change" was on."""
    worker: Any = context.hub.worker
    page.evaluate(WATCH_HAND)
    sites.open_drawer(page).get_by_label("Run on change").check()
    sites.close_drawer(page)
    open_run(page, run_id)
    page.click("#sessions-into-live")
    sites.wait_notice(page, '"Run on change" is switched off for that.')
    becomes(page, "() => document.querySelector('#live-onchange input').checked", False)
    sites.open_drawer(page).get_by_text("Every setting of the engine").click()
    becomes(page, FORM, [*ASKED_FORM.values()], [*ASKED_FORM])
    sites.shows(page, "combine", "vote")
    sites.shows(page, "length", "goodput")
    still(page, 0)
    assert worker.requests == [REQUEST]


def runs_as_filled_in(page: Any, context: Context) -> None:
    worker: Any = context.hub.worker
    sites.close_drawer(page).click("#live-run")
    sites.wait_notice(page, "Finished: ")
    assert worker.requests == [REQUEST, REQUEST]


def note_is_kept_and_found(page: Any, context: Context, run_id: str) -> str:
    sites.sessions(page)
    count_said(page, "2 runs.", 2)
    open_row(page, 1, run_id)
    note = " ".join(text.replace("\r", "").replace("\x00", "") for text in HOSTILE_TEXTS)
    sites.run_tools(page).fill("#sessions-note textarea", note)
    page.click("#sessions-keep-note")
    about(page, "The note is saved; the search finds its words.")
    assert context.store.run(run_id).note == note
    page.get_by_role("button", name="Filter and order").click()
    page.locator("#sessions-noted input").check()
    count_said(page, "1 run.", 1)
    page.locator("#sessions-runs .sp-note").wait_for()
    assert page.evaluate("() => globalThis.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    page.locator("#sessions-noted input").uncheck()
    count_said(page, "2 runs.", 2)
    return note


def another_run_has_another_note(page: Any, context: Context, run_id: str, note: str) -> None:
    newest, _ = run_ids(context)
    open_row(page, 0, newest)
    becomes(page, NOTE, "")
    open_row(page, 1, run_id)
    becomes(page, NOTE, note)
    assert not sites.overflows(page)
    sites.shot(page, "sessions-note")


def files_are_saved(page: Any, run_id: str) -> None:
    # While a file is sent, clicks on its button are dropped, so the second `json` comes last.
    for name in ("json", "csv", "trace", "html", "json"):
        file, content = saved_file(page, lambda name=name: page.click(f"#sessions-save-{name}"))
        assert file.startswith(f"{run_id}.")
        about(page, f"Saved as {file}.")
        assert json.loads(content) if name in ("json", "trace") else len(content) > 100


def again_it_writes_the_same_text(page: Any, context: Context) -> None:
    earlier = {*run_ids(context)}
    at_rest(page)
    before = sites.strip_text(page, "sessions")
    page.click("#sessions-again")
    sites.wait_notice(page, "This run wrote the same text as the one before", "sessions")
    becomes(page, "() => document.querySelector('#sessions-strip').innerText", before)
    page.locator("#sessions-figures .ss-figure").first.hover()
    page.locator("#ss-tip").get_by_text("the previous run: ").wait_for(state="attached")
    (new,) = {*run_ids(context)} - earlier
    about(page, new)
    becomes(page, "() => document.querySelectorAll('#sessions-runs tr.sp-selected').length", 1)
    sites.shot(page, "sessions-again")


def player_of(context: Context, run_id: str) -> Player:
    (player,) = (
        desk.player
        for (_, page), desk in context.tab_sessions._sessions.items()
        if page == "sessions" and desk.player and desk.player.source.run_id == run_id
    )
    return player


def test_pages_that_do_not_exist_are_not_offered(
    short: Served, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.sessions.history.ROWS_A_PAGE", 1)
    url, context = short
    for _ in range(2):
        record_run(context)
    page = sites.wait_ready(browser_page(url))
    sites.sessions(page)
    previous, following = (page.locator(f"#sessions-{name}") for name in ("previous", "next"))
    for words, before, after, press in (
        ("page 1 of 2", False, True, following),
        ("page 2 of 2", True, False, previous),
    ):
        page.locator("#sessions-said").get_by_text(words).wait_for()
        becomes(page, PAGES, [[before, before], [after, after]])
        press.click()
    page.locator("#sessions-said").get_by_text("page 1 of 2").wait_for()


def test_a_past_run_is_opened_by_a_row_played_paused_and_stepped_through(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, context = site(recorded(60), slowdown=0.01)
    run_id = record_run(context)
    context.store.annotate(run_id, "a \u202enote\u202c of mine")
    page = sites.wait_ready(browser_page(url))
    sites.sessions(page)
    row = page.locator("table.sp-runs tbody tr").first
    row.locator(".sp-note").get_by_text("✎ a ⟨RLO⟩note⟨PDF⟩ of mine").wait_for()
    a_row_opens_but_text_in_it_can_be_marked(page, row, run_id)
    a_picture_becomes_files(page)
    a_column_leads_to_its_round(page)
    buttons_step_round_by_round(page)
    player = stopped_while_it_plays(page, context, run_id)
    a_pace_is_taken_up_at_once(page, player)
    play_pauses_at_the_end_of_a_round(page, player)


def a_row_opens_but_text_in_it_can_be_marked(page: Any, row: Any, run_id: str) -> None:
    at_rest(page)
    asks: list[str] = []

    def note_ask(request: Any) -> None:
        asks.append(request.post_data or "")

    page.on("request", note_ask)
    cell = row.locator(".sp-col-settings").bounding_box()
    page.mouse.move(cell["x"] + 10, cell["y"] + 8)
    page.mouse.down()
    page.mouse.move(cell["x"] + 90, cell["y"] + 8, steps=5)
    page.mouse.up()
    assert page.evaluate("() => getSelection().toString()")
    frames(page)
    assert not any(run_id in ask for ask in asks), "marking text opens nothing"
    row.locator(".sp-col-when").dblclick()  # the double click also marks a word
    sites.wait_notice(page, "Finished: ", "sessions")
    about(page, run_id)
    assert any(run_id in ask for ask in asks)
    page.remove_listener("request", note_ask)


def a_picture_becomes_files(page: Any) -> None:
    tree = page.locator("#sessions-tree")
    tree.locator(".ss-tools").hover()  # shows the buttons that “⋯” hides
    _, svg = saved_file(page, tree.get_by_role("button", name="as SVG").click)
    assert b"LLM" in svg and not any(mark in svg for mark in (b"href=", b"url(http", b"<image"))
    _, png = saved_file(page, tree.get_by_role("button", name="as PNG").click)
    assert png.startswith(b"\x89PNG") and len(png) > 2000


def a_column_leads_to_its_round(page: Any) -> None:
    page.locator("#sessions-stop[disabled]").wait_for(state="attached")
    assert page.locator("#sessions-stop").is_hidden(), "there only while something plays"
    for round_number in (60, 1, 7):
        page.locator(f"#sessions-scrubber [data-r='{round_number - 1}']").click()
        becomes(page, ROUND, str(round_number))


def rewound(page: Any) -> None:
    page.click("#sessions-rewind")
    sites.wait_notice(page, "you are at round 0 of 60", "sessions")


def buttons_step_round_by_round(page: Any) -> None:
    sites.speed(page, "step", "sessions")
    rewound(page)
    selected = "#sessions-strip .ss-round[data-r='{}'][aria-pressed=true]"
    for number in (1, 2):
        page.click("#sessions-round-next")
        sites.wait_notice(page, f"you are at round {number} of 60.", "sessions")
        page.locator(selected.format(number - 1)).wait_for()
    page.click("#sessions-round-previous")
    page.locator(selected.format(0)).wait_for()


def stopped_while_it_plays(page: Any, context: Context, run_id: str) -> Player:
    assert page.locator("#sessions-stop").is_disabled()
    page.click("#sessions-play")
    page.locator("#sessions-stop:not([disabled])").wait_for()
    click_in_motion(page, "#sessions-stop")
    page.locator("#sessions-stop[disabled]").wait_for(state="attached")
    player = player_of(context, run_id)
    assert player.stage // 4 < 60
    return player


def a_pace_is_taken_up_at_once(page: Any, player: Player) -> None:
    sites.speed(page, "1", "sessions")
    sites.until(page, lambda: player.pace == Pace("slow", 1.0))
    sites.speed(page, "step", "sessions")
    sites.until(page, lambda: player.pace.mode == "step")


def play_pauses_at_the_end_of_a_round(page: Any, player: Player) -> None:
    rewound(page)
    click_in_motion(page, "#sessions-play")
    sites.wait_notice(page, re.compile(r"you are at round [1-9]\d* of 60"), "sessions")
    assert read(page, BETWEEN, [0, 60])
    click_in_motion(page, "#sessions-play")
    sites.until(page, lambda: player.pace.mode == "step")
    becomes(page, ROUND, str((player.stage + 3) // 4))
    assert 0 < player.stage < 240
    sites.speed(page, "full", "sessions")
    sites.wait_notice(page, "Finished: ", "sessions")


def test_two_tabs_follow_stop_and_delete_a_run(site: OpenSite, browser_page: OpenPage) -> None:
    url, context = site(endless, slowdown=20.0)
    source = context.hub.start(REQUEST, "")
    one = sites.wait_ready(browser_page(url))
    sites.until(one, lambda: run_ids(context) == [source.run_id])  # opening the tab reads the list
    sites.sessions(one)
    one.locator(".sp-open").first.click()
    sites.wait_notice(one, re.compile(r"Writing: \d+ tokens"), "sessions")
    about(one, "It is under way")
    (first,) = read(one, BETWEEN, [-1, 400])
    read(one, BETWEEN, [first + 3, 400])
    click_in_motion(one, "#sessions-stop")
    sites.wait_notice(one, "Stopped: ", "sessions")
    assert source.is_done
    one.locator("#sessions-about").get_by_text("It is under way").wait_for(state="hidden")
    one.locator("#sessions-runs").get_by_text("cancelled").first.wait_for()

    two = sites.wait_ready(browser_page(url))
    sites.sessions(two)
    open_row(two, 0, source.run_id)
    sites.run_tools(two).click("#sessions-delete")
    two.click("#sessions-sure")
    two.locator("#sessions-runs").get_by_text("No runs yet").wait_for()
    two.locator("#sessions-opened").wait_for(state="hidden")
    assert run_ids(context) == []
    sites.shot(two, "sessions-all-deleted")
    sites.run_tools(one).fill("#sessions-note textarea", "too late")
    for button in ("keep-note", "save-json", "into-live"):
        where = "**/queue/join**" if button == "save-json" else "**/run/predict**"
        with one.expect_response(where):
            one.click(f"#sessions-{button}")
        about(one, f"run_id is '{source.run_id}': no such run")
    assert one.locator("#sessions-about").is_visible(), "Live is not opened"
    one.click("#sessions-delete")
    one.click("#sessions-sure")
    sites.wait_notice(one, "already deleted", "sessions")
    one.locator("#sessions-opened").wait_for(state="hidden")


def test_a_study_is_opened_in_its_tab_and_deleted_from_the_list(
    stages: Callable[..., Stage], browser_page: OpenPage
) -> None:
    whole = stages(())
    whole.clear()
    url, context = whole.play(recorded(8), slowdown=0.0)
    grid = study(context, "tune", repeats=1)
    Studies(context, None, "me").begin(grid)
    assert context.conductor.wait(30)
    page = sites.wait_ready(browser_page(url))
    sites.sessions(page)
    page.get_by_role("button", name="Studies").click()
    studies = page.locator("#sessions-studies")
    studies.get_by_text("Grid, ").first.wait_for()
    sites.shot(page, "sessions-studies")
    studies.locator(".sp-open").first.click()
    page.locator("#tune-progress").get_by_text(grid.title).first.wait_for()
    sites.sessions(page)
    page.locator("#sessions-runs .sp-open").first.click()
    about(page, "It was made for a grid")
    studies.get_by_role("button", name="Delete ").click()
    studies.get_by_role("button", name="Yes, delete").click()
    studies.get_by_text("None yet.").wait_for()
    page.locator("#sessions-about").get_by_text("It was made for a grid").wait_for(state="hidden")
    page.locator("#sessions-study").wait_for(state="hidden")
