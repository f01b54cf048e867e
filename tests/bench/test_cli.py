"""The command line, its settings and its prompts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.__main__ import main
from bench.context import Context, Report, Suite
from bench.machine import code_digest
from bench.prompts import domains, load_prompts, take_round_robin
from bench.settings import Settings
from bench.suites import ONLY, SUITES, WITHOUT_DTYPE
from bench.suites.acceptance import Acceptance
from core.errors import ConfigError
from core.models.loading.catalog import bundled_llm, bundled_ssms
from core.models.loading.load import LoadedModels

Capsys = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class CountingSuite(Suite):
    """Adds one sample per prompt, each after a call of `before_sample`."""

    name: str = "counting"
    about: str = "counts prompts"
    defaults: Settings = Settings(prompts=3, tokens=4, repeats=1, dtypes=("float32",))
    before_sample: Callable[[Context], None] = lambda context: None

    def check(self, settings: Settings) -> None:
        if settings.tokens == 13:
            raise ConfigError.of("tokens", 13, "anything else")

    def measure(self, context: Context) -> None:
        for prompt in context.prompts:
            if not context.results.has(prompt=prompt.id):
                self.before_sample(context)
                context.results.add({"prompt": prompt.id})
                context.say(prompt.id)

    def report(self, context: Context) -> Report:
        return Report((f"{len(context.results.samples)} samples",))


def test_every_suite_is_listed_with_its_defaults(capsys: Capsys) -> None:
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert {"laws", "acceptance", "cpu-bundled", "overhead"} <= set(SUITES)
    for suite in SUITES.values():
        assert f"{suite.name}: {suite.about}" in printed
        assert str(suite.defaults) in printed


def test_the_report_names_machine_versions_and_settings(tmp_path: Path, capsys: Capsys) -> None:
    out = tmp_path / "out.json"
    argv = ["--suite", "counting", "--out", str(out), "--tokens", "9", "--threads", "1"]
    assert main(argv, {"counting": CountingSuite()}) == 0
    captured = capsys.readouterr()
    assert "--prompts 3 --tokens 9 --repeats 1 --dtype float32 --threads 1" in captured.out
    assert f"torch {torch.__version__}" in captured.out
    assert "cores" in captured.out
    assert captured.out.rstrip().endswith("3 samples")
    assert "dev-" in captured.err  # progress is not mixed with the table
    assert "<p>3 samples</p>" in out.with_suffix(".html").read_text("utf-8")
    assert str(out.with_suffix(".html")) in captured.err
    stored = json.loads(out.read_text())
    assert len(stored["samples"]) == 3
    assert stored["settings"]["tokens"] == 9
    assert stored["machine"]["cores"] >= 1


def test_an_interrupted_run_continues_after_its_last_sample(tmp_path: Path) -> None:
    out = tmp_path / "out.json"

    def interrupt(context: Context) -> None:
        if context.results.samples:
            raise KeyboardInterrupt

    argv = ["--suite", "counting", "--out", str(out)]
    assert main(argv, {"counting": CountingSuite(before_sample=interrupt)}) == 130
    first = json.loads(out.read_text())["samples"]
    assert len(first) == 1

    calls: list[int] = []
    again = CountingSuite(before_sample=lambda context: calls.append(1))
    assert main(argv, {"counting": again}) == 0
    assert len(calls) == 2
    assert json.loads(out.read_text())["samples"][:1] == first
    assert main([*argv, "--fresh"], {"counting": again}) == 0
    assert len(calls) == 5


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--suite", "nope"], "suite is 'nope': it must be one of counting"),
        (["--prompts", "61"], "prompts is 61: it must be a whole number from 1 to 60"),
        (["--prompts", "many"], "prompts is 'many': it must be a whole number"),
        (["--tokens", "0"], "tokens is 0"),
        (["--tokens", "13"], "tokens is 13: anything else"),
        (["--repeats", "0"], "repeats is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--processes", "0"], "processes is 0: it must be a whole number from 1"),
        (["--dtype", "float16"], "dtype is 'float16': it must be one of float32, bfloat16"),
        (["--dtype", "float32", "float32"], "at least one, each once"),
        (["--wrong"], "--wrong"),
    ],
)
def test_bad_arguments_are_one_line_and_status_two(
    argv: list[str], message: str, tmp_path: Path, capsys: Capsys
) -> None:
    suite = [] if "--suite" in argv else ["--suite", "counting"]
    out = tmp_path / "out.json"
    assert main([*suite, "--out", str(out), *argv], {"counting": CountingSuite()}) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert message in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtypes": ()}, r"dtype is \(\): at least one, each once"),
        ({"threads": -1}, "threads is -1: it must be a whole number from 0 to 1024"),
        ({"threads": True}, "threads is True: it must be a whole number"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CountingSuite().defaults.with_changes(**changes)


ONE_DTYPE = ("laws", "acceptance", "overhead", "page", "watching")
TWO_DTYPES = ["--dtype", "bfloat16", "float32"]


@pytest.mark.parametrize(
    ("suite", "option", "message"),
    [
        *((suite, TWO_DTYPES, "is 'bfloat16 float32'") for suite in ONE_DTYPE),
        *(
            (suite, ["--processes", "2"], "is 2: 1: `laws` and `acceptance` alone are not timed")
            for suite in sorted(set(SUITES) - {"laws", "acceptance"})
        ),
        ("passes", ["--grown", "DIR"], "grown is 'DIR': not with passes; only with cpu-grown,"),
        ("start", ["--dtype", "bfloat16"], "dtype is 'bfloat16': not with start"),
        ("batch", ["--family", "DIR"], "family is 'DIR': not with batch; only with acceptance"),
    ],
)
def test_an_option_that_a_suite_would_not_use_is_refused(
    suite: str, option: list[str], message: str, capsys: Capsys
) -> None:
    assert main(["--suite", suite, *option]) == 2
    assert message in capsys.readouterr().err


def test_options_name_existing_suites() -> None:
    assert {name for users in ONLY.values() for name in users} | set(WITHOUT_DTYPE) <= set(SUITES)


@pytest.mark.nightly
def test_processes_share_the_rows_of_another_family(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:

    def loads_nothing(dtype: str) -> LoadedModels:
        raise AssertionError("each process loads its own models")

    family = tmp_path / "family"
    family.mkdir()
    for folder in (bundled_llm(), bundled_ssms()[0]):
        (family / folder.name).symlink_to(folder)
    suites = {"acceptance": Acceptance(parts=("chain",))}
    argv = ["--suite", "acceptance", "--prompts", "2", "--tokens", "3", "--threads", "1"]
    argv += ["--family", str(family)]
    alone, together = tmp_path / "alone.json", tmp_path / "together.json"
    assert main([*argv, "--processes", "1", "--out", str(alone)], suites) == 0
    monkeypatch.setattr(Acceptance, "loader", lambda *_: loads_nothing)
    assert main([*argv, "--processes", "2", "--out", str(together)], suites) == 0
    stored, others = (json.loads(path.read_text()) for path in (alone, together))
    assert stored["code"] == others["code"] != code_digest()
    rows, shared = (sorted(map(json.dumps, one["samples"])) for one in (stored, others))
    assert rows == shared and len(rows) == 5, "each way to decode"
    drafters = {tuple(sample["config"]["drafters"]) for sample in stored["samples"]}
    assert drafters == {(bundled_ssms()[0].name,)}
    assert "--family DIR" in capsys.readouterr().out


def test_a_folder_without_ssms_is_no_family(tmp_path: Path, capsys: Capsys) -> None:
    """The folder is refused before another family's results are overwritten."""
    out = tmp_path / "o.json"
    argv = ["--suite", "acceptance", "--fresh", "--out", str(out), "--family", str(tmp_path)]
    assert main(argv) == 2 and not out.exists()
    (tmp_path / "ssm-a").symlink_to(bundled_ssms()[0])
    out.write_text("kept")
    assert main(argv) == 2 and out.read_text() == "kept"
    assert capsys.readouterr().err.count("a folder of llm and at least one ssm-*") == 2


def test_prompts_are_spread_over_the_domains() -> None:
    prompts = load_prompts()
    assert len(prompts) == 60
    assert len(domains(prompts)) == 4
    for count in (4, 12, 60):
        chosen = take_round_robin(prompts, count)
        per_domain = [sum(p.domain == name for p in chosen) for name in domains(prompts)]
        assert per_domain == [count // 4] * 4
    assert set(take_round_robin(prompts, 5)) > set(take_round_robin(prompts, 4))
    seeds = {prompt.seed(repeat) for prompt in prompts for repeat in range(10)}
    assert len(seeds) == 600


def test_a_core_is_left_free_unless_threads_are_given(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    argv = ["--suite", "counting", "--out", str(tmp_path / "out.json")]
    assert main(argv, {"counting": CountingSuite()}) == 0
    assert "--threads 1" in capsys.readouterr().out
