"""A grid's intervals, best point and equally good points."""

from dataclasses import replace

import pytest

from lab.grid import axis_from_text
from lab.tuned import tuning_result
from tests.lab.grids import grid_results, grid_study

FACTORS = {
    "plain decoding": 1.0,
    "speculation_length=2, expansion=1": 1.5,
    "speculation_length=2, expansion=2,1": 1.9,
    "speculation_length=4, expansion=1": 2.0,
    "speculation_length=4, expansion=2,1": 0.5,
}


def steady(name: str, prompt: int, repeat: int) -> float:
    return (10.0 + prompt) * FACTORS[name]


def noisy(name: str, prompt: int, repeat: int) -> float:
    return steady(name, prompt, repeat) * (1.0 if name.startswith("plain") else 0.9 + 0.1 * prompt)


def test_the_best_is_the_fastest_against_plain_decoding() -> None:
    study = grid_study()
    result = tuning_result(study, grid_results(study, steady))
    assert result.bests == (2,) and result.rows[2].name == "speculation_length=4, expansion=1"
    assert [round(row.ratio.value, 3) for row in result.rows if row.ratio] == [1.5, 1.9, 2.0, 0.5]
    assert result.as_good == (), "intervals of zero width do not overlap"
    plain = result.plains[None]
    assert plain.speed == 11.0 and plain.ratio is None


def test_points_whose_intervals_overlap_are_as_good() -> None:
    study = grid_study()
    result = tuning_result(study, grid_results(study, noisy))
    assert result.bests == (2,)
    top = result.rows[2].ratio
    assert top is not None and top.low < 2.0 < top.high
    assert result.as_good == (1,), "1.9 is within a tenth of 2.0, 1.5 is not"


def test_tokens_per_pass_have_intervals_over_prompts() -> None:
    study = grid_study()
    results = grid_results(study, steady)
    uneven = {
        cell: replace(one, stats=replace(one.stats, num_accepted_tokens=2 * int(cell.item[1:])))
        for cell, one in results.items()
    }
    for result, widths in (
        (tuning_result(study, results), False),
        (tuning_result(study, uneven), True),
    ):
        for row, length in zip(result.rows, result.lengths, strict=True):
            assert length is not None and length.groups == 3
            assert length.value == pytest.approx(row.mean_acceptance_length)
            assert (length.high > length.low) == widths


def test_of_one_prompt_the_repeats_are_the_groups() -> None:
    study = grid_study(prompts=1, repeats=4)
    result = tuning_result(study, grid_results(study, steady))
    assert {row.ratio.groups for row in result.rows if row.ratio} == {4}
    assert {length.groups for length in result.lengths if length} == {4}


def test_of_one_measurement_no_point_is_as_good_as_the_best() -> None:
    study = grid_study(prompts=1)
    result = tuning_result(study, grid_results(study, lambda *_: 10.0))
    assert result.bests == (0,) and result.as_good == ()


def test_the_result_of_an_incomplete_study() -> None:
    study = grid_study()
    result = tuning_result(study, {})
    assert result.bests == () and result.as_good == () and result.alike == ()
    assert [row.cells for row in result.rows] == [0, 0, 0, 0] and result.lengths == (None,) * 4
    result = tuning_result(study, grid_results(study, steady, done=3))
    assert result.bests == (1,) and [row.cells for row in result.rows] == [1, 1, 0, 0]


def test_points_that_drafted_identically_are_reported() -> None:
    study = grid_study()
    results = grid_results(study, steady)
    assert tuning_result(study, results).alike == ()
    first, third = alike_names = [
        "speculation_length=2, expansion=1",
        "speculation_length=4, expansion=1",
    ]
    drafted = {c.item: r for c, r in results.items() if c.contestant == first}
    same = {
        cell: drafted[cell.item] if cell.contestant in alike_names else one
        for cell, one in results.items()
    }
    result = tuning_result(study, same)
    assert result.alike == ((0, 2),)
    assert (result.bests, result.as_good) == ((1,), ()), "no point drafted identically to the best"
    quick = {
        cell: replace(one, stats=replace(one.stats, tokens_per_second=40.0 + int(cell.item[1:])))
        if cell.contestant == third
        else one
        for cell, one in same.items()
    }
    result = tuning_result(study, quick)
    assert result.bests == (2,) and result.as_good == (0,), (
        "a slower point with identical drafts is as good"
    )
    ratio = result.rows[0].ratio
    assert ratio is not None and ratio.high < 2 < 3 < result.rows[2].ratio.low  # type: ignore[union-attr]
    last = next(cell for cell in reversed(list(same)) if cell.contestant == third)
    same[last] = replace(same[last], accepted_per_round=(1,))
    assert tuning_result(study, same).alike == (), "the two points differ in one run"


def test_a_point_may_be_plain_decoding_itself() -> None:
    study = grid_study([axis_from_text("speculation_length", "0, 4")])
    speeds = {"plain decoding": 10.0, "speculation_length=0": 10.0, "speculation_length=4": 8.0}
    result = tuning_result(study, grid_results(study, lambda name, prompt, repeat: speeds[name]))
    assert study.base == "plain decoding" and result.bests == (0,)
    assert result.rows[0].ratio is not None and result.rows[0].ratio.value == 1.0


def test_each_temperature_has_a_best_point_of_its_own() -> None:
    axes = [axis_from_text("temperature", "0, 0.8"), axis_from_text("speculation_length", "2, 4")]
    study = grid_study(axes)
    speeds = {"plain": 10.0, "temperature=0, ": 14.0, "temperature=0.8, ": 15.0}

    def speed(name: str, prompt: int, _: int) -> float:
        base = next(value for part, value in speeds.items() if name.startswith(part))
        return base + name.endswith("=2") * (1 + 0.5 * prompt)

    result = tuning_result(study, grid_results(study, speed))
    assert result.temperatures == (0, 0.8) and result.beside(3) == (2, 3)
    assert result.bests == (0, 2)
    assert result.as_good == (), "points whose intervals overlap have different temperatures"
    assert tuning_result(study, grid_results(study, speed, done=3)).bests == (0,)
