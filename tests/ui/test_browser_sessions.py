"""The Sessions tab in a real Chromium: what a visitor does with a past run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.page.looks import at_rest
from tests.synthetic import HOSTILE_TEXTS
from tests.ui.fakes import endless, recorded
from tests.ui.past import ASKED, about, made, opened, run_ids
from tests.ui.sites import (
    OpenPage,
    OpenSite,
    number_box,
    overflows,
    ready,
    said,
    sessions,
    shot,
    shows,
    stands_still,
    strip_text,
    text_box,
    until,
)
from tests.ui.test_studies import study
from ui.context import Context
from ui.studies import Studies

pytestmark = pytest.mark.browser


def holds(page: Any, box: Any, value: str) -> None:
    """Wait until a box has a value: each gets its own, the words of the notice theirs."""
    until(page, lambda: box.input_value() == value)


def test_a_past_runs_settings_open_in_live_and_nothing_runs(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    made(context)
    page = ready(browser_page(url))
    page.locator("#live-onchange").click()
    opened(page)
    page.click("#sessions-into-live")
    said(page, '"Run on change" is switched off for that.')
    holds(page, text_box(page, "prompt"), ASKED.prompt)
    page.get_by_text("Sampling", exact=True).click()
    page.get_by_text("Every setting of the engine").click()
    number_box(page, "sampling-top_p").wait_for()
    holds(page, number_box(page, "sampling-max_new_tokens"), "33")
    holds(page, number_box(page, "sampling-temperature"), "0.7")
    holds(page, text_box(page, "sampling-seed"), "12")
    holds(page, text_box(page, "sampling-stop"), "END\nx y")
    shows(page, "combine", "vote")
    shows(page, "length", "goodput")
    holds(page, text_box(page, "field-weight_bounds"), "0.125,3.5")
    holds(page, text_box(page, "preset"), "own settings")
    page.wait_for_timeout(800)  # a run on change would have begun
    assert len(context.hub.worker.requests) == 1  # type: ignore[attr-defined]
    page.click("#live-run")
    said(page, "Finished: ")
    assert context.hub.worker.requests[1] == ASKED  # type: ignore[attr-defined]


def test_a_note_is_kept_filtered_by_and_is_text(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    run_id, other = made(context), made(context)
    page = ready(browser_page(url))
    sessions(page)
    page.locator(".sp-open").nth(1).click()
    about(page, run_id)
    note = " ".join(text.replace("\r", "").replace("\x00", "") for text in HOSTILE_TEXTS)
    page.fill("#sessions-note textarea", note)
    page.click("#sessions-keep-note")
    about(page, "The note is kept; the search finds its words.")
    assert context.store.run(run_id).note == note
    page.locator("#sessions-noted input").check()
    page.locator("#sessions-said").get_by_text("1 run, page 1 of 1.").wait_for()
    page.locator("#sessions-runs .sp-note").wait_for()
    assert page.evaluate("() => globalThis.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    page.locator("#sessions-noted input").uncheck()
    page.locator("#sessions-said").get_by_text("2 runs, page 1 of 1.").wait_for()
    page.locator(".sp-open").nth(1).wait_for()  # the list may follow its words
    page.locator(".sp-open").nth(0).click()
    about(page, other)
    holds(page, page.locator("#sessions-note textarea"), "")  # another run, another note
    page.locator(".sp-open").nth(1).click()
    about(page, run_id)
    page.wait_for_function(
        "(note) => document.querySelector('#sessions-note textarea').value === note", arg=note
    )
    assert not overflows(page)
    shot(page, "sessions-note")


@pytest.mark.parametrize("name", ["json", "csv", "trace", "html"])
def test_a_press_saves_a_file_named_after_the_run(
    short: tuple[str, Context], browser_page: OpenPage, tmp_path: Path, name: str
) -> None:
    url, context = short
    run_id = made(context)
    page = ready(browser_page(url))
    opened(page)
    for _ in range(2):  # also the same file once more
        with page.expect_download() as download:
            page.click(f"#sessions-save-{name}")
        file = download.value
        assert file.suggested_filename.startswith(f"{run_id}.")
    about(page, f"Saved as {run_id}.")
    file.save_as(tmp_path / "saved")
    text = (tmp_path / "saved").read_text(encoding="utf-8")
    if name in ("json", "trace"):
        assert json.loads(text)
    else:
        assert len(text) > 100


def test_a_run_is_made_again_and_its_text_compared(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    run_id = made(context)
    page = ready(browser_page(url))
    opened(page)
    # Drawn a frame after the notice.
    page.locator("#sessions-strip").get_by_text("Click a token").wait_for()
    before = strip_text(page, "sessions")
    page.click("#sessions-again")
    said(page, "This run wrote the same text as the one before", "sessions")
    until(page, lambda: strip_text(page, "sessions") == before)
    page.locator("#sessions-figures").get_by_text("before: ").first.wait_for()
    new = run_ids(context)
    assert len(new) == 2 and run_id in new
    new.remove(run_id)
    about(page, new[0])
    assert page.locator("#sessions-runs tr.sp-selected").count() == 1
    shot(page, "sessions-again")


def test_a_past_run_plays_pauses_and_goes_on_and_the_slider_goes_with_it(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, context = site(recorded(60), speed=0.01)
    made(context)
    page = ready(browser_page(url))
    opened(page)
    box = page.locator("#sessions-scrub input[type=number]")
    rate = page.locator("#sessions-playback input[type=number]").first
    rate.fill("4")
    rate.press("Enter")
    page.click("#sessions-rewind")
    said(page, re.compile(r"you are at round [1-9]\d* of 60"), "sessions")
    page.wait_for_function(
        "() => { const at = document.querySelector('#sessions-scrub input[type=number]').value;"
        " return at > 0 && at < 60; }"
    )
    page.click("#sessions-pause")
    stands_still(page, box.input_value)
    assert 0 < int(box.input_value()) < 60
    rate.fill("100")
    rate.press("Enter")
    page.click("#sessions-play")
    said(page, "Finished: ", "sessions")
    page.wait_for_function(
        "() => document.querySelector('#sessions-scrub input[type=number]').value === '60'"
    )


def test_rounds_are_gone_through_from_the_start_and_stop_is_there_while_something_plays(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, context = site(recorded(30), speed=0.01)
    run_id = made(context)
    context.store.annotate(run_id, "a \u202enote\u202c of mine")
    page = ready(browser_page(url))
    sessions(page)
    row = page.locator("table.sp-runs tbody tr").first
    row.locator(".sp-note").get_by_text("✎ a ⟨RLO⟩note⟨PDF⟩ of mine").wait_for()
    row.locator(".sp-col-when").dblclick()  # marks a word: nothing more is opened by that
    said(page, "Finished: ", "sessions")
    about(page, run_id)
    stop, box = page.locator("#sessions-stop"), page.locator("#sessions-scrub input[type=number]")
    assert stop.is_visible() and stop.is_disabled()
    for typed, shown in (("999", "30"), ("-3", "0"), ("7", "7")):
        box.fill(typed)
        box.press("Enter")
        until(page, lambda shown=shown: box.input_value() == shown)
        at = "" if shown == "0" else f"round={shown}"
        until(page, lambda at=at: ("round=" in page.url) == bool(at) and at in page.url)
    box.fill("")
    page.wait_for_timeout(700)
    assert box.input_value() == "", "an emptied box is somebody's who types"
    page.locator("#sessions-playback").get_by_text("step", exact=True).click()
    page.click("#sessions-rewind")
    said(page, "you are at round 0 of 30", "sessions")
    for words in (1, 2):
        page.click("#sessions-round-next")
        said(page, f"you are at round {words} of 30.", "sessions")
        page.locator(
            f"#sessions-strip .ss-round[data-r='{words - 1}'][aria-pressed=true]"
        ).wait_for()
    page.click("#sessions-round-previous")
    page.locator("#sessions-strip .ss-round[data-r='0'][aria-pressed=true]").wait_for()
    assert stop.is_disabled()
    page.click("#sessions-play")
    until(page, stop.is_enabled)
    stop.click()
    until(page, stop.is_disabled)
    page.click("#sessions-play")
    until(page, stop.is_enabled)
    assert int(box.input_value()) < 30


def test_text_of_a_row_can_be_marked_without_opening_it(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    made(context)
    page = ready(browser_page(url))
    sessions(page)
    cell = page.locator("table.sp-runs td.sp-col-settings").first
    cell.wait_for()
    at_rest(page)
    box = cell.bounding_box()
    assert box
    page.mouse.move(box["x"] + 10, box["y"] + 14)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 14, steps=5)
    page.mouse.up()
    assert page.evaluate("() => getSelection().toString()")
    page.wait_for_timeout(300)
    assert not page.locator("#sessions-opened").is_visible()
    page.mouse.click(box["x"] + 10, box["y"] + 14)
    page.locator("#sessions-opened").wait_for()


def test_a_run_that_another_tab_deletes_is_told_at_every_press(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    run_id = made(context)
    one, two = ready(browser_page(url)), ready(browser_page(url))
    opened(one)
    opened(two)
    two.click("#sessions-delete")
    two.click("#sessions-sure")
    two.locator("#sessions-runs").get_by_text("No run yet").wait_for()
    two.locator("#sessions-opened").wait_for(state="hidden")
    assert run_ids(context) == []
    one.fill("#sessions-note textarea", "too late")
    for button in ("keep-note", "save-json", "into-live"):
        where = "**/queue/join**" if button == "save-json" else "**/run/predict**"
        with one.expect_response(where):
            one.click(f"#sessions-{button}")
        about(one, f"run_id is '{run_id}': no such run")
    assert one.locator("#sessions-about").is_visible(), "Live is not opened"
    one.click("#sessions-delete")
    one.click("#sessions-sure")
    said(one, "already deleted", "sessions")
    one.locator("#sessions-opened").wait_for(state="hidden")


def test_a_run_of_another_tab_is_followed_and_stopped(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, context = site(endless, speed=20.0)
    source = context.hub.start(ASKED, "")
    page = ready(browser_page(url))
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, re.compile(r"Writing: \d+ tokens"), "sessions")
    about(page, "It is under way")
    rounds = page.locator("#sessions-scrub input[type=number]")
    first = int(rounds.input_value())
    until(page, lambda: int(rounds.input_value()) > first + 3)
    page.click("#sessions-stop")
    said(page, "Stopped: ", "sessions")
    assert source.done
    page.locator("#sessions-about").get_by_text("It is under way").wait_for(state="hidden")
    page.locator("#sessions-runs").get_by_text("cancelled").first.wait_for()
    page.click("#sessions-delete")
    page.click("#sessions-sure")
    page.locator("#sessions-runs").get_by_text("No run yet").wait_for()
    shot(page, "sessions-all-deleted")


def test_a_study_is_opened_in_its_tab_and_deleted_from_the_list(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    one = study(context, "tune", repeats=1)
    Studies(context, None, "me").begin(one)
    assert context.conductor.wait(30)
    page = ready(browser_page(url))
    sessions(page)
    page.get_by_text("Studies: comparisons, grids").click()
    studies = page.locator("#sessions-studies")
    studies.get_by_text("Grid, ").first.wait_for()
    shot(page, "sessions-studies")
    studies.locator(".sp-open").first.click()
    page.locator("#tune-progress").get_by_text(one.title).first.wait_for()
    sessions(page)
    page.locator("#sessions-runs .sp-open").first.click()
    about(page, "It was made for a grid")
    studies.get_by_role("button", name="Delete ").click()
    studies.get_by_role("button", name="Yes, delete").click()
    studies.get_by_text("None yet.").wait_for()
    page.locator("#sessions-about").get_by_text("It was made for a grid").wait_for(state="hidden")
    page.locator("#sessions-study").wait_for(state="hidden")
