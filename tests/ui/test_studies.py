"""Studies on their board and in the list of studies, with a fake worker and a real log."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from core.config import SamplingParams, SpeculationConfig
from core.errors import ConfigError, StoreError, StudyError, UnknownStudyError
from lab.progress import Progress
from lab.prompts import StudyPrompt
from lab.study import Configuration, Study, plain_configuration
from storage import RunQuery
from storage.process import start_mark
from tests.ui.fakes import endless, script_of
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.history import CallerRights
from ui.sessions.retention import about_run
from ui.shared.past_studies import listed_studies, press_list
from ui.shared.studies import STUDIES_A_PAGE, OpenedStudy, Studies, new_study, title_of
from ui.shared.study_board import build_study_board
from ui.shared.study_handlers import (
    StudyBoard,
    StudyPictures,
    begin_study,
    look_at_study,
    press_button,
    show_when_opened,
)
from ui.shared.study_words import left_words, progress_value

TREE = Configuration("specinfer", SpeculationConfig.preset("specinfer"))


def study(context: Context, kind: str = "compare", prompts: int = 1, repeats: int = 2) -> Study:
    study_prompts = tuple(StudyPrompt(str(i), f"Once {i}") for i in range(prompts))
    sampling = SamplingParams(max_new_tokens=16)
    return new_study(
        context, kind, sampling, (plain_configuration(), TREE), study_prompts, repeats=repeats
    )


def study_in_log(context: Context, kind: str = "compare", owner: str = "") -> Study:
    one = study(context, kind)
    context.store.studies.save(one.to_plain(), len(one), owner)
    return one


def make_runs_slow(context: Context) -> None:
    context.hub.worker.set_script(endless, slowdown=5.0)


def mine(context: Context, owner: str | None = None, key: str = "me") -> Studies:
    return Studies(context, owner, key)


def wait_for_end(context: Context) -> None:
    assert context.conductor.wait(30)


def test_warming_up_another_study_and_a_busy_log_are_reported_in_words() -> None:
    row = SimpleNamespace(study_id="s", title="T", state="running", done=3, total=8, reason="")
    warming = Progress("s", "compare", "me", "running", "", 3, 8, is_warming_up=True)
    bar = progress_value(row, warming, "compare")
    assert bar["state_words"].startswith("Warming up") and bar["words"] == "3 of 8"
    bar = progress_value(row, replace(warming, is_warming_up=False), "compare")
    assert bar["state_words"] == "Running"
    bar = progress_value(row, replace(warming, state="waiting"), "compare")
    assert bar["state_words"].startswith("Waiting"), "a study that waits is not warming up"
    busy = Progress("s9", "tune", "", "running", done=3, total=9, remaining_s=12.0)
    value = progress_value(None, busy, "compare")
    assert value["beside"] == (
        "Another grid is being measured now: 3 of 9, about 12 s left. One runs at a time."
    )
    assert value["beside_study"] == "" and value["ask_ms"] == 1000
    assert progress_value(None, busy, "tune")["beside_study"] == "s9"
    assert "another visitor's" in progress_value(None, Progress(state="running"), "tune")["beside"]
    assert progress_value(None, Progress(), "tune")["ask_ms"] == 5000
    row = SimpleNamespace(study_id="s", title="t", total=4)
    now = Progress(
        "s", "tune", "", "running", total=4, log_error="The log is busy: trying again (x)."
    )
    assert progress_value(row, now, "tune")["more"] == "The log is busy: trying again (x)."


def test_a_study_is_begun_listed_opened_and_deleted(context: Context) -> None:
    begun_now = study(context)
    mine(context).begin(begun_now)
    wait_for_end(context)
    (row,) = mine(context).rows("compare")
    assert (row.state, row.done, row.owner) == ("completed", 4, "me")
    opened = mine(context).open(row.study_id)
    assert opened.study == begun_now and set(opened.results) == set(begun_now.cells())
    assert mine(context).latest("compare") == row.study_id
    assert mine(context).latest("tune") == "" and mine(context).rows("tune") == ()
    mine(context).delete(row.study_id)
    assert mine(context).rows() == ()
    assert context.store.runs(RunQuery()).total == 4
    assert mine(context).of_run(opened.results[begun_now.cells()[0]].run_id) is None


def test_a_run_leads_to_its_study_and_no_visitor_to_anothers(context: Context) -> None:
    mine(context, "eve", "eve").begin(one := study(context, repeats=1))
    wait_for_end(context)
    (run_id, *_) = (row.run_id for row in context.store.runs(RunQuery()).rows)
    assert mine(context, "eve", "eve").of_run(run_id).study_id == one.study_id
    assert mine(context, "bob", "bob").of_run(run_id) is None
    assert mine(context).of_run("gone") is None
    about = about_run(context, CallerRights(None, True), run_id)
    assert about[-1].visible and about[-1].value == "Open its comparison"
    assert f"made for a comparison: {one.title}" in str(about[1])
    assert not about_run(context, CallerRights(None, True), "gone")[-1].visible


def test_elsewhere_a_study_is_its_owners_alone(context: Context) -> None:
    eve, bob = mine(context, "eve", "eve"), mine(context, "bob", "bob")
    make_runs_slow(context)
    eve.begin(one := study(context))
    for act in (bob.open, bob.stop, bob.resume, bob.delete):
        with pytest.raises(UnknownStudyError, match="no such study of yours"):
            act(one.study_id)
    assert bob.rows() == () and len(eve.rows()) == 1 == len(mine(context).rows())
    progress = bob.progress()
    assert (
        progress.is_active
        and progress.total == 4
        and not progress.study_id
        and progress.cell is None
    )
    assert eve.progress().study_id == one.study_id
    with pytest.raises(StudyError, match="one at a time"):
        bob.begin(study(context))


def test_a_running_study_cannot_be_deleted_and_a_complete_one_not_resumed(
    context: Context,
) -> None:
    make_runs_slow(context)
    mine(context).begin(one := study(context))
    with pytest.raises(StudyError, match="stop it first"):
        mine(context).delete(one.study_id)
    mine(context).stop(one.study_id)
    wait_for_end(context)
    context.hub.worker.set_script(script_of(4), slowdown=0.0)
    mine(context).resume(one.study_id)
    wait_for_end(context)
    assert mine(context).rows()[0].done == 4
    with pytest.raises(StudyError, match="is complete"):
        mine(context).resume(one.study_id)


def test_a_study_that_another_server_measures_is_left_alone(context: Context) -> None:
    one = study_in_log(context)
    parent = (os.getppid(), start_mark(os.getppid()))
    with closing(sqlite3.connect(context.store.path)) as raw, raw:
        sets = "state = 'running', pid = ?, process_start = ?"
        raw.execute(f"UPDATE studies SET {sets}", parent)
    for act in (mine(context).resume, mine(context).delete):
        with pytest.raises(StudyError, match="being measured"):
            act(one.study_id)


def test_a_cell_that_was_broken_off_leaves_no_run(context: Context) -> None:
    make_runs_slow(context)
    mine(context).begin(one := study(context))
    while not context.conductor.progress().cell:
        context.conductor.wait(0.005)
    mine(context).stop(one.study_id)
    wait_for_end(context)
    context.store.flush()
    assert context.store.runs(RunQuery()).total == 0


def test_a_title_names_configurations_and_prompts() -> None:
    few = (plain_configuration(), TREE)
    many = tuple(Configuration("x" * 10 + str(i), TREE.speculation) for i in range(9))
    one = (StudyPrompt("1", "Once\n upon " + "a " * 90),)
    assert title_of(few, one).startswith("plain decoding, specinfer: Once upon a a")
    assert title_of(many, (*one, StudyPrompt("2", "b"))) == "9 configurations: 2 prompts"


def test_time_left_is_rounded() -> None:
    assert left_words(None) == ""
    words_by_seconds = {0.2: "1 s", 40.4: "40 s", 89: "89 s", 90: "2 min", 5400: "2 h"}
    for seconds, words in words_by_seconds.items():
        assert left_words(seconds) == f"about {words} left"


@cache
def layout() -> tuple[StudyBoard, gr.HTML]:
    with gr.Blocks():
        board: Any = build_study_board(None, "compare", "compare")
        board.studies.render()
        return board, gr.HTML()


class Tab:
    """A browser tab. Its picture is the number of measured cells (-1: no study)."""

    def __init__(self, context: Context) -> None:
        board, picture = layout()
        self.board = StudyBoard(context, "compare", "compare", board.progress, board.studies)
        self.desk, self.mine = TabSession(), mine(context)
        self.drawn = StudyPictures((picture,), self.draw)
        self.draws: list[int] = []

    def draw(self, opened: OpenedStudy | None) -> list[Any]:
        self.draws.append(len(opened.results) if opened else -1)
        return [{"cells": self.draws[-1]}]

    def look(self, opening: bool = False) -> list[Any]:
        return look_at_study(self.board, self.desk, self.mine, self.drawn, opening)

    def press(self, do: str, study_id: str = "", **data: Any) -> list[Any]:
        event = {"do": do, "study": study_id, **data}
        return press_button(self.board, self.desk, self.mine, self.drawn, event)

    def begin(self, study: Study) -> list[Any]:
        return begin_study(self.board, self.desk, self.mine, self.drawn, lambda: study)


def test_a_board_begins_follows_and_shows_the_end(context: Context) -> None:
    tab = Tab(context)
    assert tab.look(opening=True)[0]["title"] == "No comparison yet" and tab.draws == [-1]
    one = study(context)
    bar = tab.begin(one)[0]
    assert bar["study"] == one.study_id and bar["total"] == 4
    wait_for_end(context)
    bar, listed, picture = tab.look()
    assert (bar["state"], bar["words"]) == ("completed", "4 of 4")
    assert bar["stop"] is bar["go"] is False
    assert picture["cells"] == 4 and listed["rows"]["0"]["cells"] == "4 of 4"
    unchanged = tab.look()
    assert unchanged[0] == bar and unchanged[1]["__type__"] == "update" == unchanged[2]["__type__"]


def test_another_tab_reattaches_and_stops(context: Context) -> None:
    make_runs_slow(context)
    one = study(context)
    Tab(context).begin(one)
    other = Tab(context)
    bar = other.look(opening=True)[0]
    assert bar["study"] == one.study_id and bar["stop"] and bar["ask_ms"] == 1000
    other.press("stop", one.study_id)
    wait_for_end(context)
    bar = other.look()[0]
    assert bar["state"] == "stopped" and bar["go"] and not bar["stop"] and bar["ask_ms"] == 5000
    context.hub.worker.set_script(script_of(4), slowdown=0.0)
    other.press("go", one.study_id)
    wait_for_end(context)
    assert other.look()[0]["state"] == "completed"


def test_a_tab_keeps_the_study_that_it_shows_while_another_is_measured(context: Context) -> None:
    tab, old, new = Tab(context), study(context), study(context)
    tab.begin(old)
    wait_for_end(context)
    make_runs_slow(context)
    Tab(context).begin(new)
    bar = tab.look()[0]
    assert bar["study"] == old.study_id and bar["beside_study"] == new.study_id
    bar = tab.press("show", new.study_id)[0]
    assert bar["study"] == new.study_id and "beside" not in bar
    show_when_opened(tab.desk, old.study_id)
    assert tab.look(opening=True)[0]["study"] == old.study_id, (
        "shown once, though another is measured"
    )
    assert tab.look(opening=True)[0]["study"] == new.study_id


def test_a_study_deleted_elsewhere_is_replaced_at_the_next_look(context: Context) -> None:
    tab, other, deleted, one = Tab(context), Tab(context), study(context), study(context)
    for each in (deleted, one):
        tab.begin(each)
        wait_for_end(context)
    assert [other.look(opening=True)[0]["state"], other.look()[0]["trouble"]] == ["completed", ""]
    tab.press("delete", deleted.study_id)
    bar, listed, _ = other.look()
    assert bar["study"] == one.study_id and not bar["trouble"], "only another study was deleted"
    assert [row["study"] for row in listed["rows"].values()] == [one.study_id]
    tab.press("delete", one.study_id)
    bar, listed, _ = other.look()
    assert (bar["study"], bar["state"], listed["rows"]) == ("", "none", {})
    assert "was deleted" in bar["trouble"] and other.draws[-1] == -1
    assert other.look()[1]["__type__"] == "update", "the list is not drawn again"


def test_an_old_study_that_no_list_has_room_for_is_not_deleted(context: Context) -> None:
    tab, old = Tab(context), study_in_log(context)
    tab.press("open", old.study_id)
    for _ in range(12):
        study_in_log(context)
    assert tab.look()[0]["study"] == old.study_id
    context.store.studies.delete(old.study_id)
    assert "was deleted" in tab.look()[0]["trouble"]


def test_trouble_is_cleared_once_a_study_resumes_and_a_second_click_makes_none(
    context: Context,
) -> None:
    tab, one = Tab(context), study_in_log(context)
    resume, refused = context.conductor.resume, StudyError("locked by another program")

    def refuse(study: Study, owner: str = "") -> None:
        raise refused

    context.conductor.resume = refuse
    assert tab.press("open", one.study_id)[0]["trouble"] == ""
    assert tab.press("go", one.study_id)[0]["trouble"] == str(refused)
    assert tab.look()[0]["trouble"] == str(refused), "until the study resumes"
    context.conductor.resume = resume
    make_runs_slow(context)
    Tab(context).press("go", one.study_id)
    assert tab.look()[0]["trouble"] == ""
    assert tab.press("go", one.study_id)[0]["trouble"] == "", "the study has resumed already"


def test_trouble_of_a_failed_look_is_cleared_by_the_next(context: Context) -> None:
    tab, one = Tab(context), study_in_log(context)
    read, tab.desk.study.study_id = context.store.studies.study, one.study_id

    def fail(study_id: str) -> Any:
        raise StoreError("runs.db: locked by another program")

    context.store.studies.study = fail
    assert "locked" in tab.look()[0]["trouble"]
    context.store.studies.study = read
    assert tab.look()[0]["trouble"] == ""


def test_a_study_that_no_server_measures_is_interrupted_and_can_be_resumed(
    context: Context,
) -> None:
    one = study_in_log(context)
    context.store.studies.set_state(one.study_id, "running")
    bar = Tab(context).look(opening=True)[0]
    assert bar["state"] == "interrupted" and bar["go"] and not bar["stop"]
    assert "server ended" in bar["state_words"]
    assert mine(context).rows()[0].state == "interrupted"
    context.conductor.unsaved_state = lambda _: ("failed", "disk full")
    bar, listed, _ = Tab(context).look(opening=True)
    assert (bar["state"], bar["more"], bar["go"]) == ("failed", "disk full", True)
    assert listed["rows"]["0"]["state"] == "failed"
    assert mine(context).line(one.study_id).reason == "disk full"


def test_errors_stay_on_the_board_until_the_next_press(context: Context) -> None:
    tab, one = Tab(context), study(context)
    tab.begin(one)
    wait_for_end(context)
    bar = tab.press("go", one.study_id)[0]
    assert "is complete" in bar["trouble"] and bar["study"] == one.study_id
    assert "is complete" in tab.look()[0]["trouble"]
    assert tab.press("open", one.study_id)[0]["trouble"] == ""

    def refuse() -> Study:
        raise ConfigError("repeats is 0: it must be a whole number")

    bar = begin_study(tab.board, tab.desk, tab.mine, tab.drawn, refuse)[0]
    assert bar["trouble"] == "repeats is 0: it must be a whole number"


def test_a_prompt_that_is_too_long_is_reported_and_its_study_is_not_kept(
    context: Context,
) -> None:
    tab, one = Tab(context), study(context, prompts=2)
    long = replace(one.prompts[1], text="And so on " * 6000)
    bar = tab.begin(replace(one, prompts=(one.prompts[0], long)))[0]
    assert bar["trouble"].startswith('prompt 1 ("And so on')
    assert bar["state"] == "none" and mine(context).rows() == ()


def test_opening_a_study_that_was_deleted_elsewhere_reports_it(context: Context) -> None:
    tab, one = Tab(context), study(context)
    tab.begin(one)
    wait_for_end(context)
    Tab(context).press("delete", one.study_id)
    bar = tab.press("open", one.study_id)[0]
    assert "was deleted" in bar["trouble"] and bar["state"] == "none" and tab.draws[-1] == -1


def test_the_list_has_pages(context: Context) -> None:
    for _ in range(10):
        context.store.studies.set_state(study_in_log(context).study_id, "stopped")
    tab = Tab(context)
    first = tab.look(opening=True)[1]
    assert len(first["rows"]) == 8 and first["older"] and not first["newer"]
    second = tab.press("page", by=1)[1]
    assert len(second["rows"]) == 2 and second["newer"] and not second["older"]
    assert len(tab.press("page", by=1)[1]["rows"]) == 2


def rows(values: list[Any]) -> list[dict[str, Any]]:
    return list(values[0]["rows"].values())


def test_studies_of_every_kind_are_in_one_list(context: Context) -> None:
    ids = [study_in_log(context, kind).study_id for kind in ("compare", "tune", "prompts")]
    shown = rows(listed_studies(TabSession(), mine(context)))
    assert [row["study"] for row in shown] == ids[::-1], "the newest first"
    kinds = [row["when"].split(",")[0] for row in shown]
    assert kinds == ["Study of prompts", "Grid", "Comparison"]
    assert all(row["state"] == "stopped" and row["cells"] == "0 of 4" for row in shown)


def test_a_visitor_sees_and_deletes_its_own_alone(context: Context) -> None:
    theirs, own = (
        study_in_log(context, "tune", "bob").study_id,
        study_in_log(context, "tune", "eve").study_id,
    )
    eve, desk = mine(context, "eve", "eve"), TabSession()
    assert [row["study"] for row in rows(listed_studies(desk, eve))] == [own]
    refused = press_list(desk, eve, {"do": "delete", "study": theirs})
    assert "no such study of yours" in refused[1]["lines"]["0"]["text"]
    assert len(mine(context).rows()) == 2


def test_after_the_last_one_is_deleted_none_is_shown(context: Context) -> None:
    one, desk = study_in_log(context, "compare").study_id, TabSession()
    before = listed_studies(desk, mine(context))
    after = press_list(desk, mine(context), {"do": "delete", "study": one})
    assert rows(after) == [] and not after[0]["newer"] and not after[0]["older"]
    assert "Deleted" in after[1]["lines"]["0"]["text"]
    assert after[0]["n"] > before[0]["n"], "an older answer that arrives late does not replace it"
    repeated = press_list(desk, mine(context), {"do": "delete", "study": one})
    assert "no such study" in repeated[1]["lines"]["0"]["text"]


def test_the_list_is_paged_and_never_past_its_end(context: Context) -> None:
    ids = [study_in_log(context, "compare").study_id for _ in range(STUDIES_A_PAGE + 1)]
    desk = TabSession()
    first = listed_studies(desk, mine(context))
    assert len(rows(first)) == STUDIES_A_PAGE and first[0]["older"] and not first[0]["newer"]
    second = press_list(desk, mine(context), {"do": "page", "by": 1})
    assert [row["study"] for row in rows(second)] == ids[:1] and second[0]["newer"]
    after = press_list(desk, mine(context), {"do": "delete", "study": ids[0]})
    assert len(rows(after)) == STUDIES_A_PAGE, "the previous page, since this page is empty"
    assert len(rows(press_list(desk, mine(context), {"do": "page", "by": "x"}))) == STUDIES_A_PAGE


def test_a_study_being_measured_is_marked_in_the_list_and_not_deleted(context: Context) -> None:
    make_runs_slow(context)
    tune_study = study(context, "tune")
    mine(context).begin(tune_study)
    desk = TabSession()
    (row,) = rows(listed_studies(desk, mine(context)))
    assert row["live"] and row["state"] in ("running", "waiting")
    refused = press_list(desk, mine(context), {"do": "delete", "study": tune_study.study_id})
    assert "stop it first" in refused[1]["lines"]["0"]["text"]
    mine(context).stop(tune_study.study_id)
    wait_for_end(context)
