"""The tables of suite `split`. A nightly test runs the suite."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import split_worker
from bench.context import Context
from bench.prompts import load_prompts
from bench.results import Results
from bench.settings import Settings
from bench.suites.split import GROWN, ONE, SplitSuite, contestants, tables
from core.config.ranks import ranks_of
from core.models.loading.load import LoadedModels, load_models


def passes(model: str, tokens: int, repeat: int, one: float, two: float) -> dict[str, Any]:
    """`one`, `two`: seconds of a pass in one process and with tp=2."""
    figures = {
        name: {"value": seconds, "exchanged_ms": 5.0}
        for name, seconds in ((ONE, one), ("tp=2", two))
    }
    key = {"model": model, "dtype": "float32", "tokens": tokens, "repeat": repeat}
    return {**key, "passes": figures}


def results(*samples: dict[str, Any]) -> Results:
    result = Results(Path("unused"), {}, [])
    result.samples.extend(samples)
    return result


def test_speeds_are_compared_within_a_repeat_and_with_the_target() -> None:
    samples = [passes(GROWN, 16, i, 0.3 * (1 + i), 0.2 * (1 + i)) for i in range(3)]
    table, claims = tables(results(*samples))
    lines = {line.split(" | ")[0].strip("| "): line for line in table.splitlines()}
    assert "400.0" in lines["tp=2"] and "1.50x" in lines["tp=2"] and "5.0" in lines["tp=2"]
    assert "1.00x" in lines[ONE] and "SpecInfer's paper" in table
    assert "at least 1.40x | 1.50x" in claims and "| reached |" in claims
    slower = [passes(GROWN, 16, i, 0.2, 0.2) for i in range(2)]
    assert "not reached, by 0.40" in tables(results(*slower))[1]


def test_without_a_grown_llm_nothing_is_claimed() -> None:
    assert len(tables(results(passes("bundled", 1, 0, 0.002, 0.02)))) == 1


@pytest.mark.nightly
def test_the_suite_measures_one_process_and_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context(
        Settings(1, 4, 1, ("float32",)),
        load_prompts()[:1],
        load_prompts()[:1],
        results(),
        lambda _: load_models(),
        print,
    )
    monkeypatch.setattr(context.results, "add", context.results.samples.append)
    some = {title: contestants()[title] for title in (ONE, "tp=2")}
    monkeypatch.setattr("bench.suites.split.contestants", lambda: some)
    suite = SplitSuite(widths=(1,))
    suite.measure(context)
    (sample,) = context.results.samples
    assert set(sample["passes"]) == set(some)
    assert sample["passes"]["tp=2"]["exchanged_ms"] > 0 == sample["passes"][ONE]["exchanged_ms"]
    assert "tp=2" in suite.report(context).tables[0]


def test_the_contestants_are_ranks_of_both_kinds_and_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert contestants() == {
        ONE: ("-", 3), f"{ONE}, all cores": ("-", 4), "tp=2": ("tp=2", 2), "pp=2": ("pp=2", 2)
    }  # fmt: skip
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert contestants() == {ONE: ("-", 1), "tp=2": ("tp=2", 1), "pp=2": ("pp=2", 1)}
    assert all(ranks_of(name) for name in ("tp=2", "pp=2"))


def test_both_figures_are_means_of_the_counted_passes(
    family: LoadedModels, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = iter([(9.0, 900.0), (1.0, 10.0), (2.0, 20.0), (6.0, 60.0)])
    monkeypatch.setattr(split_worker, "timed_pass", lambda *_: next(passes))
    monkeypatch.setattr(split_worker, "load_models", lambda *_, **__: family)
    monkeypatch.setattr("sys.stdin", ["16\n"])
    split_worker.main("bundled", "float32", "-", "1")
    loaded, answer = capsys.readouterr().out.splitlines()
    assert json.loads(loaded) == {}
    assert json.loads(answer) == {"value": 3.0, "exchanged_ms": 30.0}
