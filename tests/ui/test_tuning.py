"""Tune's output about a grid: pictures, table, sentences and files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from lab.grid import axis_from_text, axis_of, baselines, grid
from lab.order import Cell
from lab.study import Study
from lab.tables import Results
from lab.tuned import tuning_result
from tests.lab.grids import AXES, grid_results, grid_study
from tests.lab.test_grid_results import noisy, steady
from ui.compare.comparison import ANSWERS
from ui.tune.rows import run_rows, summary_rows, to_csv
from ui.tune.values import axes_to_draw, grid_value, point_value, points_value
from ui.tune.words import found_lines, grid_title, plan_lines

LENGTHS = [axis_from_text("speculation_length", "0, 4")]


def words(study: Study, results: Results) -> str:
    result = tuning_result(study, results)
    return "\n".join(line.text for line in found_lines(study, result, len(results)))


def test_two_axes_make_a_map_and_the_map_of_lengths_marks_no_point() -> None:
    study = grid_study()
    result = tuning_result(study, grid_results(study, noisy))
    value = grid_value(study, result, "speed")
    assert value["row_field"] == "speculation length" and value["column_field"] == "expansion"
    assert value["rows"] == {"0": "2", "1": "4"} and value["columns"] == {"0": "1", "1": "2,1"}
    assert value["layers"] == {} and value["unit"] == "x" and value["base"] == 1.0
    cells = value["cells"]
    assert [cell["name"] for cell in cells.values()] == [
        row.name.replace("_", " ").replace("=", " ") for row in result.rows
    ]
    assert cells["2"]["value"] == pytest.approx(2.0)
    assert cells["2"]["low"] < 2.0 < cells["2"]["high"]
    assert [cell["mark"] for cell in cells.values()] == ["", "near", "best", ""]
    ratios = [cell["value"] for cell in cells.values()]
    assert value["high"] == pytest.approx(max(ratios)) and value["low"] + value["high"] == 2.0
    json.dumps(value)
    value = grid_value(study, result, "length")
    assert value["unit"] == "tokens" and value["base"] == 1.0
    assert [cell["value"] for cell in value["cells"].values()] == [1.25, 1.5, 1.75, 2.0]
    assert not any(cell["mark"] for cell in value["cells"].values())


def test_one_axis_makes_a_line_and_a_single_value_is_no_axis() -> None:
    axes = [axis_from_text("eta", "0.2"), axis_from_text("speculation_length", "8, 2, 4")]
    study = grid_study(axes)
    value = grid_value(study, tuning_result(study, grid_results(study, lambda *_: 10.0)), "speed")
    assert value["row_field"] == "speculation length" and value["columns"] == {}
    assert value["rows"] == {"0": "2", "1": "4", "2": "8"} and value["ordered"]
    study = grid_study([axis_of("combine", ["union", "vote"])])
    value = grid_value(study, tuning_result(study, {}), "speed")
    assert not value["ordered"] and value["high"] is None
    study = grid_study([axis_from_text("eta", "0.2"), axis_from_text("vote_nodes", "4")])
    assert [axis.field for axis in axes_to_draw(tuning_result(study, {}).grid)] == ["eta"]


def test_a_third_axis_is_chosen_from_and_has_one_scale() -> None:
    axes = [*AXES, axis_from_text("vote_nodes", "3, 5, 9")]
    study = grid_study(axes)
    results = grid_results(study, lambda name, *_: 10.0 * (1 + name.endswith("=9")))
    value = grid_value(study, tuning_result(study, results), "speed")
    assert value["layer_field"] == "vote nodes"
    assert value["layers"] == {"0": "3", "1": "5", "2": "9"}
    assert len(value["cells"]) == 12 and value["low"] + value["high"] == 2.0
    for place, cell in value["cells"].items():
        layer, row, column = int(place) // 4, int(place) % 4 // 2, int(place) % 2
        texts = ["2", "4"][row], ["1", "2,1"][column], ["3", "5", "9"][layer]
        pairs = zip(axes, texts, strict=True)
        assert cell["name"] == ", ".join(
            f"{axis.field.replace('_', ' ')} {text}" for axis, text in pairs
        )


def test_what_cannot_run_has_its_place_and_reason_in_map_table_and_file() -> None:
    axes = [axis_of("draft", ["coupled", "sampled"]), axis_of("verify", ["match", "mss"])]
    study = grid_study(axes, temperature=1.0)
    value = grid_value(study, tuning_result(study, {}), "speed")
    assert list(value["cells"]) == ["0", "1", "2", "3"]
    refused = value["cells"]["1"]
    assert refused["point"] == -1 and "the lossless choices are" in refused["refused"]
    value = points_value(study, tuning_result(study, grid_results(study, lambda *_: 10.0)))
    refused = value["rows"]["4"]
    assert (refused["point"], refused["mark"], len(value["rows"])) == (-2, "refused", 5)
    texts = [cell["t"] for cell in refused["cells"].values()]
    assert texts[:2] == ["coupled", "mss"] and "the lossless choices are" in texts[2]
    assert len(texts) == 3
    result = tuning_result(study, grid_results(study, lambda *_: 10.0))
    rows = summary_rows(result)
    names = ["plain decoding", *(row.name for row in result.rows), "draft=coupled, verify=mss"]
    assert [row["configuration"] for row in rows] == names
    assert len({tuple(row) for row in rows}) == 1, "every row has the same columns"
    from_file = read_csv(to_csv(rows))
    assert from_file[1]["draft"] == "coupled" and from_file[1]["speed_up"] == "1.0"
    assert from_file[-1]["found"].startswith("refused: verify is") and from_file[-1]["runs"] == ""
    json.dumps(rows)


def test_one_prompt_measured_once_has_no_spread_and_without_a_ratio_speeds_are_tokens() -> None:
    study = grid_study(prompts=1)
    result = tuning_result(study, grid_results(study, steady))
    for measure in ("speed", "length"):
        assert {c["low"] for c in grid_value(study, result, measure)["cells"].values()} == {None}
    assert "no spread is known" in words(study, grid_results(study, steady))
    rows = points_value(study, result)["rows"].values()
    assert {row["cells"]["3"]["t"] for row in rows} == {"–", "one sample"}
    assert {row["speed_up_low"] for row in summary_rows(result)} == {None}
    study = grid_study()
    results = {c: r for c, r in grid_results(study, steady).items() if c.contestant != study.base}
    value = grid_value(study, tuning_result(study, results), "speed")
    assert value["unit"] == "tokens/s" and value["base"] is None
    assert value["cells"]["0"]["low"] == 15.0 and value["cells"]["0"]["high"] == 18.0


@pytest.mark.parametrize(
    ("prompts", "repeats", "spread"),
    [
        (3, 1, "lowest to highest of 3 prompts"),
        (1, 5, "lowest to highest of 5 repeats"),
        (8, 1, "95 % of resamples of 8 prompts"),
    ],
)
def test_each_interval_says_what_it_is_of(prompts: int, repeats: int, spread: str) -> None:
    study = grid_study(prompts=prompts, repeats=repeats)
    results = grid_results(study, lambda name, i, j: steady(name, i, j) * (1 + 0.01 * (i + j) ** 2))
    results |= {c: r for c, r in grid_results(study, steady).items() if c.contestant == study.base}
    result = tuning_result(study, results)
    cells = grid_value(study, result, "speed")["cells"].values()
    assert {cell["spread"] for cell in cells} == {spread}
    points = points_value(study, result)
    assert points["spread"] == spread
    sampled = "On each prompt the speeds are one sample."
    for shown in (points["samples"], points["words"], words(study, results)):
        assert (sampled in shown) == (repeats == 1)
    assert points["words"].endswith(f". Spread of the speed-up: {spread}."), (
        "a saved file has the spread too"
    )
    assert summary_rows(result)[1]["speed_up_spread"] == spread
    assert summary_rows(result)[0]["speed_up_spread"] is None
    assert f", {spread})" in words(study, results)


def test_the_table_has_plain_decoding_and_each_point() -> None:
    study = grid_study()
    value = points_value(study, tuning_result(study, grid_results(study, noisy)))
    heads = list(value["heads"].values())
    assert heads[:3] == ["speculation length", "expansion", "speed-up"]
    plain, first = value["rows"]["0"], value["rows"]["1"]
    assert plain["point"] == -1 and plain["cells"]["0"]["t"] == "plain"
    assert first["cells"]["0"] == {"t": "2", "v": 2} and first["cells"]["1"] == {"t": "1"}
    assert value["rows"]["3"]["mark"] == "best" and value["rows"]["2"]["mark"] == "near"
    assert value["rows"]["3"]["cells"]["2"]["t"] == "2.00x"
    assert all(len(row["cells"]) == len(heads) for row in value["rows"].values())


def test_texts_are_judged_as_in_a_comparison_with_the_place_where_they_differ() -> None:
    study = grid_study()
    results = grid_results(study, steady)
    cell = Cell("speculation_length=2, expansion=1", "p1", 0)
    results[cell] = replace(results[cell], token_ids=(1, 9, 7))
    result = tuning_result(study, results)
    kinds = [row["same_text"] for row in summary_rows(result)]
    assert kinds == ["base", "differs", "identical", "identical", "identical"]
    rows = points_value(study, result)["rows"].values()
    assert [row["cells"]["7"]["t"] for row in rows] == ["–", "differs", *["identical"] * 3]
    assert set(kinds) <= set(ANSWERS)
    text = words(study, results)
    assert "Not plain decoding's text: speculation length 2, expansion 1. First: prompt p1" in text
    assert "repeat 1, at token 2" in text


def test_of_a_run_that_drafted_nothing_there_is_no_acceptance() -> None:
    study = grid_study()
    results = grid_results(study, steady)
    no_drafts = {"num_draft_tokens": 0, "draft_acceptance_rate": 0.0}
    plain = [(c, one) for c, one in results.items() if c.contestant == study.base]
    without_drafts = {
        cell: replace(one, stats=replace(one.stats, **no_drafts)) for cell, one in plain
    }
    result = tuning_result(study, {**results, **without_drafts})
    rows = run_rows(study, {**results, **without_drafts}, result)
    rates = [row["draft_acceptance_rate"] for row in rows]
    assert rates.count(None) == len(without_drafts) == 3
    assert summary_rows(result)[0]["draft_acceptance_rate"] is None
    assert points_value(study, result)["rows"]["0"]["cells"]["6"]["t"] == "–"


def test_a_point_has_its_figures_and_runs() -> None:
    study = grid_study(repeats=2)
    results = grid_results(study, steady)
    result = tuning_result(study, results)
    value = point_value(study, results, result, 2)
    assert value["name"] == "speculation length 4, expansion 1" and value["mark"] == "best"
    figures = {one["name"]: one["text"] for one in value["figures"].values()}
    assert figures["speed-up"] == "2.00x" and figures["drafting, of model time"] == "40 %"
    runs = list(value["runs"].values())
    expected = [(f"p{i}", repeat) for repeat in "12" for i in range(3)]
    assert [(run["prompt"], run["repeat"]) for run in runs] == expected
    # The ratio 2.00x is more than the tokens per pass (1.75), so it is called noise.
    assert {(run["ratio"], run["mean"]) for run in runs} == {("2.00x (noise)", "1.75")}
    for missing in (-1, 4, 10**9):
        assert point_value(study, results, result, missing) == {}


def test_before_the_start_the_runs_are_counted_and_the_refused_named() -> None:
    axes = [axis_of("draft", ["coupled", "sampled"]), axis_of("verify", ["match", "mss"])]
    study = grid_study(axes, temperature=1.0)
    tuned = grid(study.configurations[1].speculation, axes, study.sampling)
    lines = plan_lines(study, tuned.refused)
    assert lines[0].text.startswith("3 points and plain decoding, 3 prompts, 1 repeat: 12 runs.")
    assert "cannot run: draft coupled, verify mss. verify is 'mss'" in lines[1].text
    assert grid_title(tuned, 3) == "draft (2 values) × verify (2 values) on 3 prompts"
    assert "no spread" in plan_lines(replace(study, prompts=study.prompts[:1]), ())[1].text
    idle = plan_lines(grid_study([axis_from_text("speculation_length", "0")]), ())
    assert any("No point drafts anything" in line.text for line in idle)


def test_the_best_is_named_with_what_is_as_good_and_the_noise_is_shown() -> None:
    study = grid_study()
    text = words(study, grid_results(study, noisy))
    assert "Best: speculation length 4, expansion 1. 2.00x the speed of plain decoding (" in text
    assert "Within noise of it: speculation length 2, expansion 2,1. Their intervals" in text
    assert "Every run wrote plain decoding's text" in text
    text = words(study, grid_results(study, steady))
    assert "No other point is within noise of it: their intervals lie below its own." in text
    text = words(study, grid_results(study, steady, done=7))
    assert text.startswith("Highest measured so far: ") and "Every run so far" in text
    assert "2.00x the speed of plain decoding, one sample, " in text
    text = words(study, grid_results(study, steady, done=13))
    assert text.startswith("Best so far: ")
    assert words(study, {}).startswith("Nothing is measured yet.")
    items = grid_results(study, steady).items()
    text = words(study, {cell: replace(one, accepted_per_round=(3,)) for cell, one in items})
    assert "Alike: speculation length 2, expansion 1; " in text and "and 1 more drafted" in text
    assert "Their speeds differ by 300 %." in text


def test_a_point_that_drafted_as_the_best_did_counts_as_good() -> None:
    study = grid_study()
    results, best = grid_results(study, steady), "speculation_length=4, expansion=1"
    best_results = {c.item: r for c, r in results.items() if c.contestant == best}
    for cell in [c for c in results if c.contestant == "speculation_length=2, expansion=1"]:
        speed = results[cell].stats.tokens_per_second
        stats = replace(best_results[cell.item].stats, tokens_per_second=speed)
        results[cell] = replace(best_results[cell.item], stats=stats)
    result = tuning_result(study, results)
    assert result.rows[0].ratio and result.rows[0].ratio.high < 1.6, (
        "its interval is below the best's"
    )
    cells = grid_value(study, result, "speed")["cells"].values()
    assert [cell["mark"] for cell in cells] == ["near", "", "best", ""]
    rows = points_value(study, result)["rows"]
    assert [rows[str(i)]["mark"] for i in range(1, 5)] == ["near", "", "best", ""]
    assert [row["found"] for row in summary_rows(result)][1:4] == ["within noise", "", "best"]
    text = words(study, results)
    assert (
        "Within noise of it: speculation length 2, expansion 1. They drafted and accepted" in text
    )
    assert "No other point" not in text and "Alike: speculation length 2, expansion 1; " in text
    one_prompt = {cell: one for cell, one in results.items() if cell.item == "p0"}
    text = words(grid_study(prompts=1), one_prompt)
    assert "Each speed is one sample" in text
    assert "Within noise of it: speculation length 2" in text


def test_a_tick_and_a_star_are_for_what_repeats_have_shown() -> None:
    def best_words(speed: float, prompts: int, accepted: int = 6) -> tuple[str, str, str]:
        study = grid_study(prompts=prompts)
        of_points = lambda name, prompt, _: 10.0 if name[0] == "p" else speed + 0.1 * prompt  # noqa: E731
        results = {
            cell: replace(one, stats=replace(one.stats, num_accepted_tokens=accepted))
            for cell, one in grid_results(study, of_points).items()
        }
        result = tuning_result(study, results)
        line = found_lines(study, result, len(results))[0]
        cells = grid_value(study, result, "speed")["cells"].values()
        (best,) = (cell["found"] for cell in cells if cell["mark"] == "best")
        return line.kind, line.text.partition(":")[0], best

    assert best_words(15.0, 3) == ("good", "Best", "★ highest speed-up measured")
    assert best_words(15.0, 1) == ("info", "Highest measured", "▴ highest measured, one sample")
    assert best_words(5.0, 1) == ("info", "Highest measured", "▴ highest measured, one sample")
    slow = "No point beats plain decoding. Best"
    assert best_words(5.0, 3) == ("warn", slow, "▴ highest measured, no gain is shown")
    assert best_words(15.0, 3, accepted=1) == ("info", "Best", "▴ highest measured, noise")


def test_of_one_point_at_each_temperature_none_is_the_best() -> None:
    study = grid_study([axis_from_text("temperature", "0, 0.8")])
    results = grid_results(study, lambda name, prompt, _: 10.0 + prompt + ("=0" in name))
    result = tuning_result(study, results)
    text = words(study, results)
    assert text.startswith("At temperature 0: 1.09x the speed") and "Best" not in text
    assert "\nAt temperature 0.8: 1.09x the speed" in text
    assert not any(c["mark"] for c in grid_value(study, result, "speed")["cells"].values())


def test_a_slower_grid_is_called_slower() -> None:
    study = grid_study()
    text = words(study, grid_results(study, lambda name, *_: 10.0 if name[0] == "p" else 8.0))
    assert "No point was faster than plain decoding in these 3 prompts: the best is 0.80x" in text
    many = grid_study(prompts=6)
    text = words(many, grid_results(many, lambda name, *_: 10.0 if name[0] == "p" else 8.0))
    assert "No point was faster than plain decoding here: the best is 0.80x" in text
    assert "drafting took 40 %" in text
    unsure = lambda name, prompt, _: 10.0 if name[0] == "p" else 9.5 + prompt  # noqa: E731
    text = words(study, grid_results(study, unsure))
    assert text.startswith("No point is shown to beat plain decoding. Best: ")


def slow_by(factors: dict[str, float], axes: Any = AXES, prompts: int = 3, slope: float = 0) -> str:
    """`factors`: by point, its speed-up on the second prompt. `slope`: its growth per prompt."""
    study = grid_study(axes, prompts=prompts)

    def speed(name: str, prompt: int, _: int) -> float:
        return 10.0 * (factors[name] + slope * (prompt - 1) if name in factors else 1.0)

    return words(study, grid_results(study, speed))


def test_a_grid_that_only_loses_says_so_first_and_its_colours_are_not_stretched() -> None:
    text = slow_by({"speculation_length=0": 0.5, "speculation_length=4": 0.8}, LENGTHS)
    assert text.startswith("No point beats plain decoding. Best: speculation length 4.")
    study = grid_study()
    result = tuning_result(
        study, grid_results(study, lambda name, *_: 9.0 if "=" in name else 10.0)
    )
    value = grid_value(study, result, "speed")
    assert (value["low"], value["high"]) == (0.5, 1.5), "0.9x is near the middle of the colours"


def test_points_that_draft_nothing_are_reported_so_and_not_as_drafting_too_much() -> None:
    for idle in (0.97, 1.03):
        text = slow_by({"speculation_length=0": idle, "speculation_length=4": 0.5}, LENGTHS)
        assert "Best: speculation length 0." in text and "The best point drafts nothing" in text
        assert "No point that drafts was measured faster than it." in text
        assert "costs more than it saves" not in text and "Shorter drafts" not in text
        assert "No point was" not in text
    axes = [axis_from_text("speculation_length", "0"), axis_from_text("expansion", "1 | 2,1")]
    study = grid_study(axes)
    results = grid_results(study, lambda *_: 10.0)
    text = words(study, {c: replace(r, accepted_per_round=(0,)) for c, r in results.items()})
    assert "expansion 2,1 drafted nothing at all." in text and "cut their trees" not in text


def test_where_intervals_reach_plain_decoding_no_point_is_called_slower() -> None:
    text = slow_by({"speculation_length=0": 0.5, "speculation_length=4": 0.98}, LENGTHS, slope=0.05)
    assert text.startswith("No point is shown to beat plain decoding. Best: ")
    assert ". 0.98x the speed" in text
    assert "1.00x lies in the interval of speculation length 4: these measurements cannot" in text
    assert "No point was faster" not in text and "costs more than it saves" not in text
    text = slow_by({"speculation_length=0": 0.5, "speculation_length=4": 0.8}, LENGTHS, 1)
    assert "No point was faster than plain decoding in its one run: the best is 0.80x." in text
    assert "costs more than it saves" not in text


def test_what_the_temperature_does_to_acceptance_is_reported() -> None:
    axes = [axis_from_text("speculation_length", "2, 4"), axis_from_text("temperature", "0, 0.8")]
    study = grid_study(axes)
    for hot, cold in ((0, 2), (2, 2)):
        results = {
            cell: replace(one, stats=replace(one.stats, num_accepted_tokens=accepted))
            for cell, one in grid_results(study, lambda *_: 10.0).items()
            for accepted in [hot if "0.8" in cell.contestant else cold]
        }
        text = words(study, results)
        rates = [row.draft_acceptance_rate for row in tuning_result(study, results).rows[:2]]
        assert [rate > 0 for rate in rates] == [True, hot > 0]
        rates_in_words = (
            f"{100 * rates[0]:.0f} % at temperature 0, {100 * rates[1]:.0f} % at temperature 0.8"
        )
        assert f"Accepted of depth: {rates_in_words}." in text
        assert ("the more often an unlikely token is drawn" in text) == (hot < cold)
    assert "Best at temperature 0: speculation length 2. 1.00x the speed" in text
    assert "Best at temperature 0.8: speculation length 2. 1.00x the speed" in text
    study = replace(study, configurations=(*baselines(axes), *study.configurations[1:]))
    speeds = {"plain decoding, temperature=0": 20.0, "plain decoding, temperature=0.8": 10.0}
    results = grid_results(study, lambda name, *_: speeds.get(name, 15.0))
    rows = points_value(study, tuning_result(study, results))["rows"]
    columns = [[row["cells"][i]["t"] for i in "0124"] for row in rows.values()]
    assert columns[:3] == [
        ["plain", "0", "–", "20.0"],
        ["plain", "0.8", "–", "10.0"],
        ["2", "0", "0.75x", "15.0"],
    ]
    assert columns[3] == ["2", "0.8", "1.50x", "15.0"] and rows["1"]["point"] == -2
    plain = [row for row in summary_rows(tuning_result(study, results)) if not row["speed_up"]]
    assert [(row["temperature"], row["tokens_per_second"]) for row in plain] == [
        ("0", 20.0),
        ("0.8", 10.0),
    ]
    assert "temperature 0" not in words(grid_study(), grid_results(grid_study(), steady))


def test_rules_that_keep_the_distribution_promise_no_tokens() -> None:
    axes = [axis_of("draft", ["sampled"]), axis_of("verify", ["mss", "traversal"])]
    study = grid_study(axes, temperature=1.0)
    results = grid_results(study, lambda *_: 10.0).items()
    assert "not each token" in words(study, {c: replace(one, verify="mss") for c, one in results})


def read_csv(text: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_run_is_a_line_whatever_its_prompt_is_called() -> None:
    study = grid_study()
    odd = replace(study.prompts[1], id='p1 "quoted", =1+1\nnext', domain="a,b")
    study = replace(study, prompts=(study.prompts[0], odd, study.prompts[2]))
    names = {one.id: i for i, one in enumerate(study.prompts)}
    original = grid_study()
    results = {
        Cell(cell.contestant, study.prompts[int(cell.item[1:])].id, cell.repeat): one
        for cell, one in grid_results(original, steady).items()
    }
    rows = read_csv(to_csv(run_rows(study, results, tuning_result(study, results))))
    assert len(rows) == 15 and {row["prompt"] for row in rows} == set(names)
    assert rows[1]["speculation_length"] == "2" and float(rows[1]["speed_up"]) == 1.5
    assert rows[0]["configuration"] == "plain decoding" and rows[0]["expansion"] == ""
