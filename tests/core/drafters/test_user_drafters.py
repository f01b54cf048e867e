"""Drafters that users define: texts, faults, learning and refusals."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.__main__ import main
from core.drafters.base import DraftRequest
from core.drafters.lookup_base import LookupDrafter
from core.drafters.user_drafters import check_drafts
from core.engine.worker import Worker
from core.errors import ConfigError
from core.events import Drafted, RoundCompleted, RunStarted, event_to_plain
from core.events.parts import Timed
from core.sequence import TokenSequence
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
SAMPLING = SamplingParams(32)
EXAMPLE = re.compile(r"<!-- own drafter -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
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
def test_the_text_is_that_of_plain_decoding(
    example: str, fields: dict[str, Any], temperature: float
) -> None:
    engine = engine_with(example)
    for drafters in ((example,), (example, "ngram", "all")):
        own_request = request(*drafters, temperature=temperature, **fields)
        assert ids_of(engine, own_request) == ids_of(engine, plain(temperature))


@pytest.fixture(scope="module")
def expected_texts(bundled: Engine) -> dict[str, list[int]]:
    models = bundled.models
    return {
        prompt: transformers_ids(
            module_of(models), models.tokenizer(prompt)["input_ids"], SAMPLING, models.eos_ids
        )
        for prompt in prompts(3)
    }


def test_bundled_models_write_what_transformers_writes(
    example: str, bundled: Engine, expected_texts: dict[str, list[int]]
) -> None:
    engine = Engine(bundled.models, drafters=[example])
    accepted = 0
    for prompt, expected in expected_texts.items():
        own_request = Request(prompt, SAMPLING, SpeculationConfig(drafters=(example,)))
        events = list(engine.generate(own_request))
        assert ids_of_events(events) == expected
        accepted += sum(e.num_accepted for e in events if isinstance(e, RoundCompleted))
    assert accepted > 3


def test_a_user_drafter_is_in_menus_and_trees(example: str) -> None:
    engine = engine_with(example)
    control = field_controls(SpeculationConfig(), ("ssm",), engine.models.user_drafters)["drafters"]
    assert [name for name, _ in control.choices] == ["ssm", "ngram", "suffix", "table", example]
    host = ModelHost(Worker(engine))
    assert host.user_drafters == (example,)
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
    "Unsure": ([(1, -1, 1.5, 0)], "a score or share is not from 0 to 1"),
    "Twice": ([(1, -1, 0.5, 0), (1, -1, 0.4, 1)], "a token comes twice behind one node"),
    "Branched": ([(1, -1, 0.5, 0), (2, -1, 0.4, 1)], "a branch, where each step has one child"),
}


def load_class(monkeypatch: pytest.MonkeyPatch, name: str, rows: Rows) -> str:
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
    own_request = request(path, expansion=shape, max_tree_nodes=4, speculation_length=2)
    events = list(engine.generate(own_request))
    notes = [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]
    assert len(notes) == 1 and path in notes[0] and words in notes[0]
    assert ids_of_events(events) == ids_of(engine, plain())


def good(**fields: Any) -> Draft:
    values = {"token_ids": [1], "parents": [-1], "scores": [0.5], "qs": [1.0], "ranks": [0]}
    return Draft(**(values | fields))


def drafts(**fields: Any) -> dict[str, Any]:
    return {"draft": lambda self, requests: [good(**fields) for _ in requests]}


def on_draft(act: Callable[[DraftRequest], object]) -> dict[str, Any]:
    return {"draft": lambda self, requests: [(act(each), good())[1] for each in requests]}


class NoMessage(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raiser_of(error: BaseException) -> Callable[..., Any]:
    def raises(*_: Any) -> Any:
        raise error

    return raises


def late(self: Any, *_: Any) -> tuple[Timed, ...]:
    return (Timed("faulty:Late", "draft", 0.0, 1.0),)


MISBEHAVIOUR: dict[str, tuple[dict[str, Any], str]] = {
    "NoTimings": (drafts(timings=None), "timings is None: a tuple of Timed is allowed"),
    "Timings": (drafts(timings=("x",)), "timings is ('x',): a tuple of Timed is allowed"),
    "Late": ({"open": late}, "within the call, and a share up to 1, is allowed"),
    "Lane": (drafts(timings=(Timed("llm", "draft", 0, 1),)), "timing has lane 'llm' and name"),
    "Contexts": (drafts(contexts=("a",)), "context or the number of passes is no int"),
    "Shares": (drafts(shares=(float("nan"),)), "a score or share is not from 0 to 1"),
    "Ranks": (drafts(ranks=[10**400]), "is not from 0 to"),
    "Passes": (drafts(passes="x"), "the number of passes is no int"),
    "Opened": ({"open": lambda self, sequence: (1, 2)}, "timings is (1, 2): a tuple of Timed"),
    "Open": ({"open": raiser_of(KeyError("a"))}, "KeyError: 'a'"),
    "None": ({"draft": lambda self, requests: None}, "TypeError"),
    "Other": ({"draft": lambda self, requests: ["x"] * len(requests)}, "a draft is a str"),
    "Exit": ({"draft": raiser_of(SystemExit(3))}, "SystemExit: 3"),
    "Silent": ({"draft": raiser_of(NoMessage())}, "ValueError: no words"),
    "Lines": ({"draft": raiser_of(ValueError("a\nb" * 400))}, "ValueError: a ba b"),
    "Terminal": ({"draft": raiser_of(ValueError("\x1b]0;a\x07"))}, r"ValueError: \x1b]0;a\x07"),
    "Commit": ({"commit": raiser_of(ZeroDivisionError())}, "ZeroDivisionError"),
    "Warm": ({"temperature": lambda self, sequence: "hot"}, "its temperature is 'hot'"),
    "Likely": (
        {"likelihoods": lambda self, sequence: ["x", None]},
        ": a float from 0 to 1, or NaN, is allowed",
    ),
    "Unlikely": ({"likelihoods": lambda self, sequence: None}, "TypeError"),
    "Reports": ({"likelihoods": lambda self, sequence: [0.5] * 99}, "99 likelihoods of 6 tokens"),
    "Append": (on_draft(lambda r: r.sequence.tokens.append(3)), "changed the tokens"),
    "Pop": (on_draft(lambda r: r.sequence.tokens.pop()), "changed the tokens"),
    "Committed": (on_draft(lambda r: r.sequence.commit((3,))), "AttributeError"),
    "Closed": (
        {"close": raiser_of(SystemExit(3)), **drafts(timings=None)},
        "timings is None: a tuple",
    ),
}


def faulty_drafter(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    def nodes_for(self: LookupDrafter[Any], request: DraftRequest) -> np.ndarray:
        return np.array([[1.0, -1, 0.5, 0]])

    module = ModuleType("faulty")
    methods = {"nodes_for": nodes_for, **MISBEHAVIOUR[name][0]}
    setattr(module, name, type(name, (LookupDrafter,), methods))
    monkeypatch.setitem(sys.modules, "faulty", module)
    return f"faulty:{name}"


@pytest.mark.loses_drafters
@pytest.mark.parametrize("name", MISBEHAVIOUR)
def test_only_the_misbehaving_drafter_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = faulty_drafter(monkeypatch, name)
    own_request = request(path, "ngram", combine="vote", weights="full_information")
    worker = Worker(engine_with(path))
    try:
        runs = [worker.submit(each) for each in (plain(), own_request, request("ngram"))]
        results = [list(run.events()) for run in runs]
        after = list(worker.submit(plain()).events())
    finally:
        worker.close()
    expected = ids_of_events(after)
    assert len(expected) == 24 and [ids_of_events(events) for events in results] == [expected] * 3
    notes = [[n for e in r if isinstance(e, RoundCompleted) for n in e.notes] for r in results]
    assert [len(each) for each in notes] == [0, 1, 0]
    (note,) = notes[1]
    assert note.startswith(f"drafter {path} failed (") and note.isprintable() and len(note) < 500
    assert MISBEHAVIOUR[name][1] in note
    for event in results[1]:
        json.dumps(event_to_plain(event), allow_nan=False)


def test_an_error_at_closing_does_not_change_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MISBEHAVIOUR, "Last", ({"close": raiser_of(SystemExit(3))}, ""))
    path = faulty_drafter(monkeypatch, "Last")
    engine = engine_with(path)
    assert ids_of(engine, request(path)) == ids_of(engine, plain())


def test_a_draft_is_not_changed_after_it_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: Any, sequence: Any, draft: Draft | None, token_ids: Any) -> None:
        for each in (draft, self.last):
            if each is not None:
                each.token_ids.append(-1)

    def draft(self: Any, requests: Any) -> list[Draft]:
        self.last = good()
        return [self.last]

    monkeypatch.setitem(MISBEHAVIOUR, "Later", ({"commit": commit, "draft": draft}, ""))
    path = faulty_drafter(monkeypatch, "Later")
    engine = engine_with(path)
    events = list(engine.generate(request(path)))
    assert ids_of_events(events) == ids_of(engine, plain())
    assert {e.drafts[0].token_ids for e in events if isinstance(e, Drafted) and e.drafts} <= {
        (1,),
        (),
    }


def test_the_noise_of_the_run_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(request: DraftRequest) -> None:
        request.sequence.noise.gumbel(request.root_position + 1).zero_()

    monkeypatch.setitem(MISBEHAVIOUR, "Noise", (on_draft(spoil), ""))
    path = faulty_drafter(monkeypatch, "Noise")
    engine = engine_with(path)
    assert ids_of(engine, request(path, temperature=0.8)) == ids_of(engine, plain(0.8))


@pytest.mark.parametrize(("name", "error"), [("Learner", None), ("Quitter", SystemExit(3))])
def test_a_user_drafter_learns_complete_texts(
    name: str, error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[tuple[int, ...]] = []

    def learn(self: Any, sequence: TokenSequence) -> None:
        learned.append(tuple(sequence.tokens))
        sequence.tokens.clear()
        if error is not None:
            raise error

    monkeypatch.setitem(MISBEHAVIOUR, name, ({"learn": learn, **drafts()}, ""))
    path = faulty_drafter(monkeypatch, name)
    engine = engine_with(path)
    own_requests = [request(path), plain(), request("suffix"), plain(0.8)]
    expected = []
    for each in own_requests:
        events = list(engine.generate(each))
        assert isinstance(events[0], RunStarted)
        expected.append((*events[0].prompt_token_ids, *ids_of_events(events)))
    assert learned == expected and len(set(expected)) > 1


def test_a_class_that_cannot_be_instantiated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_path_of_no_drafter_is_refused_in_one_line(
    path: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--drafter", path, "--prompt", "a"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --drafter is '{path}': package.module:Class, a class with")
    assert reason in error and error.count("\n") == 1


def test_a_request_imports_nothing(example: str) -> None:
    with pytest.raises(ConfigError, match=f"drafters is '{NAME}': it must be one of all, first"):
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
        ({"token_ids": [1.0]}, "a token id, parent, rank, context or the number"),
        ({"token_ids": [np.int64(1)]}, "a token id, parent, rank, context or the number"),
        ({"scores": [np.float32(0.5)]}, "a score, q or share is no float"),
        ({"contexts": [2]}, ""),
        ({"shares": [0.5, 0.2]}, "contexts or shares are not of its length"),
    ],
)
def test_a_draft_must_have_plain_values_that_the_log_can_keep(
    change: dict[str, Any], words: str
) -> None:
    values: dict[str, Any] = {"token_ids": [1], "parents": [-1], "scores": [0.5]}
    draft = Draft(**(values | {"qs": [1.0], "ranks": [0]} | change))
    draft_request = SimpleNamespace(budget=4, shape=(1,))
    if not words:
        check_drafts([cast(DraftRequest, draft_request)], [draft], 8)
        return
    with pytest.raises(ValueError, match=words):
        check_drafts([cast(DraftRequest, draft_request)], [draft], 8)


RETURNED = {
    "a list of rows": ("[(t, -1, 0.5, 0)]", ""),
    "whole numbers": ("np.array([(t, -1, 1, 0)])", ""),
    "an empty array": ("np.array([])", ""),
    "nothing": ("[]", ""),
    "three columns": ("np.array([(t, -1, 0.5)])", "shape (1, 3), not (nodes, 4) or (nodes, 6)"),
    "one row": ("np.array((t, -1, 0.5, 0))", "shape (4,), not (nodes, 4) or (nodes, 6)"),
    "an error": ("[][3]", "(IndexError: list index out of range, returns_6.py:7)"),
}


@pytest.mark.loses_drafters
@pytest.mark.parametrize("name", RETURNED)
def test_only_bad_results_of_nodes_for_are_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned, reason = RETURNED[name]
    module = f"returns_{list(RETURNED).index(name)}"  # a new module for each case
    (tmp_path / f"{module}.py").write_text(
        "import numpy as np\nfrom core.drafters.lookup_base import LookupDrafter\n\n"
        "class Own(LookupDrafter):\n    def nodes_for(self, request):\n"
        f"        t = request.sequence.tokens[-1]\n        return {returned}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    events = list(engine_with(f"{module}:Own").generate(request(f"{module}:Own")))
    notes = [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]
    assert len(notes) == bool(reason) and all(reason in note for note in notes)
