"""In a study, `max_tree_nodes=auto` resolves to one number of nodes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import Request, SpeculationConfig
from core.events import Event
from lab.budgets import depends_on_timings, resolved_nodes, stored_nodes, with_nodes
from lab.conductor import Conductor
from lab.study import Configuration, Study
from tests.lab.test_study_runs import Lab, study, until
from tests.ui.fakes import script_of
from ui.server.study_runs import StudyRuns

AUTO = SpeculationConfig.preset("specinfer")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab(tmp_path / "log.db", slowdown=1.0)
    yield opened
    opened.close()


def set_auto_nodes(lab: Lab, nodes: int) -> None:
    script = script_of(4)

    def play(request: Request, run_id: str) -> list[Event]:
        first, *rest = script(request, run_id)
        if request.speculation.max_tree_nodes == "auto":
            speculation = {**first.config["speculation"], "max_tree_nodes": nodes}
            first = replace(first, config={**first.config, "speculation": speculation})
        return [first, *rest]

    lab.worker.script = play


def requested_budgets(lab: Lab) -> list[object]:
    specs = [request.speculation for request in lab.worker.requests]
    return [one.max_tree_nodes for one in specs if not one.never_drafts]


def test_all_cells_run_with_the_nodes_of_the_first_run(lab: Lab) -> None:
    set_auto_nodes(lab, 12)
    lab.conductor.begin(study())
    assert lab.conductor.wait(20)
    first, *rest = requested_budgets(lab)
    assert first == "auto" and rest == [12] * 4
    results = {cell.contestant: one.auto_nodes for cell, one in lab.results().items()}
    assert results == {"plain decoding": None, "specinfer": 12}


def test_a_resumed_study_keeps_its_number_where_auto_gives_another(lab: Lab) -> None:
    set_auto_nodes(lab, 12)
    lab.conductor.begin(study())
    until(lab, 3)
    lab.conductor.stop()
    assert lab.conductor.wait(20)
    set_auto_nodes(lab, 2)
    before = len(requested_budgets(lab))
    again = Conductor(StudyRuns(lab.hub), lab.store.studies)  # as after a restart
    again.resume(Study.from_plain(lab.store.studies.study("s1")[1]))
    assert again.wait(20)
    assert set(requested_budgets(lab)[before:]) == {12}
    assert {one.auto_nodes for one in lab.results().values()} == {None, 12}


def test_auto_is_resolved_once_also_in_the_last_configuration(lab: Lab) -> None:
    set_auto_nodes(lab, 6)
    fixed = [Configuration(f"of {n}", replace(AUTO, max_tree_nodes=n)) for n in range(1, 9)]
    configurations = (study().configurations[0], *fixed, Configuration("auto", AUTO))
    lab.conductor.begin(replace(study(), configurations=configurations, repeats=1))
    assert lab.conductor.wait(60)
    assert requested_budgets(lab).count("auto") == 1
    assert {c.contestant for c, one in lab.results().items() if one.auto_nodes == 6} == {"auto"}


@pytest.mark.parametrize(
    ("changes", "depends"),
    [
        ({}, True),
        ({"length": "confidence"}, True),
        ({"length": "goodput"}, False),
        ({"length": "trend"}, False),
        ({"max_tree_nodes": 8}, False),
        ({"max_tree_nodes": "uncut"}, False),
        ({"drafters": (), "speculation_length": 0}, False),
    ],
)
def test_which_budgets_depend_on_timings(changes: dict[str, object], depends: bool) -> None:
    speculation = replace(AUTO, **changes)  # type: ignore[arg-type]
    request = Request("Once", speculation=speculation)
    assert depends_on_timings(speculation) is depends
    nodes = with_nodes(request, 5).speculation.max_tree_nodes
    assert nodes == (5 if depends else speculation.max_tree_nodes)
    assert with_nodes(request, None) == request


def test_the_first_stored_number_counts_and_none_without_one() -> None:
    assert resolved_nodes([]) is None
    assert stored_nodes([{}, {"auto_nodes": None}]) is None
    assert stored_nodes([{"auto_nodes": None}, {"auto_nodes": 4}, {"auto_nodes": 9}]) == 4
