"""The endpoints against docs/api.md, and the errors for invalid values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from core.routing.regret import regret_of
from tests.golden.api import FILE, api_answers
from tests.golden.differences import differences
from tests.source import ROOT
from tests.ui.api.sites import Site, api_site
from tests.ui.fakes import FakeWorker, endless, script_of
from ui.api import run_questions
from ui.server.arguments import parse

API = ROOT / "docs" / "api.md"
SIMPLE = {"str": str, "int": int, "float": (int, float), "bool": bool, "object": dict}
ENDPOINT = re.compile(r"(?P<name>/\w+)\((?P<arguments>.*)\) -> (?P<returns>\w+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`arguments`: each `name` or `name=default`."""

    arguments: tuple[str, ...]
    returns: str


@cache
def documentation() -> tuple[dict[str, Endpoint], dict[str, dict[str, str]]]:
    endpoints: dict[str, Endpoint] = {}
    types: dict[str, dict[str, str]] = {}
    for entry in entries(API.read_text(encoding="utf-8")):
        if match := ENDPOINT.fullmatch(entry):
            arguments = tuple(filter(None, match["arguments"].split(", ")))
            endpoints[match["name"]] = Endpoint(arguments, match["returns"])
        else:
            name, fields = entry.split(" ", 1)
            parts = [part.partition(": ") for part in fields.split(", ")]
            types[name] = {part: kind for part, _, kind in parts}
    return endpoints, {name: dict(spread(fields, types)) for name, fields in types.items()}


def entries(page: str) -> list[str]:
    """An indented line continues the line before it."""
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [line for line in re.sub(r"\n +", " ", "\n".join(blocks)).splitlines() if line]


def spread(fields: dict[str, str], types: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Replace a bare name of a type by that type's fields."""
    for name, kind in fields.items():
        if kind:
            yield name, kind
        else:
            yield from spread(types[name], types)


def mismatches(value: Any, kind: str, at: str, columns: tuple[str, ...] = ()) -> list[str]:
    """`columns`: the names for which the placeholder FIELD of docs/api.md stands."""
    # `list[A]|list[B]` matches the pattern too, but is a union.
    if (inner := re.fullmatch(r"list\[(.*)\]", kind)) and "]|" not in kind:
        if not isinstance(value, list):
            return [f"{at} is not a list"]
        return [
            mismatch
            for i, item in enumerate(value)
            for mismatch in mismatches(item, inner[1], f"{at}[{i}]", columns)
        ]
    if "|" in kind:
        return min((mismatches(value, part, at, columns) for part in kind.split("|")), key=len)
    if kind == "null":
        return [] if value is None else [f"{at} is {value!r}, not null"]
    if kind in SIMPLE:
        # In Python, a bool is an int.
        unwanted_bool = isinstance(value, bool) and kind != "bool"
        right = isinstance(value, SIMPLE[kind]) and not unwanted_bool
        return [] if right else [f"{at} is {value!r}, not {kind}"]
    return object_mismatches(value, kind, at, columns)


def object_mismatches(value: Any, kind: str, at: str, columns: tuple[str, ...]) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at} is {value!r}, not {kind}"]
    fields = dict(documentation()[1][kind])
    if "FIELD" in fields:
        fields |= dict.fromkeys(columns, fields.pop("FIELD"))
    required = {name for name in fields if not name.endswith("?")}
    allowed = {name.rstrip("?"): field_kind for name, field_kind in fields.items()}
    wrong = [f"{at}.{name} is not documented" for name in value.keys() - allowed.keys()]
    wrong += [f"{at}.{name} is missing" for name in required - value.keys()]
    for name in value.keys() & allowed.keys():
        wrong += mismatches(value[name], allowed[name], f"{at}.{name}", columns)
    return wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, FakeWorker]]:
    with api_site(tmp_path_factory.mktemp("api"), preset=parse([]).preset) as served:
        yield served.client(), served.worker


@dataclass
class Caller:
    client: Client
    called: set[str] = field(default_factory=set)

    def __call__(self, endpoint: str, **arguments: Any) -> Any:
        answer = self.client.predict(api_name=endpoint, **arguments)
        self.called.add(endpoint)
        returns = documentation()[0][endpoint].returns
        assert not mismatches(answer, returns, endpoint, ("speculation_length",))
        return answer


def test_documented_signatures_are_those_of_the_server(site: tuple[Client, FakeWorker]) -> None:
    client, _ = site
    api = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    served_signatures = {
        name: tuple(
            f"{parameter['parameter_name']}={parameter['parameter_default']!r}"
            if parameter["parameter_has_default"]
            else parameter["parameter_name"]
            for parameter in endpoint["parameters"]
        )
        for name, endpoint in api.items()
    }
    assert {
        name: entry.arguments for name, entry in documentation()[0].items()
    } == served_signatures


@pytest.mark.nightly
def test_every_answer_has_its_documented_type(
    site: tuple[Client, FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = site
    monkeypatch.setattr(run_questions, "measure_regret", stub_measure_regret)
    call = Caller(client)
    call_study_endpoints(call, worker)
    call_run_endpoints(call)
    call_request_endpoints(call, worker)
    call_model_endpoints(call)
    assert call.called == documentation()[0].keys()


def stub_measure_regret(_hub: Any, session: Any, _owner: str) -> Iterator[None]:
    """Replaces `measure_regret`, which needs SSMs."""
    hits = {"ssm-code": [True, False, True], "ssm-docs": [False, True, True]}
    session.regret = regret_of(hits, [{"ssm-code", "ssm-docs"}] * 3, 2)
    yield


def call_study_endpoints(call: Caller, worker: FakeWorker) -> None:
    comparison = call("/compare", prompt="Once", configurations=["specinfer"], repeats=2)
    fields = {"speculation_length": [2, 64]}
    grid = call("/tune", prompts=["Once"], fields=fields, preset="specinfer", repeats=2)
    assert any(row["found"].startswith("refused: ") for row in grid["rows"])
    prompts = call(
        "/prompts",
        prompts=["Once", {"prompt": "x", "domain": "code"}],
        configurations=["specinfer"],
    )
    assert [row["domain"] for row in prompts["prompts"]] == ["", "code"] * 2
    call("/studies")
    for study in (comparison, grid, prompts):
        cells = call("/study", study_id=study["study_id"], cells=True)["cells"]
        assert not mismatches(cells, "list[Cell]", "cells")
        assert call("/prompt_rows", study_id=study["study_id"])["rows"]
    call("/stop_study", study_id=comparison["study_id"])
    worker.set_script(endless, slowdown=5.0)
    stopped = call("/prompts", prompts=["Once"], wait=False)
    assert call("/stop_study", study_id=stopped["study_id"])["state"] == "stopped"
    worker.set_script(script_of(rounds=6), slowdown=0.0)
    assert call("/resume_study", study_id=stopped["study_id"])["state"] == "completed"
    call("/delete_study", study_id=stopped["study_id"])


def call_run_endpoints(call: Caller) -> None:
    run = call("/generate", prompt="Once", max_new_tokens=20)
    call("/runs")
    call("/run", run_id=run["run_id"], events=True)
    assert call("/prompt_rows")["rows"]
    call("/baseline", run_id=run["run_id"])
    call("/prove", run_id=run["run_id"])
    assert "regret" in call("/regret", run_id=run["run_id"])["words"]
    call("/export", run_id=run["run_id"], format="csv")
    call("/annotate", run_id=run["run_id"], note="seen")
    call("/set_retention", runs=1000, sure=True)
    assert call("/retention") == {"runs": 1000}
    call("/delete", run_id=run["run_id"])


def call_request_endpoints(call: Caller, worker: FakeWorker) -> None:
    assert call("/schedule", name="shared")["schedule"] == "shared"
    assert call("/schedule")["schedule"] == worker.engine.schedule == "shared"
    call("/schedule", name="each")
    assert call("/requests")["runs"] == []


def call_model_endpoints(call: Caller) -> None:
    call("/models")
    call("/load_models", llm="other", ssms=["small"], dtype="bfloat16", device="cpu")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"run_id": "x"}, "note is missing"),
        ({"run_id": "x", "note": 1}, "note is 1, not str"),
        ({"run_id": "x", "note": "y", "more": 1}, "more is not documented"),
        ([], "not Noted"),
    ],
)
def test_mismatches_reports_wrong_types(value: Any, words: str) -> None:
    assert words in str(mismatches(value, "Noted", "it"))


@pytest.mark.nightly
def test_the_answers_are_those_of_the_golden_file() -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    found = list(differences(golden, json.loads(json.dumps(api_answers()))))
    assert not found, "\n".join(found[:5])


GRID: dict[str, Any] = {"prompts": ["Once"], "fields": {"speculation_length": [2, 4]}}
FULL_GRID = {"eta": [1], "vote_nodes": [1], "verify": ["auto"], "combine": ["vote"]}
# Valid arguments that are added to a bad call.
VALID: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": "x"},
    "/compare": {"prompt": "x"},
    "/tune": GRID,
    "/prompts": {"prompts": ["x"]},
}


def by_name(**wrong: Any) -> list[tuple[dict[str, Any], str]]:
    return [({name: value}, f"{name} is {value!r}") for name, value in wrong.items()]


BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "/generate": [
        *by_name(prompt=3, temperature=True, top_k=1.5, seed="lucky"),
        ({"prompt": "  "}, "prompt is '  ': it must be a text with at least one visible character"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0: it must be a whole number from 1"),
        ({"max_new_tokens": "12"}, "max_new_tokens is '12': it must be a whole number"),
        ({"top_p": 0}, "top_p is 0: it must be a number above 0"),
        ({"stop": "abc"}, "stop is 'abc': it must be a list"),
        ({"ignore_eos": "yes"}, "ignore_eos is 'yes': it must be true or false"),
        ({"chat": 1}, "chat is 1: it must be true or false"),
        ({"fields": [1]}, "fields is [1]: it must be an object"),
    ],
    "/run": [
        *by_name(run_id="nosuch"),
        *by_name(run_id=""),
        *by_name(run_id=None),
        ({"run_id": "x", "events": "yes"}, "events is 'yes': it must be true or false"),
        ({"run_id": "x", "events": 1}, "events is 1: it must be true or false"),
    ],
    "/runs": [
        *by_name(llm=3, since="yesterday", until=7),
        ({"limit": 0}, "limit is 0: it must be a whole number from 1 to 1000"),
        ({"limit": 1001}, "limit is 1001: it must be a whole number from 1 to 1000"),
        ({"limit": True}, "limit is True: it must be a whole number from 1 to 1000"),
        ({"offset": -1}, "offset is -1: it must be a whole number from 0"),
        ({"status": "lost"}, "status is 'lost': it must be one of completed, running"),
        ({"status": None}, "status is None: it must be one of completed, running"),
        ({"status": 0}, "status is 0: it must be one of completed, running"),
        ({"order": None}, "order is None: it must be one of newest"),
        ({"order": []}, "order is []: it must be one of newest"),
        ({"search": 3}, "search is 3: it must be a text"),
        ({"noted": "yes"}, "noted is 'yes': it must be true or false"),
    ],
    "/export": [*by_name(run_id="nosuch"), *by_name(run_id=None)],
    "/annotate": [
        ({"run_id": "synthetic-1", "note": 3}, "note is 3: it must be a text"),
        ({"run_id": "nosuch", "note": "x"}, "run_id is 'nosuch'"),
        ({"run_id": "synthetic-1", "note": "x" * 200_000}, "note is"),
    ],
    "/delete": [*by_name(run_id="nosuch"), *by_name(run_id="")],
    "/models": [
        ({"dtype": "float8"}, "dtype is 'float8': it must be one of auto"),
        ({"device": "tpu"}, "device is 'tpu': it must be one of auto"),
    ],
    "/load_models": [
        *by_name(llm=""),
        *by_name(llm=3),
        ({"llm": "x", "ssms": "y"}, "ssms is 'y': it must be a list"),
        ({"llm": "x", "ssms": [1]}, "ssms is [1]"),
        ({"llm": "x", "dtype": None}, "dtype is None"),
        ({"llm": "x", "device": 0}, "device is 0"),
    ],
    "/schedule": [
        ({"name": "warp"}, "name is 'warp': it must be one of each, cosine, shared"),
        ({"name": None}, "name is None: it must be one of each"),
    ],
    "/compare": [
        *by_name(prompt="", temperature="hot", seed=-1),
        ({"configurations": "specinfer"}, "configurations is 'specinfer': it must be a list"),
        (
            {"configurations": []},
            "configurations is []: it must be 1 to 5 configurations that draft",
        ),
        (
            {"configurations": ["autoregressive"]},
            "configurations is ['autoregressive']: it must be 1 to 5",
        ),
        ({"configurations": ["warp"]}, "preset is 'warp': it must be one of"),
        ({"configurations": [7]}, "configurations is 7: it must be a preset's name"),
        ({"configurations": [{"nom": "x"}]}, "a preset's name, or an object"),
        ({"configurations": [{"fields": 3}]}, "fields is 3: it must be an object"),
        ({"configurations": [{"fields": {"warp": 1}}]}, "field is 'warp'"),
        ({"configurations": ["specinfer", "specinfer"]}, "each name once"),
        ({"configurations": [{"name": 3}]}, "name is 3"),
        ({"repeats": 0}, "repeats is 0: it must be a whole number from 1 to 50"),
    ],
    "/tune": [
        *by_name(preset="fastest", repeats=0, temperature=-1, wait="no"),
        ({"prompts": "Once"}, "prompts is 'Once': it must be a list of texts"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [3]}, "prompt is 3"),
        ({"prompts": ["x", "so on " * 9000]}, 'prompt 2 ("so on so on'),
        ({"fields": {}}, "fields is {}: it must be an object with lists of values"),
        ({"fields": [1]}, "fields is [1]: it must be an object"),
        ({"fields": {"warp": [9]}}, "field is 'warp': it must be one of drafters"),
        ({"fields": {"eta": 0.1}}, "eta is 0.1: it must be a list"),
        ({"fields": {"verify": ["mss"]}}, "no point of the grid can run"),
        ({"fields": FULL_GRID}, f"fields is {[*FULL_GRID]}: it must be at most 3 fields"),
    ],
    "/prompts": [
        *by_name(repeats=0),
        ({"prompts": "Once"}, "prompts is 'Once': it must be a list"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [3]}, "prompts is 3: it must be a text, or an object"),
        ({"prompts": [{"text": "x"}]}, "a text, or an object"),
        ({"prompts": [{"prompt": " "}]}, "prompt is ' '"),
        ({"prompts": [{"prompt": "x", "domain": 3}]}, "domain is 3"),
        (
            {"configurations": ["autoregressive"]},
            "configurations is ['autoregressive']: it must be 1 to",
        ),
        ({"configurations": "specinfer"}, "a list"),
        ({"wait": 1}, "wait is 1: it must be true or false"),
    ],
    "/prompt_rows": [
        ({"study_id": "nosuch"}, "no such study"),
        ({"domain": 3}, "domain is 3: it must be a text"),
        ({"limit": 0}, "limit is 0: it must be a whole number from 1 to 2000"),
    ],
    "/studies": [
        *by_name(offset=-1),
        ({"kind": "best"}, "kind is 'best': it must be one of compare"),
        ({"limit": 0}, "limit is 0: it must be a whole number from 1 to 1000"),
    ],
    "/study": [
        *by_name(study_id=""),
        ({"study_id": "nosuch"}, "study_id is 'nosuch': no such study"),
        ({"study_id": "x", "cells": 1}, "cells is 1: it must be true or false"),
    ],
    "/stop_study": [({"study_id": "nosuch"}, "no such study")],
    "/resume_study": [({"study_id": "nosuch"}, "no such study")],
    "/delete_study": [*by_name(study_id=""), ({"study_id": "nosuch"}, "no such study")],
    "/baseline": [*by_name(run_id="nosuch")],
    "/prove": [*by_name(run_id="")],
    "/regret": [
        *by_name(run_id="nosuch"),
        ({"run_id": "synthetic-1"}, "regret needs a router: every SSM drafted in every round"),
    ],
    "/set_retention": [
        ({"runs": -5, "sure": True}, "runs is -5"),
        ({"runs": True, "sure": True}, "runs is True"),
        ({"runs": 5, "sure": 1}, "sure is 1: it must be true"),
    ],
}


@pytest.mark.parametrize("endpoint", BAD)
def test_bad_values_raise_errors_that_name_them(api: Site, endpoint: str) -> None:
    api.record(1)
    version = api.context.model_host.version
    for arguments, words in BAD[endpoint]:
        with pytest.raises(AppError) as caught:
            api(endpoint, **{**VALID.get(endpoint, {}), **arguments})
        assert words in str(caught.value), arguments
    assert api.context.model_host.version == version and api.store.retention() is None
    assert api.store.run("synthetic-1").note == ""
