"""Handlers of the Tune tab."""

from __future__ import annotations

import csv
import inspect
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.config import PRESETS, SpeculationConfig
from core.errors import ConfigError, UnknownStudyError
from lab.order import Cell
from lab.prompts import StudyPrompt
from tests.synthetic import DRAFTERS
from tests.ui.boards import notice_of
from tests.ui.test_form import form_values
from ui.api.tune import _tune
from ui.run.explain import RECORD_TOP_K
from ui.server.context import Context
from ui.shared.studies import Studies
from ui.tune.form import (
    INITIAL_VALUES,
    LIVE,
    MENU_FIELDS,
    GridRequest,
    axis_shown,
    base_menu,
    study_request,
)
from ui.tune.tab import (
    picture_values,
    plan_values,
    point_reset,
    point_shown,
    request_of_point,
    study_csv,
)

AXES = [*("speculation_length", "2, 4", []), *("expansion", "1 | 2,1", []), *("", "", [])]
NODES = ["max_tree_nodes", "4, 8", [], *AXES[6:] * 2]
SAMPLING = [16, 0, 0, 1, 0, 1, "", "", False, False]


def values(**changes: Any) -> list[Any]:
    parts = {
        "base": ["specinfer"],
        "axes": AXES,
        "prompts": ["typed", "Once\nTwice", None, [], 1],
        "sampling": SAMPLING,
        "repeats": [2],
    }
    return [value for part in {**parts, **changes}.values() for value in part]


def grid_of(context: Context, own: dict[str, Any] | None = None, **changes: Any) -> GridRequest:
    return study_request(context, own, form_values(drafters=[*DRAFTERS]), values(**changes))


def measure(context: Context, **changes: Any) -> tuple[Studies, str]:
    studies, study = Studies(context, None, "me"), grid_of(context, **changes).study
    studies.begin(study)
    assert context.conductor.wait(30)
    return studies, study.study_id


def test_the_form_makes_a_study_with_plain_decoding_first(context: Context) -> None:
    request = grid_of(context)
    study = request.study
    assert [one.name for one in study.configurations] == [
        "plain decoding",
        "speculation_length=2, expansion=1",
        "speculation_length=2, expansion=2,1",
        "speculation_length=4, expansion=1",
        "speculation_length=4, expansion=2,1",
    ]
    assert study.kind == "tune" and study.repeats == 2 and len(study) == 20
    assert [one.text for one in study.prompts] == ["Once", "Twice"]
    assert study.sampling.max_new_tokens == 16 and request.refused == ()
    assert study.title == "speculation length (2 values) × expansion (2 values) on 2 prompts"


@pytest.mark.parametrize(
    ("server", "preset"), [("cosine", "cosine"), ("best", "best"), ("autoregressive", "specinfer")]
)
def test_the_endpoint_measures_the_preset_of_the_server(
    context: Context, server: str, preset: str
) -> None:
    endpoint = _tune(replace(context, preset=server))
    assert inspect.signature(endpoint).parameters["preset"].default == preset


def test_every_base_can_be_measured_and_its_runs_record_no_alternatives(context: Context) -> None:
    own = {"mine": replace(SpeculationConfig(), eta=0.7).to_plain()}
    bases = [value for _, value in base_menu(own).choices]
    assert bases == [*(name for name in PRESETS if name != "autoregressive"), "mine", LIVE]
    assert grid_of(context, own, base=["mine"]).study.configurations[1].speculation.eta == 0.7
    for base in bases:
        assert grid_of(context, own, base=[base], axes=NODES).study
    live = form_values(eta=0.9, drafters=[*DRAFTERS])
    own_study = study_request(context, None, live, values(base=[LIVE])).study
    assert own_study.configurations[1].speculation.eta == 0.9
    with pytest.raises(ConfigError, match="base is 'gone': it must be one of"):
        grid_of(context, base=["gone"])
    own = {"mine": replace(SpeculationConfig(), carry_over=True, record_top_k=9).to_plain()}
    study = grid_of(context, own, base=["mine"]).study
    assert {one.speculation.record_top_k for one in study.configurations} == {0}
    assert {one.speculation.carry_over for one in study.configurations} == {False}


def test_values_that_no_point_uses_are_refused_in_one_line(context: Context) -> None:
    with pytest.raises(ConfigError) as refused:
        grid_of(context, base=["best"])
    assert str(refused.value) == (
        "speculation_length is [2, 4]: it cannot be varied here, since goodput finds the length "
        "itself; a preset that uses it is one of sequence, specinfer, specinfer-paper, minions, "
        "cosine"
    )
    with pytest.raises(ConfigError) as refused:
        grid_of(context, axes=["vote_nodes", "4, 8", [], *AXES[6:] * 2])
    assert str(refused.value) == (
        "vote_nodes is [4, 8]: it cannot be varied here, since only combine=vote_tree reads it"
    )
    lengths = ["length", "", ["fixed", "goodput"]]
    assert grid_of(context, base=["best"], axes=[*AXES[:3], *lengths, *AXES[6:]]).study


def test_fields_of_few_values_are_picked_from_a_menu(context: Context) -> None:
    axes = [*AXES[:6], *["verify", "ignored", ["greedy", "match"]]]
    study = grid_of(context, axes=axes).study
    assert len(study.configurations) == 9 and study.configurations[1].name.endswith("verify=greedy")
    with pytest.raises(ConfigError, match="verify is"):
        grid_of(context, axes=[*AXES[:6], "verify", "", []])


# For each field that `specinfer` ignores, settings under which the field has an effect.
USES: dict[str, dict[str, Any]] = {
    "vote_nodes": {"combine": "vote_tree"},
    "weights": {"combine": "vote"},
    "eta": {"combine": "vote", "weights": "paper"},
    "weight_bounds": {"combine": "vote", "weights": "paper"},
    "routed_drafters": {"routing": "credit"},
    "confidence_threshold": {"length": "confidence"},
}


def test_every_field_can_be_an_axis_as_it_is_offered(context: Context) -> None:
    for field in (*INITIAL_VALUES, *MENU_FIELDS):
        typed, picked = axis_shown(field, context.drafter_names)
        assert (typed.visible, picked.visible) == (field in INITIAL_VALUES, field in MENU_FIELDS)
        axes = [field, typed.value, picked.value, *AXES[6:], *AXES[6:]]
        own = {"mine": replace(SpeculationConfig(), **USES.get(field, {})).to_plain()}
        changes = {"base": ["mine"], "axes": axes, "sampling": [16, 1, *SAMPLING[2:]]}
        request = grid_of(context, own, **changes)
        assert len(request.study.configurations) + len(request.refused) > 2, field
        if field in USES:
            with pytest.raises(
                ConfigError, match=rf"^{field} is \[.*\]: it cannot be varied here, since "
            ):
                grid_of(context, **{**changes, "base": ["specinfer"]})
    assert [part.visible for part in axis_shown("", ())] == [False, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"axes": AXES[6:] * 3}, "axes is 'none': it must be at least one field"),
        ({"axes": AXES[:3] * 2 + AXES[6:]}, "at least one field, each once"),
        ({"axes": ["speculation_length", "", [], *AXES[6:] * 2]}, "speculation_length is"),
        ({"axes": ["speculation_length", "x", [], *AXES[6:] * 2]}, "no point of the grid can run"),
        ({"repeats": [None]}, "repeats is empty: it must be a whole number"),
        ({"repeats": [0]}, "repeats is 0"),
        ({"repeats": [1.5]}, "repeats is 1.5"),
        ({"sampling": [None, *SAMPLING[1:]]}, "max_new_tokens is empty"),
        ({"prompts": ["typed", "", None, [], 1]}, "at least one prompt"),
        ({"prompts": ["a file", "", None, [], 1]}, "a .txt or .jsonl file"),
        ({"prompts": ["a file", "", "/nowhere/x.txt", [], 1]}, "a file that can be read"),
        ({"prompts": ["examples", "", None, [], 1]}, "domains is"),
        ({"prompts": ["examples", "", None, ["code"], None]}, "prompts of each domain is empty"),
        (
            {
                "axes": ["vote_nodes", ",".join(map(str, range(1, 51))), [], "eta", "1,2,3,4,5", []]
                + AXES[6:]
            },
            "configurations is 251",
        ),
    ],
)
def test_what_cannot_start_says_why(context: Context, changes: dict[str, Any], words: str) -> None:
    notice, start = plan_values(context, None, form_values(), values(**changes))
    assert words in notice_of([notice], 0) and start.interactive is False
    (line,) = notice["lines"].values()
    assert line["kind"] == "error"


def test_what_can_be_started_is_counted(context: Context) -> None:
    notice, start = plan_values(context, None, form_values(), values())
    assert "4 points and plain decoding, 2 prompts, 2 repeats: 20 runs" in notice_of([notice], 0)
    assert start.interactive is True
    axes = ["drafters", "all | nobody", [], *AXES[6:] * 2]
    notice, start = plan_values(context, None, form_values(), values(axes=axes))
    assert "cannot run: drafters nobody" in notice_of([notice], 0) and start.interactive is True


def test_prompts_come_from_a_file_and_a_bad_line_is_reported(
    context: Context, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"prompt": "<img onerror=x>", "id": "a"}), encoding="utf-8")
    study = grid_of(context, prompts=["a file", "", str(path), [], 1]).study
    assert study.prompts == (StudyPrompt("a", "<img onerror=x>"),)
    path.write_text('{"prompt": "fine"}\n' + "[" * 50_000, encoding="utf-8")
    typed = values(prompts=["a file", "", str(path), [], 1])
    notice, start = plan_values(context, None, form_values(), typed)
    assert notice_of([notice], 0).startswith("line 2 is") and start.interactive is False


def test_a_measured_grid_is_drawn_with_the_value_of_auto_and_without_a_grid_nothing_is(
    context: Context,
) -> None:
    assert picture_values(None) == [{"lines": {}}, {}, {}, {}]
    studies, study_id = measure(context)
    notice, speed, length, points = picture_values(studies.open(study_id))
    assert "Best: " in notice_of([notice], 0)
    assert speed["unit"] == "x" and length["unit"] == "tokens"
    assert [cell["runs"] for cell in json.loads(speed["cells"]["~"]).values()] == [4, 4, 4, 4]
    assert len(json.loads(points["rows"]["~"])) == 5
    opened = studies.open(study_id)
    known = {cell: replace(one, auto_nodes=1) for cell, one in opened.results.items()}
    notice = picture_values(opened._replace(results=known))[:1]
    assert "max_tree_nodes=auto resolved to 1 node in every run" in notice_of(notice, 0)
    assert "resolved to" not in notice_of(picture_values(opened)[:1], 0)
    known = {cell: replace(one, schedule="shared") for cell, one in opened.results.items()}
    notice = notice_of(picture_values(opened._replace(results=known))[:1], 0)
    assert f"{len(known)} of {len(known)} runs were scheduled by shared, which may grant" in notice
    skipped = point_reset(studies.open(study_id))
    assert all(one["__type__"] == "update" and "value" not in one for one in skipped)
    panel, selected, use = point_reset(None)
    assert panel["value"] == {} and not selected and use.interactive is False


def point_runs(value: dict[str, Any]) -> list[str]:
    runs = value["runs"].values()
    return [run["run"] for run in runs if (run["prompt"], run["repeat"]) == ("1", "1")]


def test_points_that_cannot_run_stay_when_a_grid_is_opened_again(context: Context) -> None:
    axes = [*("speculation_length", "2, 99", []), *("drafters", "all | nobody", []), "", "", []]
    studies, study_id = measure(context, axes=axes)
    notice, speed, _, points = picture_values(studies.open(study_id))
    cells = json.loads(speed["cells"]["~"]).values()
    refused = [cell["refused"] for cell in cells if "refused" in cell]
    assert len(cells) == 4 and len(refused) == 3 and "speculation_length is 99" in refused[1]
    assert sum(row["mark"] == "refused" for row in json.loads(points["rows"]["~"]).values()) == 3
    words = "cannot run: speculation length 2, drafters nobody. drafters is"
    assert words in notice_of([notice], 0)


def test_a_point_goes_into_live_as_it_was_measured_and_no_other_does(context: Context) -> None:
    studies, study_id = measure(context)
    value, selected = point_shown(studies, {"study": study_id, "point": 2})
    assert value["name"] == "speculation length 4, expansion 1" and len(value["runs"]) == 4
    request = request_of_point(studies, selected)
    assert request.prompt == "Once" and request.sampling.max_new_tokens == 16
    assert request.speculation.speculation_length == 4 and request.speculation.expansion == (1,)
    assert request.speculation.record_top_k == RECORD_TOP_K
    context.store.flush()
    runs = [context.store.run(run_id) for run_id in point_runs(value)]
    assert request.sampling.seed in {run.asked["sampling"]["seed"] for run in runs}
    with pytest.raises(ConfigError, match="point is 'none'"):
        request_of_point(studies, {})
    for event in ({}, {"study": "gone", "point": 0}, {"point": "0"}):
        assert point_shown(studies, event) == ({}, {})
    for point in (None, "1", 99, -1, [0]):
        assert point_shown(studies, {"study": study_id, "point": point}) == ({}, {})


def test_an_empty_seed_is_drawn_for_each_study(context: Context) -> None:
    study, another = grid_of(context).study, grid_of(context).study
    assert study.sampling.seed is not None and study.sampling.seed != another.sampling.seed
    cells = (Cell(study.base, study.prompts[0].id, repeat) for repeat in range(2))
    first, second = map(study.request, cells)
    assert first.sampling.seed == study.sampling.seed
    assert second.sampling.seed == study.sampling.seed + 1
    with_seed = [*SAMPLING[:6], "7", *SAMPLING[7:]]
    assert grid_of(context, sampling=with_seed).study.sampling.seed == 7


def test_files_have_every_point_and_every_run_and_only_their_owner_gets_them(
    context: Context,
) -> None:
    studies, study_id = measure(context)
    for kind, count in (("points", 5), ("runs", 20)):
        file = study_csv(studies, study_id, kind)
        assert file["name"] == f"specscope-{study_id}-{kind}.csv"
        assert len(list(csv.DictReader(io.StringIO(file["text"])))) == count
    with pytest.raises(ConfigError, match="No grid is shown"):
        study_csv(studies, "", "runs")
    other = Studies(context, "other", "other")
    assert point_shown(other, {"study": study_id, "point": 0}) == ({}, {})
    with pytest.raises(UnknownStudyError, match="no such study of yours"):
        request_of_point(other, {"study": study_id, "point": 0})
    with pytest.raises(UnknownStudyError):
        study_csv(other, study_id, "runs")
