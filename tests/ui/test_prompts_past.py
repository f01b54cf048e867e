"""Past runs in the Prompts tab: what a look takes in, what it says, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from csv import DictReader
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from lab.prompts import StudyPrompt
from lab.study import Configuration, plain_configuration
from ui.prompts.export import NOTHING, file_of
from ui.prompts.past import MOST_RUNS, Found, PastLook, looked_at
from ui.prompts.past_handlers import known_domains, past_drawn, told_of
from ui.prompts.run_figures import RunFigures
from ui.prompts.tab import study_drawn
from ui.server.context import Context
from ui.server.session import TabSession
from ui.shared.studies import Studies, new_study
from ui.shared.study_handlers import Drawn, StudyBoard, begin_study, look_at_study, press_button


def run(context: Context, prompt: str, preset: str = "specinfer", owner: str = "me") -> str:
    speculation = SpeculationConfig.preset(preset)
    source = context.hub.start(Request(prompt, SamplingParams(), speculation), owner)
    source.wait_done(10)
    context.store.flush()
    return source.run_id


def look(context: Context, **asked: Any) -> Found:
    *_, found = looked_at(
        context, RunFigures(context.store), known_domains(), PastLook(**{"owner": None, **asked})
    )
    return found


def measured(context: Context, *prompts: StudyPrompt) -> Studies:
    mine = Studies(context, None, "me")
    tree = Configuration("tree", SpeculationConfig.preset("specinfer"))
    sampling = SamplingParams(max_new_tokens=8)
    study = new_study(context, "prompts", sampling, (plain_configuration(), tree), prompts)
    mine.begin(study)
    assert context.conductor.wait(20)
    context.store.flush()
    return mine


def test_plain_runs_are_a_baseline_though_the_search_leaves_them_out(context: Context) -> None:
    run(context, "Once", "autoregressive")
    kept = run(context, "Once")
    run(context, "Twice")
    context.store.annotate(kept, "marked")
    found = look(context, search="marked")
    assert [line.text for line in found.lines] == ["Once"]
    assert found.lines[0].against == "1 plain run of the same prompt, sampling and LLM"
    assert (found.drafted, found.looked, found.total) == (1, 1, 1)


def test_older_runs_are_taken_in_when_asked(context: Context) -> None:
    for i in range(5):
        run(context, f"number {i}")
    first = look(context, taken=3)
    assert [line.text for line in first.lines] == ["number 4", "number 3", "number 2"]
    assert first.more
    assert told_of(first) == (
        "3 prompts of 3 completed runs that drafted; the latest 3 of 5 runs that match were "
        "looked at."
    )
    assert PastLook(None).more().taken == 2 * MOST_RUNS
    whole = look(context, taken=5)
    assert len(whole.lines) == 5 and not whole.more
    assert told_of(whole) == "5 prompts of 5 completed runs that drafted."


def test_one_prompt_is_told_as_one(context: Context) -> None:
    run(context, "Once")
    assert told_of(look(context)) == "1 prompt of 1 completed run that drafted."


def test_domains_come_from_the_study_or_from_the_examples(context: Context) -> None:
    measured(context, StudyPrompt("1", "x = 1", "python"), StudyPrompt("2", "nothing told"))
    known = next(text for text, domain in known_domains().items() if domain == "math")
    run(context, known)
    domains = {line.text: line.row.domain for line in look(context).lines}
    assert domains == {known: "math", "x = 1": "python", "nothing told": ""}


def test_a_look_sees_only_whose_runs_they_are(context: Context) -> None:
    run(context, "mine")
    run(context, "hers", owner="her")
    run(context, "mine", "autoregressive", owner="her")
    found = look(context, owner="me")
    assert [(line.text, line.against) for line in found.lines] == [("mine", "")]


def drawn(context: Context, desk: TabSession, **asked: Any) -> Iterator[list[Any]]:
    asking = PastLook(**{"owner": None, **asked})
    return past_drawn(context, desk, RunFigures(context.store), asking, ())


def test_opening_a_study_takes_the_notice_away_and_ends_the_look(context: Context) -> None:
    mine = measured(context, StudyPrompt("1", "Once"))
    board, desk = StudyBoard(context, "prompts", "prompts", None, None), TabSession()  # type: ignore[arg-type]
    pictures = Drawn((None, None, None), lambda opened: study_drawn(context, opened))  # type: ignore[arg-type]
    look_at_study(board, desk, mine, pictures, opening=True)
    (last,) = drawn(context, desk)
    assert last[1]["lines"]["0"]["text"].startswith("1 prompt of 1 completed run")
    # While it is looked at, nothing that the board draws takes its place.
    quiet = look_at_study(board, desk, mine, pictures, opening=True)
    assert all("__type__" in value for value in quiet[2:])
    study_id = mine.latest("prompts")
    shown = press_button(board, desk, mine, pictures, {"do": "open", "study": study_id})
    assert shown[2]["of"] == study_id and shown[3]["lines"] == {}
    assert shown[3]["n"] > last[1]["n"] and not shown[4].visible


def test_a_look_that_is_overtaken_ends(context: Context) -> None:
    for i in range(60):
        context.store.flush()
        run(context, f"number {i}")
    desk = TabSession()
    first = drawn(context, desk)
    next(first)
    list(drawn(context, desk, search="number"))
    assert list(first) == []


def test_beginning_a_study_ends_the_look(context: Context) -> None:
    board, desk = StudyBoard(context, "prompts", "prompts", None, None), TabSession()  # type: ignore[arg-type]
    pictures = Drawn((None, None, None), lambda opened: study_drawn(context, opened))  # type: ignore[arg-type]
    run(context, "Once")
    list(drawn(context, desk))
    mine = Studies(context, None, "me")
    tree = Configuration("tree", SpeculationConfig.preset("specinfer"))

    def make() -> Any:
        both = (plain_configuration(), tree)
        prompts = (StudyPrompt("1", "Once"),)
        return new_study(context, "prompts", SamplingParams(max_new_tokens=8), both, prompts)

    shown = begin_study(board, desk, mine, pictures, make)
    assert desk.study.past is None and shown[3]["lines"] == {}


def saved(context: Context, mine: Studies, desk: TabSession) -> tuple[str, list[dict[str, str]]]:
    told = file_of(context, RunFigures(context.store), mine, desk)
    assert told["media_type"] == "text/csv"
    return told["name"], list(DictReader(told["text"].splitlines()))


def test_the_file_has_every_row_of_the_study_or_of_the_look(context: Context) -> None:
    run(context, "=SUM(A1)")
    mine, desk = measured(context, StudyPrompt("1", "Once", "stories")), TabSession()
    with pytest.raises(ConfigError, match=NOTHING.split(":")[0]):
        saved(context, mine, desk)
    desk.study.study_id = mine.latest("prompts")
    name, rows = saved(context, mine, desk)
    assert name == f"specscope-{desk.study.study_id}-prompts.csv"
    assert [(row["prompt"], row["domain"], row["settings"]) for row in rows] == [
        ("Once", "stories", "tree"),
        ("Once", "stories", "plain decoding"),
    ]
    assert float(rows[0]["speed_up"]) > 0
    assert len(rows[0]["acceptance_rate_per_position"].split(" ")) > 1
    list(drawn(context, desk))
    name, rows = saved(context, mine, desk)
    assert name == "specscope-past-runs-prompts.csv"
    assert [row["prompt"] for row in rows] == ["Once", "'=SUM(A1)"]
