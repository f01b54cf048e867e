"""Drafters of one's own: the guide's example under the laws, faulty ones, and what is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.__main__ import main
from core.drafters.base import DraftRequest
from core.drafters.lookup import LookupDrafter
from core.drafters.own import check_drafts
from core.engine.worker import Worker
from core.errors import ConfigError
from core.events import Drafted, RoundCompleted
from core.trees.draft import Draft
from tests.core.engines import engine_of, ids_of_events, tables
from tests.fakes import loaded_tables
from tests.laws.runs import ids_of, module_of, prompts, transformers_ids
from tests.source import ROOT
from ui.form.fields import field_controls
from ui.run.trees import tree_nodes
from ui.run.view import detail_of, reduce_all
from ui.server.arguments import parse
from ui.server.model_host import ModelHost

NAME = "my_drafters:Bigrams"
EXAMPLE = re.compile(r"<!-- own drafter -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The guide's drafter, in a file that Python finds."""
    (code,) = EXAMPLE.findall((ROOT / "docs" / "guide.md").read_text(encoding="utf-8"))
    assert len(code.splitlines()) <= 32
    (tmp_path / "my_drafters.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield NAME
    sys.modules.pop("my_drafters", None)


def engine_with(*paths: str) -> Engine:
    return Engine(loaded_tables(*tables()), drafters=paths)


def request(*drafters: str, temperature: float = 0.0, **fields: Any) -> Request:
    config = SpeculationConfig(drafters=drafters, **fields)
    return Request("w0 w1 w0 w1 w2 w0", SamplingParams(24, temperature, seed=3), config)


def plain(temperature: float = 0.0) -> Request:
    return request(temperature=temperature, speculation_length=0)


FIELDS: list[dict[str, Any]] = [
    {},
    {"length": "goodput"},
    {"combine": "vote", "weights": "full_information"},
    {"combine": "vote_tree", "pipeline": "auto"},
    {"length": "trend", "expansion": (3, 2), "max_tree_nodes": "uncut"},
    {"draft": "best_first", "max_tree_nodes": 5},
]


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_plain_decodings(
    example: str, fields: dict[str, Any], temperature: float
) -> None:
    engine = engine_with(example)
    for drafters in ((example,), (example, "ngram", "all")):
        asked = request(*drafters, temperature=temperature, **fields)
        assert ids_of(engine, asked) == ids_of(engine, plain(temperature))


def test_bundled_models_write_what_transformers_writes(example: str, bundled: Engine) -> None:
    engine = Engine(bundled.models, drafters=[example])
    accepted = 0
    for prompt in prompts(3):
        asked = Request(prompt, SamplingParams(32), SpeculationConfig(drafters=(example,)))
        events = list(engine.generate(asked))
        ids, models = engine.prepare(asked).prompt_ids, bundled.models
        expected = transformers_ids(module_of(models), ids, asked.sampling, models.eos_ids)
        assert ids_of_events(events) == expected
        accepted += sum(e.num_accepted for e in events if isinstance(e, RoundCompleted))
    assert accepted > 3


def test_it_is_in_menus_and_pictures(example: str) -> None:
    engine = engine_with(example)
    control = field_controls(SpeculationConfig(), ("ssm",), engine.models.own_drafters)["drafters"]
    assert [name for name, _ in control.choices] == ["ssm", "ngram", "suffix", "table", example]
    host = ModelHost(Worker(engine))
    assert host.own_drafters == (example,)
    host.check(request(example))
    host.close()
    events = list(engine.generate(request(example)))
    view = reduce_all(events)
    assert view.drafters == (example,)
    number = next(e.round for e in events if isinstance(e, Drafted) and e.drafts[0].token_ids)
    detail = detail_of(events, number)
    assert detail is not None
    nodes = tree_nodes(detail, view.drafters)
    assert nodes and all(node["by"] for node in nodes.values()), nodes


Rows = list[tuple[float, float, float, float]]
FAULTS: dict[str, tuple[Rows, str]] = {
    "Many": ([(1, -1, 0.5, 0)] + [(1, i, 0.5, 0) for i in range(8)], "9 nodes, of at most 4"),
    "Forward": ([(1, 0, 0.5, 0)], "a parent is no earlier node"),
    "Deep": ([(1, -1, 0.5, 0), (1, 0, 0.5, 0), (1, 1, 0.5, 0)], "deeper than 2 steps"),
    "Unknown": ([(8, -1, 0.5, 0)], "a token id is not from 0 to 7"),
    "Unsure": ([(1, -1, 1.5, 0)], "a score is not from 0 to 1"),
    "Twice": ([(1, -1, 0.5, 0), (1, -1, 0.4, 1)], "a token comes twice behind one node"),
    "Branched": ([(1, -1, 0.5, 0), (2, -1, 0.4, 1)], "a branch, where each step has one child"),
}


def load_class(monkeypatch: pytest.MonkeyPatch, name: str, rows: Rows) -> str:
    """The path of a class that drafts these rows, whatever it is asked for."""

    def nodes_for(self: LookupDrafter[Any], request: DraftRequest) -> np.ndarray:
        return np.array(rows)

    module = ModuleType("faulty")
    setattr(module, name, type(name, (LookupDrafter,), {"nodes_for": nodes_for}))
    monkeypatch.setitem(sys.modules, "faulty", module)
    return f"faulty:{name}"


@pytest.mark.loses_drafters
@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_draft_drops_its_drafter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, words = FAULTS[name]
    path = load_class(monkeypatch, name, rows)
    engine = engine_with(path)
    shape = (1,) if name == "Branched" else (2, 1)
    asked = request(path, expansion=shape, max_tree_nodes=4, speculation_length=2)
    events = list(engine.generate(asked))
    notes = [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]
    assert len(notes) == 1 and path in notes[0] and words in notes[0]
    assert ids_of_events(events) == ids_of(engine, plain())


def test_a_class_that_cannot_be_made_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("faulty")
    module.Needy = type("Needy", (LookupDrafter,), {"__init__": lambda self: None})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faulty", module)
    with pytest.raises(ConfigError, match="--drafter is 'faulty:Needy': .*TypeError"):
        engine_with("faulty:Needy")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("my_drafters", ""),
        ("os.path", ""),
        ("no_such_module:Class", "ModuleNotFoundError"),
        ("os:no_such_class", "AttributeError"),
        ("os:getcwd", "no class with open"),
        ("pathlib:Path", "no class with draft, commit, close"),
    ],
)
def test_a_path_of_no_drafter_is_one_line(
    path: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--drafter", path, "--prompt", "a"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --drafter is '{path}': package.module:Class, a class with")
    assert reason in error and error.count("\n") == 1


def test_a_request_imports_nothing(example: str) -> None:
    with pytest.raises(ConfigError, match=f"drafters is '{NAME}': one of all, first"):
        engine_of(*tables()).prepare(request(NAME))
    assert "my_drafters" not in sys.modules


def test_the_page_takes_the_option(example: str) -> None:
    assert parse([]).drafter == []
    assert parse(["--drafter", example]).drafter == [example]
    with pytest.raises(ConfigError, match="--drafter is 'no_such_module:Class'"):
        parse(["--drafter", example, "--drafter", "no_such_module:Class"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token_ids": [1.0]}, "a token id, parent or rank is no int"),
        ({"token_ids": [np.int64(1)]}, "a token id, parent or rank is no int"),
        ({"scores": [np.float32(0.5)]}, "a score or q is no float"),
        ({"contexts": [2]}, ""),
        ({"shares": [0.5, 0.2]}, "contexts or shares are not of its length"),
    ],
)
def test_a_draft_is_plain_values_that_the_log_can_keep(change: dict[str, Any], words: str) -> None:
    values: dict[str, Any] = {"token_ids": [1], "parents": [-1], "scores": [0.5]}
    draft = Draft(**(values | {"qs": [1.0], "ranks": [0]} | change))
    asked = SimpleNamespace(budget=4, shape=(1,))
    if not words:
        check_drafts([cast(DraftRequest, asked)], [draft], 8)
        return
    with pytest.raises(ValueError, match=words):
        check_drafts([cast(DraftRequest, asked)], [draft], 8)
