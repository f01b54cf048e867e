"""The README's types of what the endpoints return are those of what they return."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from storage import RunQuery, RunStore
from storage.exports import EXPORTS
from tests.ui.fakes import FakeWorker, endless, scripted
from tests.ui.rigs import Loader, other_worker
from tests.ui.serving import served
from ui.context import make_context
from ui.page import build_page
from ui.rig import Rig
from ui.visitors import Access

README = Path(__file__).parents[2] / "README.md"
SIMPLE = {"str": str, "int": int, "float": (int, float), "bool": bool, "object": dict}


@cache
def types() -> dict[str, dict[str, str]]:
    """Each named type's fields; a name alone takes its fields in."""
    text = README.read_text(encoding="utf-8")
    block = next(part for part in text.split("```") if part.startswith("\nRun "))
    found: dict[str, dict[str, str]] = {}
    for line in block.strip().splitlines():
        name, told = line.split(None, 1)
        parts = [part.partition(": ") for part in told.split(", ")]
        found[name] = {field: kind for field, _, kind in parts}
    return {name: dict(_spread(fields, found)) for name, fields in found.items()}


def _spread(fields: dict[str, str], found: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    for field, kind in fields.items():
        if kind:
            yield field, kind
        else:
            yield from _spread(found[field], found)


def faults(value: Any, kind: str, at: str, fields: tuple[str, ...] = ()) -> list[str]:
    """Where a value is not of its type; `fields`: what stands for FIELD."""
    if (inner := re.fullmatch(r"list\[(.*)\]", kind)) and "]|" not in kind:
        if not isinstance(value, list):
            return [f"{at} is no list"]
        return [
            fault
            for i, one in enumerate(value)
            for fault in faults(one, inner[1], f"{at}[{i}]", fields)
        ]
    if "|" in kind:
        tried = [faults(value, one, at, fields) for one in kind.split("|")]
        return min(tried, key=len)
    if kind == "null":
        return [] if value is None else [f"{at} is {value!r}, not null"]
    if kind in SIMPLE:
        boolean = isinstance(value, bool) and kind != "bool"
        right = isinstance(value, SIMPLE[kind]) and not boolean
        return [] if right else [f"{at} is {value!r}, not {kind}"]
    return _faults_of_object(value, kind, at, fields)


def _faults_of_object(value: Any, kind: str, at: str, fields: tuple[str, ...]) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at} is {value!r}, not {kind}"]
    told = types()[kind]
    if "FIELD" in told:
        told = {**told, **dict.fromkeys(fields, told["FIELD"])}
        del told["FIELD"]
    needed = {name for name in told if not name.endswith("?")}
    known = {name.rstrip("?"): one for name, one in told.items()}
    wrong = [f"{at}.{name} is not told" for name in value.keys() - known.keys()]
    wrong += [f"{at}.{name} is missing" for name in needed - value.keys()]
    for name in value.keys() & known.keys():
        wrong += faults(value[name], known[name], f"{at}.{name}", fields)
    return wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, FakeWorker]]:
    """A client, and the worker that stands until other models are loaded."""
    with RunStore(tmp_path_factory.mktemp("told") / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=6), speed=0.0)
        rig = Rig(worker, Loader(lambda: other_worker("small")))
        context = make_context(rig, store, Access("127.0.0.1"), "specinfer", RunQuery, EXPORTS)
        with served(build_page(context)) as url:
            made = Client(url, verbose=False)
            yield made, worker
            made.close()
        context.conductor.close()


@dataclass
class Told:
    """Calls endpoints, holds what comes back to its type, and remembers which were called."""

    client: Client
    called: set[str]

    def __call__(self, kind: str, endpoint: str, **asked: Any) -> Any:
        value = self.client.predict(api_name=endpoint, **asked)
        self.called.add(endpoint)
        assert not faults(value, kind, endpoint, ("speculation_length",))
        return value


def test_what_comes_back_is_what_the_readme_tells(site: tuple[Client, FakeWorker]) -> None:
    client, worker = site
    told = Told(client, set())
    studied(told, worker)
    looked_back(told)
    exchanged(told)
    endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert told.called == set(endpoints)


def studied(told: Told, worker: FakeWorker) -> None:
    comparison = told("Study", "/compare", prompt="Once", configurations=["specinfer"], repeats=2)
    grid = told(
        "Grid", "/tune", prompts=["Once"], fields={"speculation_length": [2, 64]}, repeats=2
    )
    assert any(row["found"].startswith("refused: ") for row in grid["rows"])
    prompts = told("PromptStudy", "/prompts", prompts=["Once", {"prompt": "x", "domain": "code"}])
    assert [row["domain"] for row in prompts["prompts"]] == ["", "code"] * 2
    told("Studies", "/studies")
    for study in (comparison, grid, prompts):
        cells = told("Study", "/study", study_id=study["study_id"], cells=True)["cells"]
        assert not faults(cells, "list[Cell]", "cells")
        assert told("PromptRows", "/prompt_rows", study_id=study["study_id"])["rows"]
    told("StudyLine", "/stop_study", study_id=comparison["study_id"])
    worker.cast(endless, speed=5.0)
    cut = told("PromptStudy", "/prompts", prompts=["Once"], wait=False)
    assert told("StudyLine", "/stop_study", study_id=cut["study_id"])["state"] == "stopped"
    worker.cast(scripted(rounds=6), speed=0.0)
    assert told("Study", "/resume_study", study_id=cut["study_id"])["state"] == "completed"
    told("StudyGone", "/delete_study", study_id=cut["study_id"])


def looked_back(told: Told) -> None:
    run = told("Run", "/generate", prompt="Once", max_new_tokens=20)
    told("Runs", "/runs")
    told("PastRun", "/run", run_id=run["run_id"], events=True)
    assert told("PromptRows", "/prompt_rows")["rows"]
    told("Baseline", "/baseline", run_id=run["run_id"])
    told("Proof", "/prove", run_id=run["run_id"])
    told("File", "/export", run_id=run["run_id"], format="csv")
    told("Noted", "/annotate", run_id=run["run_id"], note="seen")
    told("Retention", "/set_retention", runs=1000, sure=True)
    assert told("Retention", "/retention") == {"runs": 1000}
    told("Deleted", "/delete", run_id=run["run_id"])


def exchanged(told: Told) -> None:
    told("Models", "/models")
    told("Loaded", "/load_models", llm="other", ssms=["small"], dtype="bfloat16", device="cpu")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"run_id": "x"}, "note is missing"),
        ({"run_id": "x", "note": 1}, "note is 1, not str"),
        ({"run_id": "x", "note": "y", "more": 1}, "more is not told"),
        ([], "not Noted"),
    ],
)
def test_control_what_is_otherwise_is_noticed(value: Any, words: str) -> None:
    assert words in str(faults(value, "Noted", "it"))
