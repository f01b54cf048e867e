"""Grids: axes, points and refused points."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import VERIFIES, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from lab.grid import (
    FIELDS,
    TEMPERATURE,
    Axis,
    Grid,
    axis_from_text,
    axis_of,
    baselines,
    grid,
    grid_of,
    value_text,
)
from lab.order import Cell
from lab.study import Study, plain_configuration
from tests.lab import grids

BASE = SpeculationConfig()


def reasons(tuned: Grid) -> dict[str, str]:
    return {one.name: one.reason for one in tuned.refused}


def through_log(study: Study) -> Study:
    return Study.from_plain(json.loads(json.dumps(study.to_plain())))


def study_of(tuned: Grid, sampling: SamplingParams | None = None) -> Study:
    configurations = (plain_configuration(), *tuned.configurations)
    return through_log(grids.study_of(configurations, sampling=sampling or SamplingParams()))


@pytest.mark.parametrize(
    ("field", "typed", "values"),
    [
        ("speculation_length", "4, 8,12 ,", (4, 8, 12)),
        ("speculation_length", "4, 4, 8", (4, 8)),
        ("eta", "0.1, 1", (0.1, 1)),
        ("expansion", "1,1,3 | 1,2,2", ((1, 1, 3), (1, 2, 2))),
        ("expansion", "1,1,3", ((1, 1, 3),)),
        ("weight_bounds", "0.1,10 | 0.5,2", ((0.1, 10), (0.5, 2))),
        ("drafters", "all | a,b | ngram", (("all",), ("a", "b"), ("ngram",))),
        ("max_tree_nodes", "8, auto, uncut", (8, "auto", "uncut")),
        ("verify", "greedy | match", ("greedy", "match")),
    ],
)
def test_an_axis_is_read_from_text_and_written_back(
    field: str, typed: str, values: tuple[object, ...]
) -> None:
    axis = axis_from_text(field, typed)
    assert axis == Axis(field, values)
    separator = " | " if field in ("expansion", "weight_bounds", "drafters") else ", "
    again = separator.join(value_text(value) for value in axis.values)
    assert axis_from_text(field, again).values == axis.values


@pytest.mark.parametrize(
    ("field", "typed", "message"),
    [
        ("speed", "1", "field is 'speed': it must be one of drafters"),
        ("record_top_k", "1", "field is 'record_top_k'"),
        ("speculation_length", " , ", "speculation_length is"),
        ("speculation_length", ",".join(map(str, range(51))), "a list of 1 to 50 values"),
        ("expansion", "1,x", "whole numbers separated by commas"),
        ("expansion", "9" * 5000, "whole numbers from 1"),
        ("eta", "[[1]]", "a list of values of this field"),
    ],
)
def test_a_text_that_is_no_axis_is_refused(field: str, typed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        axis_from_text(field, typed)


def test_an_axis_of_json_lists_has_distinct_tuples() -> None:
    assert axis_of("expansion", [[1, 2], [1, 2], [3]]) == Axis("expansion", ((1, 2), (3,)))
    for wrong in ("mss", {"a": 1}, [{"a": 1}], [], 4):
        with pytest.raises(ConfigError, match="verify is"):
            axis_of("verify", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[2.0, 2], [2, 2.0], [2.0, 2, 2.0]])
def test_of_equal_values_the_one_that_can_run_is_kept(values: list[Any]) -> None:
    tuned = grid(BASE, [axis_of("speculation_length", values)])
    assert [one.name for one in tuned.configurations] == ["speculation_length=2"]
    assert tuned.refused == ()
    long = axis_of("speculation_length", [17.0, 17])
    tuned = grid(BASE, [long, axis_of("max_speculation_length", [8, 20])])
    assert tuned.points == ({"speculation_length": 17, "max_speculation_length": 20},)
    assert axis_of("expansion", [[2.0, 1], [2, 1]]).values == ((2, 1),)
    assert axis_of("speculation_length", [True, 1]).values[0] is not True
    wrong = axis_of("speculation_length", [2.0, 4.0, 2.0])
    assert wrong.values == (2.0, 4.0), "each value that cannot run is kept once"


def test_every_combination_is_a_configuration_the_last_axis_fastest() -> None:
    axes = [axis_from_text("speculation_length", "2,4"), axis_from_text("expansion", "1 | 2,1")]
    tuned = grid(BASE, axes)
    assert [one.name for one in tuned.configurations] == [
        "speculation_length=2, expansion=1", "speculation_length=2, expansion=2,1",
        "speculation_length=4, expansion=1", "speculation_length=4, expansion=2,1",
    ]  # fmt: skip
    assert tuned.points[3] == {"speculation_length": 4, "expansion": (2, 1)}
    last = replace(BASE, speculation_length=4, expansion=(2, 1))
    assert tuned.configurations[3].speculation == last
    assert tuned.refused == ()


def test_points_that_cannot_run_are_refused_with_their_reason() -> None:
    axes = [axis_of("verify", list(VERIFIES)), axis_of("draft", ["topk", "sampled"])]
    tuned = grid(BASE, axes, SamplingParams(temperature=1.0))
    names = [one.name for one in tuned.refused]
    assert tuned.refused[0].point == {"verify": "greedy", "draft": "topk"}
    assert "verify=mss, draft=topk" in names and "verify=mss, draft=sampled" not in names
    reason = reasons(tuned)["verify=mss, draft=topk"]
    assert "the lossless choices are auto, match" in reason
    assert len(tuned.configurations) + len(tuned.refused) == 10
    # At temperature 0 the same grid refuses other points.
    assert "verify=auto, draft=sampled" in reasons(grid(BASE, axes))


def test_a_number_out_of_range_and_a_drafter_that_is_not_loaded_are_refused() -> None:
    tuned = grid(BASE, [axis_from_text("speculation_length", "4, 99")])
    assert list(reasons(tuned)) == ["speculation_length=99"]
    tuned = grid(BASE, [axis_from_text("drafters", "all | nobody | ngram")], None, ("a", "b"))
    assert tuned.refused[0].name == "drafters=nobody"
    assert "drafters of all, first, ngram, suffix, table, a, b" in tuned.refused[0].reason
    with pytest.raises(ConfigError, match="no point of the grid can run; the first: drafters"):
        grid(BASE, [axis_from_text("drafters", "nobody")], None, ("a",))


def test_a_grid_without_axes_with_equal_ones_or_too_many_points_is_refused() -> None:
    axis = axis_from_text("speculation_length", "2,4")
    for axes in ([], [axis, axis]):
        with pytest.raises(ConfigError, match="at least one field, each once"):
            grid(BASE, axes)
    many = ",".join(map(str, range(1, 41)))
    with pytest.raises(ConfigError, match="points of the grid is 1600: it must be at most 1000"):
        grid(BASE, [axis_from_text("vote_nodes", many), axis_from_text("eta", many)])


def test_the_axes_and_points_of_a_study_are_recovered() -> None:
    axes = [
        axis_from_text("speculation_length", "8, 2"),
        axis_of("verify", ["match", "greedy", "mss"]),
        axis_from_text("drafters", "all | ngram"),
    ]
    tuned = grid(BASE, axes)
    back = grid_of(study_of(tuned))
    numbers, names, drafters = back.axes
    assert numbers == Axis("speculation_length", (2, 8)), "numbers are sorted"
    assert names.values == ("match", "greedy"), "a value without a point is left out"
    assert drafters.values == (("all",), ("ngram",))
    assert {one.name for one in back.configurations} == {one.name for one in tuned.configurations}
    for one, point in zip(back.configurations, back.points, strict=True):
        assert {name: getattr(one.speculation, name) for name in point} == point


def test_a_point_that_a_study_left_out_is_refused_with_that_reason() -> None:
    verify, draft = axis_of("verify", ["match", "mss"]), axis_of("draft", ["coupled", "sampled"])
    warm = SamplingParams(temperature=1.0)
    tuned = grid(BASE, [draft, verify], warm)
    back = grid_of(study_of(tuned, warm))
    assert reasons(back) == reasons(tuned) != {}
    sampled_match = "draft=sampled, verify=match"
    assert tuned.configurations[1].name == sampled_match
    indices = [0, 2]
    fewer = replace(tuned, configurations=tuple(tuned.configurations[i] for i in indices))
    found_reasons = reasons(grid_of(study_of(fewer, warm)))
    assert "left out when the study began" in found_reasons[sampled_match]


def test_a_value_without_a_point_that_can_run_stays_on_its_axis() -> None:
    loaded = ("a", "b")
    axes = [
        axis_from_text("speculation_length", "99, 4"),
        axis_from_text("drafters", "all | nobody"),
        axis_from_text("weight_bounds", "0.1,10 | 0.5,2"),
    ]
    tuned = grid(BASE, axes, drafters=loaded)
    axes_given = tuple((axis.field, axis.values) for axis in tuned.axes)
    models = ("llm (float32, cpu)", "a (float32, cpu)", "b (float32, cpu)")
    study = through_log(replace(study_of(tuned), axes=axes_given, models=models))
    assert study.axes == axes_given
    back = grid_of(study)
    assert back.axes[0].values == (4, 99) and back.axes[1].values == (("all",), ("nobody",))
    assert back.axes[2].values == ((0.1, 10), (0.5, 2))
    assert reasons(back) == reasons(tuned) and len(back.refused) == 6
    assert [one.name for one in back.configurations] == [one.name for one in tuned.configurations]
    assert (
        "drafters of all, first, ngram, suffix, table, a, b"
        in reasons(back)["speculation_length=4, drafters=nobody, weight_bounds=0.1,10"]
    )


def test_a_study_of_no_grid_is_refused() -> None:
    tuned = grid(BASE, [axis_from_text("speculation_length", "2,4")])
    study = study_of(tuned)
    renamed = replace(study.configurations[1], name="best of all")
    for others in ((), (renamed,)):
        other = replace(study, configurations=(study.configurations[0], *others))
        with pytest.raises(ConfigError, match="a study of a grid"):
            grid_of(other)


@given(st.lists(st.floats(0.001, 9.9), min_size=1, max_size=8, unique=True))
def test_values_that_differ_have_names_that_differ(values: list[float]) -> None:
    tuned = grid(BASE, [axis_of("eta", values)])
    assert len({one.name for one in tuned.configurations}) == len(values)
    assert [point["eta"] for point in grid_of(study_of(tuned)).points] == sorted(values)


def test_each_temperature_of_a_grid_has_its_own_plain_decoding() -> None:
    axes = [axis_from_text("speculation_length", "2, 4"), axis_from_text("temperature", "0, 0.8")]
    tuned = grid(BASE, axes)
    study = through_log(
        grids.study_of((*baselines(axes), *tuned.configurations), sampling=SamplingParams())
    )
    assert len(tuned.configurations) == 4 and grid_of(study).points == tuned.points
    for one in study.configurations:
        cell = Cell(one.name, study.prompts[0].id, 0)
        base = Cell(study.base_of(one.name), *(cell.item, cell.repeat))
        assert study.request(cell).sampling.temperature == one.temperature
        assert study.request(base).sampling.temperature == one.temperature
        assert study.request(base).speculation.never_drafts
        assert study.greedy(one.name) == (one.temperature == 0)
    with pytest.raises(ConfigError, match="temperature is -1"):
        grid(BASE, [axis_from_text("temperature", "-1")])


def test_every_tunable_field_is_recovered_from_a_study() -> None:
    for field in FIELDS:
        value = 0.8 if field == TEMPERATURE else BASE.to_plain()[field]
        tuned = grid(BASE, [axis_of(field, [value])])
        assert [axis.field for axis in grid_of(study_of(tuned)).axes] == [field]
