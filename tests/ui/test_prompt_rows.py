"""The rows of the Prompts tab, from a study and from past runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from core.config import SamplingParams, SpeculationConfig
from core.errors import UnknownRunError
from core.events import Event
from lab.measured import Measured, measured
from lab.order import Cell
from lab.prompts import StudyPrompt
from lab.study import PLAIN, Configuration, Study, plain_configuration
from lab.tables import same_text
from tests.synthetic import DRAFTERS, synthetic_run
from tests.ui.fakes import plain_twin
from ui.prompt_rows import of_runs, of_study, table_value, texts_of
from ui.prompt_runs import RunFigures

PROMPTS = (StudyPrompt("1", "one\ntwo", "code"), StudyPrompt("2", "x" * 300))


def study() -> Study:
    tree = Configuration("tree", SpeculationConfig.preset("specinfer"))
    return Study(
        study_id="s",
        kind="prompts",
        title="",
        created_utc="",
        models=("llm",),
        sampling=SamplingParams(),
        configurations=(plain_configuration(), tree),
        prompts=PROMPTS,
    )


def results() -> dict[Cell, Measured]:
    found = {}
    for i, prompt in enumerate(PROMPTS):
        events = synthetic_run(6, seed=i, run_id=f"tree-{i}")
        found[Cell("tree", prompt.id, 0)] = measured(events)
        found[Cell(PLAIN, prompt.id, 0)] = measured(plain_twin(events))
    return found


def test_a_row_a_prompt_with_its_speed_up() -> None:
    rows = of_study(study(), results(), "tree")
    assert [row.prompt for row in rows] == ["1", "2"]
    for row, prompt in zip(rows, PROMPTS, strict=True):
        ours, plain = results()[Cell("tree", prompt.id, 0)], results()[Cell(PLAIN, prompt.id, 0)]
        assert row.ratio == ours.stats.tokens_per_second / plain.stats.tokens_per_second
        assert row.mean_acceptance_length == ours.stats.mean_acceptance_length
        assert row.rate_per_position == ours.stats.acceptance_rate_per_position
        assert row.same.kind == "same"


def test_a_text_that_differs_is_told_with_its_place() -> None:
    found = results()
    cell = Cell("tree", "1", 0)
    ids = list(found[cell].token_ids)
    ids[3] += 1

    found[cell] = replace(found[cell], token_ids=tuple(ids))
    same = same_text(study(), found, [cell])
    assert (same.kind, same.first) == ("differs", (cell, 3))


def test_what_the_table_shows() -> None:
    rows = of_study(study(), results(), "tree")
    value = table_value("tree", rows, texts_of(PROMPTS), DRAFTERS)
    first, second = value["rows"]["0"], value["rows"]["1"]
    assert first["prompt"] == "one two" and first["domain"] == "code"
    assert len(second["prompt"]) == 120 and second["domain"] == "no domain"
    assert first["slot"] == DRAFTERS.index(first["best"])
    assert first["runs"] == {"0": "tree-0"}
    assert [group["prompts"] for group in value["groups"].values()] == [1, 1]
    assert value["groups"]["0"]["ratio"] == first["ratio"]


def test_past_runs_of_one_prompt_are_one_row() -> None:
    runs = [
        (text, measured(synthetic_run(4, seed=i, run_id=f"r{i}"))) for i, text in enumerate("aba")
    ]
    rows, texts = of_runs(runs)
    assert [texts[row.prompt] for row in rows] == ["a", "b"]
    assert [row.runs for row in rows] == [("r0", "r2"), ("r1",)]
    assert all(row.ratio is None for row in rows)


def test_a_past_run_is_read_once_and_a_lost_one_is_left_out() -> None:
    read: list[str] = []

    def events(run_id: str) -> tuple[Event, ...]:
        read.append(run_id)
        if run_id == "gone":
            raise UnknownRunError("gone")
        return tuple(synthetic_run(4, run_id=run_id, end="cut" if run_id == "cut" else "completed"))

    figures = RunFigures(SimpleNamespace(events=events))  # type: ignore[arg-type]
    asked = [
        SimpleNamespace(run_id=run_id, status=status, prompt=run_id)
        for run_id, status in (
            ("a", "completed"),
            ("gone", "completed"),
            ("cut", "completed"),
            ("b", "failed"),
        )
    ]
    assert [prompt for prompt, _ in figures.of(iter(asked))] == ["a"]
    assert [prompt for prompt, _ in figures.of(iter(asked))] == ["a"]
    assert read == ["a", "gone", "cut", "gone", "cut"]
