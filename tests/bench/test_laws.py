"""The laws suite passes on the engine, and fails with a broken verifier."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bench import __main__ as cli
from bench.contestants import DecodeCase, TransformersLlm, decode, decode_joining
from bench.prompts import load_prompts
from bench.suites.law_check import exactness_verdict, margin
from bench.suites.law_rows import LawRow, law_rows
from bench.suites.laws import Laws
from core import Engine
from core.config import PRESETS, SpeculationConfig
from core.engine import round as round_module
from core.models.loading.load import LoadedModels
from core.trees.tree import ROOT
from core.trees.verify import Verdict
from core.trees.verify import VerifyInput as Verification
from lab.texts import first_difference


def draft_rows(*drafts: str) -> tuple[LawRow, ...]:
    """For each draft kind, the first row with several concurrent requests and the drafters `all`
    and `ngram`."""
    candidates = [row for row in law_rows() if row.name == "rules" and row.together > 1]
    first = {
        row.speculation.draft: row
        for row in reversed(candidates)
        if row.is_compared and row.speculation.drafters == ("all", "ngram")
    }
    return tuple(first[draft] for draft in drafts)


def test_the_engine_obeys_the_laws(make_context: Any) -> None:
    suite = Laws(only=draft_rows("topk", "best_first", "coupled"))
    context = make_context()
    suite.measure(context)
    report = suite.report(context)
    assert report.failures == ()
    assert report.tables[1].count("| exact |\n") == len(suite.rows) == 3
    plain = next(context.results.where(reference="plain decoding"))
    assert all(len(result["token_ids"]) == 8 for result in plain["found"])


def test_a_request_that_ends_lets_the_next_one_join_in_mid_run(
    family: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = (5, 9, 4, 7, 6)
    texts = [
        DecodeCase(prompt, 0, tokens, 0.0, ignore_eos=True)
        for prompt, tokens in zip(load_prompts(), lengths, strict=False)
    ]
    engine, config = Engine(family), SpeculationConfig()
    expected = [outcome["token_ids"] for outcome in decode(engine, texts, config)]
    groups: list[set[str]] = []
    one_round = engine.round

    def record_group(active: Any, num_queued: int = 0) -> Any:
        groups.append({one.run_id for one in active})
        return one_round(active, num_queued)

    monkeypatch.setattr(engine, "round", record_group)
    outcomes = decode_joining(engine, texts, config, live=2)
    assert [outcome["token_ids"] for outcome in outcomes] == expected
    pairs = [group for group in groups if len(group) == 2]
    assert max(map(len, groups)) == 2
    assert any(len(a & b) == 1 for a, b in itertools.pairwise(pairs))


def test_the_summary_counts_every_row_under_its_kind(make_context: Any) -> None:
    greedy = [row for row in law_rows() if row.temperature == 0]
    summary = Laws(only=tuple(greedy)).report(make_context()).tables[0]
    cells = [line.split(" | ") for line in summary.splitlines() if line.startswith("| 0 | ")]
    counts: Counter[str] = Counter()
    for _, name, _, count, *_ in cells:
        counts[name] += int(count)
    assert counts["presets"] == sum(row.name in PRESETS for row in greedy)
    for name in ("pipelined", "scheduled", "routed", "prompt lookup"):
        assert counts[name] == sum(row.name == name for row in greedy) > 0
    assert counts.total() == len(greedy)


def test_a_run_that_was_interrupted_continues_with_the_next_row(
    make_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(message: str) -> None:
        if message.startswith("1 of"):
            raise KeyboardInterrupt

    suite = Laws(only=draft_rows("topk", "coupled"))
    with pytest.raises(KeyboardInterrupt):
        suite.measure(make_context(interrupt))
    assert "not run yet" in suite.report(make_context()).tables[1]

    decoding = Mock(wraps=decode_joining)
    monkeypatch.setattr("bench.suites.law_check.decode_joining", decoding)
    context = make_context()
    suite.measure(context)
    assert decoding.call_count == 1  # for the second row only: the references were stored
    assert [len(list(context.results.where(**row.key))) for row in suite.rows] == [1, 1]
    suite.measure(make_context())
    assert decoding.call_count == 1


def accept_first_child(rule: str, case: Verification) -> Verdict:
    """Accepts the first child of each node without a comparison."""
    path: list[int] = []
    children = case.tree.child_lists()
    while nodes := children[path[-1] if path else ROOT]:
        path.append(nodes[0])
    last_token = case.target.argmax[path[-1] + 1 if path else 0]
    return Verdict(tuple(path), last_token, "bonus" if path else "plain")


def read_noise_one_position_late(rule: str, case: Verification) -> Verdict:
    """Reads the noise of the next position, if there is a tree."""
    wrong = dataclasses.replace(case, root_position=case.root_position + 1)
    return correct_verify(rule, wrong if len(case.tree) else case)


correct_verify = round_module.verify


@pytest.mark.parametrize(
    ("broken", "draft"), [(accept_first_child, "topk"), (read_noise_one_position_late, "coupled")]
)
def test_a_broken_verifier_fails(
    broken: Callable[[str, Verification], Verdict],
    draft: str,
    family: LoadedModels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command exits with status 1 and names the row."""
    monkeypatch.setattr(round_module, "verify", broken)
    monkeypatch.setattr("bench.context.loader", lambda folder: lambda dtype: family)
    suite = Laws(only=draft_rows(draft))
    out = tmp_path / "out.json"
    argv = ["--suite", "laws", "--prompts", "2", "--tokens", "8"]
    assert cli.main([*argv, "--out", str(out)], {"laws": suite}) == 1
    captured = capsys.readouterr()
    assert "| FAIL |" in captured.out
    assert f"FAILED: rules {suite.rows[0].temperature:g} {draft}" in captured.err
    sample = json.loads(out.read_text())["samples"][-1]
    diverged = [p for p in sample["prompts"] if p["diverged_at"] is not None]
    assert diverged and all(p["margin"] > 1e-3 and p["token_ids"] for p in diverged)


@pytest.mark.parametrize(
    ("diverged", "verdict"),
    [
        ([], "exact"),
        ([("a", 1e-5)], "near tie"),
        ([("a", 1e-5), ("a", 2e-5)], "near tie"),  # two seeds of one prompt
        ([("a", 1e-5), ("b", 1e-5)], "FAIL"),
        ([("a", 1e-3)], "FAIL"),
        ([("a", None)], "FAIL"),  # one text ended before the other
    ],
)
def test_near_ties_that_law_1_allows(
    diverged: list[tuple[str, float | None]], verdict: str
) -> None:
    exact = {"id": "z", "diverged_at": None, "margin": None}
    prompts = [{"id": name, "diverged_at": 3, "margin": margin} for name, margin in diverged]
    assert exactness_verdict([exact, *prompts]) == verdict


def test_first_difference() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2
    assert first_difference([], [1]) == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_margin_of_decoded_tokens_is_zero(temperature: float, family: LoadedModels) -> None:
    case = DecodeCase(load_prompts()[20], seed=7, tokens=6, temperature=temperature)
    plain = SpeculationConfig.preset("autoregressive")
    (outcome,) = decode(Engine(family), [case], plain)
    context, ids = outcome["prompt_token_ids"], outcome["token_ids"]
    llm: Any = family.llm
    for i, token_id in enumerate(ids):
        prefix = [*context, *ids[:i]]
        assert margin(llm._module, prefix, [token_id], temperature, 7) < 1e-4
        assert margin(llm._module, prefix, [token_id, (token_id + 1) % 4096], temperature, 7) > 0.01


def test_the_reference_ids_are_transformers_likeliest() -> None:
    transformers = TransformersLlm()
    ids = transformers.tokenize(load_prompts()[0].text)
    new = transformers.generate(ids, 3)
    for i, token_id in enumerate(new):
        output = transformers.module(
            transformers.module.dummy_inputs["input_ids"].new_tensor([ids + new[:i]])
        )
        assert int(output.logits[0, -1].argmax()) == token_id
