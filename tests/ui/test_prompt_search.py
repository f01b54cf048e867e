"""The Prompts tab: its search of past runs, its CSV file, and typed prompts."""

from __future__ import annotations

from collections.abc import Iterator
from csv import DictReader
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from lab.prompts import StudyPrompt
from lab.study import Configuration, Study, plain_configuration
from ui.prompts.export import NOTHING, rows_csv
from ui.prompts.past import MOST_RUNS, FoundPrompts, PastSearch, read_past_runs
from ui.prompts.past_handlers import found_words, known_domains, past_updates
from ui.prompts.run_figures import RunFigures
from ui.prompts.tab import study_updates
from ui.server.context import Context
from ui.server.session import TabSession
from ui.shared.prompt_source import count_notice
from ui.shared.studies import Studies, new_study
from ui.shared.study_handlers import (
    StudyBoard,
    StudyPictures,
    begin_study,
    look_at_study,
    press_button,
)


def run(context: Context, prompt: str, preset: str = "specinfer", owner: str = "me") -> str:
    speculation = SpeculationConfig.preset(preset)
    source = context.hub.start(Request(prompt, SamplingParams(), speculation), owner)
    source.wait_done(10)
    context.store.flush()
    return source.run_id


def search(context: Context, **changes: Any) -> FoundPrompts:
    past_search = PastSearch(**{"owner": None, **changes})
    *_, result = read_past_runs(context, RunFigures(context.store), known_domains(), past_search)
    return result


def study_of_prompts(context: Context, *prompts: StudyPrompt) -> Study:
    both = (plain_configuration(), Configuration("tree", SpeculationConfig.preset("specinfer")))
    return new_study(context, "prompts", SamplingParams(max_new_tokens=8), both, prompts)


def measure(context: Context, *prompts: StudyPrompt) -> Studies:
    studies = Studies(context, None, "me")
    studies.begin(study_of_prompts(context, *prompts))
    assert context.conductor.wait(20)
    context.store.flush()
    return studies


def test_plain_runs_are_a_baseline_though_the_search_leaves_them_out(context: Context) -> None:
    run(context, "Once", "autoregressive")
    run_id = run(context, "Once")
    run(context, "Twice")
    context.store.annotate(run_id, "marked")
    result = search(context, search="marked")
    assert [line.text for line in result.lines] == ["Once"]
    assert result.lines[0].against == "1 plain run of the same prompt, sampling and LLM"
    assert (result.num_speculative, result.num_read, result.total) == (1, 1, 1)


def test_older_runs_are_read_on_request(context: Context) -> None:
    for i in range(5):
        run(context, f"number {i}")
    first = search(context, taken=3)
    assert [line.text for line in first.lines] == ["number 4", "number 3", "number 2"]
    assert first.more
    assert found_words(first) == (
        "3 prompts of 3 completed runs that drafted; searched the latest 3 of 5 matching runs."
    )
    assert PastSearch(None).more().taken == 2 * MOST_RUNS
    all_runs = search(context, taken=5)
    assert len(all_runs.lines) == 5 and not all_runs.more
    assert found_words(all_runs) == "5 prompts of 5 completed runs that drafted."


def test_domains_come_from_the_study_or_from_the_examples(context: Context) -> None:
    measure(context, StudyPrompt("1", "x = 1", "python"), StudyPrompt("2", "nothing told"))
    known = next(text for text, domain in known_domains().items() if domain == "math")
    run(context, known)
    domains = {line.text: line.row.domain for line in search(context).lines}
    assert domains == {known: "math", "x = 1": "python", "nothing told": ""}


def test_a_search_finds_only_runs_of_its_owner(context: Context) -> None:
    run(context, "mine")
    run(context, "hers", owner="her")
    run(context, "mine", "autoregressive", owner="her")
    lines = search(context, owner="me").lines
    assert [(line.text, line.against) for line in lines] == [("mine", "")]


def updates_of(context: Context, desk: TabSession, **changes: Any) -> Iterator[list[Any]]:
    past_search = PastSearch(**{"owner": None, **changes})
    return past_updates(context, desk, RunFigures(context.store), past_search, ())


def board_and_pictures(context: Context) -> tuple[StudyBoard, StudyPictures, TabSession]:
    board = StudyBoard(context, "prompts", "prompts", None, None)
    return (
        board,
        StudyPictures((None,) * 3, lambda opened: study_updates(context, opened)),
        TabSession(),
    )


def test_opening_a_study_removes_the_notice_and_ends_the_search(context: Context) -> None:
    studies = measure(context, StudyPrompt("1", "Once"))
    board, pictures, desk = board_and_pictures(context)
    look_at_study(board, desk, studies, pictures, opening=True)
    (last,) = updates_of(context, desk)
    assert last[1]["lines"]["0"]["text"].startswith("1 prompt of 1 completed run")
    values = look_at_study(board, desk, studies, pictures, opening=True)
    assert all("__type__" in value for value in values[2:])
    study_id = studies.latest("prompts")
    shown = press_button(board, desk, studies, pictures, {"do": "open", "study": study_id})
    assert shown[2]["of"] == study_id and shown[3]["lines"] == {}
    assert shown[3]["n"] > last[1]["n"] and not shown[4].visible


def test_a_search_ends_when_a_later_one_begins(context: Context) -> None:
    for i in range(60):
        run(context, f"number {i}")
    desk = TabSession()
    first = updates_of(context, desk)
    next(first)
    list(updates_of(context, desk, search="number"))
    assert list(first) == []


def test_beginning_a_study_ends_the_search(context: Context) -> None:
    board, pictures, desk = board_and_pictures(context)
    run(context, "Once")
    list(updates_of(context, desk))
    make_study = lambda: study_of_prompts(context, StudyPrompt("1", "Once"))  # noqa: E731
    shown = begin_study(board, desk, Studies(context, None, "me"), pictures, make_study)
    assert desk.study.past is None and shown[3]["lines"] == {}


def saved_rows(
    context: Context, studies: Studies, desk: TabSession
) -> tuple[str, list[dict[str, str]]]:
    file = rows_csv(context, RunFigures(context.store), studies, desk)
    assert file["media_type"] == "text/csv"
    return file["name"], list(DictReader(file["text"].splitlines()))


def test_the_file_has_every_row_of_the_study_or_of_the_search(context: Context) -> None:
    run(context, "=SUM(A1)")
    studies, desk = measure(context, StudyPrompt("1", "Once", "stories")), TabSession()
    with pytest.raises(ConfigError, match=NOTHING.split(":")[0]):
        saved_rows(context, studies, desk)
    desk.study.study_id = studies.latest("prompts")
    name, rows = saved_rows(context, studies, desk)
    assert name == f"specscope-{desk.study.study_id}-prompts.csv"
    assert {(row["prompt"], row["domain"]) for row in rows} == {("Once", "stories")}
    assert [row["settings"] for row in rows] == ["tree", "plain decoding"]
    assert float(rows[0]["speed_up"]) > 0
    assert len(rows[0]["acceptance_rate_per_position"].split(" ")) > 1
    list(updates_of(context, desk))
    name, rows = saved_rows(context, studies, desk)
    assert name == "specscope-past-runs-prompts.csv"
    assert [row["prompt"] for row in rows] == ["Once", "'=SUM(A1)"]


COUNTED = {
    "": "",
    " \n": "",
    "Once": "1 prompt: each line is one.",
    "Once\n\nTwice\r\nThrice": "3 prompts: each line is one.",
    "def f():\n\n    return 1\n---\nTwice": "2 prompts: each text between lines of --- is one.",
    "---": "at least one prompt",
}


@pytest.mark.parametrize("typed", COUNTED)
def test_typed_prompts_are_counted_with_the_rule_that_divides_them(typed: str) -> None:
    lines = list(count_notice("typed", typed)["lines"].values())
    notice = " ".join(line["text"] for line in lines)
    assert (COUNTED[typed] in notice) and bool(lines) == bool(typed.strip())
    assert not count_notice("examples", typed)["lines"]
