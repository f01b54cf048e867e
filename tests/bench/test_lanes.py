"""The `lanes` suite: every form does the same work, and leaves nothing behind."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bench.context import Context
from bench.draftsman import Drafted, Draftsman, Verifier, beside
from bench.forms import Form, InProcess, InThread, Serial
from bench.ours import Case, request
from bench.prompts import load_prompts
from bench.suites.lane_tables import SERIAL
from bench.suites.lanes import Lanes
from bench.suites.pipeline_rows import WORKS
from core.config import SpeculationConfig
from core.drafters.base import Draft
from core.engine import Engine
from core.events import Combined
from core.models.loading import LoadedModels
from core.tree import ROOT

MakeContext = Callable[..., Context]
PROMPT = load_prompts()[0]
ALL = SpeculationConfig(**WORKS["all SSMs, 4 steps"])
TOKENS = (17, 30, 31)


def drafts_of(form: Form) -> list[tuple[Any, Any]]:
    """What a form drafts first and behind each of three tokens."""
    met: list[str] = []
    found = [form.open(PROMPT.text, ALL, 1)]
    for token_id in TOKENS:
        found.append(form.beside(token_id, lambda: met.append("llm")))
    assert met == ["llm"] * len(TOKENS)
    assert all(drafted.ms > 0 for drafted in found)
    return [(drafted.token_ids, drafted.parents) for drafted in found]


def test_every_form_drafts_the_same_and_leaves_nothing(family: LoadedModels) -> None:
    threads, usual = threading.active_count(), sys.getswitchinterval()
    serial, thread, process = Serial(family), InThread(family, 0.001), InProcess("float32")
    try:
        expected = drafts_of(serial)
        assert len({ids for ids, _ in expected}) > 1, "what was committed must tell"
        assert drafts_of(thread) == expected
        assert drafts_of(process) == expected
        process._process.kill()
        process._process.join()
        with pytest.raises((OSError, EOFError)):
            process.beside(5, lambda: None)
    finally:
        for form in (serial, thread, process):
            form.close()
            form.close()
    assert threading.active_count() == threads
    assert multiprocessing.active_children() == []
    assert sys.getswitchinterval() == usual


def test_it_drafts_what_the_engine_drafts(family: LoadedModels) -> None:
    """Engine: the union of the same trees."""
    draftsman = Draftsman(family)
    draftsman.open(PROMPT.text, ALL)
    drafted = draftsman.next()
    draftsman.close()
    events = Engine(family).generate(request(Case(PROMPT, 0, 8, 0.0), ALL))
    tree = next(event for event in events if isinstance(event, Combined))
    assert paths(drafted.token_ids, drafted.parents) == paths(tree.token_ids, tree.parents)
    assert len(drafted.token_ids) > len(tree.token_ids)


def paths(token_ids: tuple[int, ...], parents: tuple[int, ...]) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token_id, parent in zip(token_ids, parents, strict=True):
        found.append((*(() if parent == ROOT else found[parent]), token_id))
    return set(found)


def test_trees_stand_beside_each_other() -> None:
    one, other = Draft([1, 2], [ROOT, 0]), Draft([3, 4, 5], [ROOT, ROOT, 1])
    assert beside([one, other]) == ((1, 2, 3, 4, 5), (ROOT, 0, ROOT, ROOT, 3))


def test_the_verifier_goes_on_by_one_token(family: LoadedModels) -> None:
    verifier = Verifier(family.llm)
    verifier.open([5, 6, 7])
    row = verifier._row
    assert row is not None
    for root in (7, 8):
        before = family.llm.length(row)
        assert verifier.verify(root, Drafted((9, 9), (ROOT, 0), 1.0)) > 0
        assert family.llm.length(row) == before + 1
    verifier.close()
    verifier.close()


def test_measures_continues_and_reports(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process is looked at above; its start takes seconds.
    monkeypatch.setattr("bench.suites.lanes.InProcess", lambda dtype: Serial(family_of(context)))
    before = torch.get_num_threads()
    suite = Lanes(splits=(1,))
    context = make_context(prompts=1, tokens=3)
    suite.measure(context)
    assert [sample["work"] for sample in context.results.samples] == [
        "one SSM, chain of 4",
        "all SSMs, 4 steps",
    ]
    for sample in context.results.samples:
        for sides in sample["figures"].values():
            assert [len(side) for side in sides.values()] == [3, 3, 3]
            for whole, llm, draft in zip(*sides.values(), strict=True):
                assert whole >= max(llm, draft) - 0.01
        serial = sample["figures"][f"{SERIAL}, 1 + 1"]
        assert sum(serial["llm"]) + sum(serial["draft"]) <= sum(serial["round"])
    suite.measure(context)
    assert len(context.results.samples) == 2
    assert torch.get_num_threads() == before
    tables = suite.report(context).tables
    assert len(tables) == 2 and all("| thread, 1 + 1 |" in table for table in tables)


def family_of(context: Context) -> LoadedModels:
    return context.load("float32")
