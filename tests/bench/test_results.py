"""A results file has every sample that was added, and only a run with the same header continues the
file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.interleave import interleave
from bench.results import Results
from core.errors import ConfigError
from lab.order import Block, blocks

HEADER = {"suite": "laws", "settings": {"prompts": 2}, "machine": {"cores": 2}}


def test_a_sample_is_on_disk_when_add_returns(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.json"
    results = Results.open(path, HEADER)
    assert json.loads(path.read_text())["samples"] == []
    results.add({"row": "a", "ids": (1, 2)})
    stored = json.loads(path.read_text())
    assert stored["samples"] == [{"row": "a", "ids": [1, 2]}]
    assert {name: stored[name] for name in HEADER} == HEADER


def test_a_run_with_the_same_header_continues_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    Results.open(path, HEADER).add({"row": "a"})
    again = Results.open(path, HEADER)
    assert again.found == 1
    assert again.has(row="a")
    assert not again.has(row="b")
    assert list(again.where(row="a")) == [{"row": "a"}]


@pytest.mark.parametrize("field", ["suite", "settings", "machine"])
def test_a_file_with_another_header_is_not_continued(tmp_path: Path, field: str) -> None:
    path = tmp_path / "out.json"
    Results.open(path, HEADER).add({"row": "a"})
    with pytest.raises(ConfigError, match=f"same {field}.*--fresh"):
        Results.open(path, {**HEADER, field: "other"})
    assert len(json.loads(path.read_text())["samples"]) == 1
    assert Results.open(path, {**HEADER, field: "other"}, fresh=True).samples == []


@pytest.mark.parametrize("content", ["", "[1]", '{"suite": "laws"}', "\x00"])
def test_a_file_that_has_no_results_is_refused_and_unchanged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="--out is"):
        Results.open(path, HEADER)
    assert path.read_text() == content


def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can be written"):
        Results.open(tmp_path / "file" / "out.json", HEADER)


def test_an_infinite_figure_is_refused(tmp_path: Path) -> None:
    """Other programs could not read the file: JSON has no infinity."""
    with pytest.raises(ValueError, match="JSON"):
        Results.open(tmp_path / "out.json", HEADER).add({"margin": float("inf")})


def test_contestants_take_turns_in_every_block() -> None:
    runs: list[tuple[str, str, int]] = []
    contestants = {
        name: lambda block, name=name: runs.append((name, block.item, block.repeat))
        for name in ("A", "B")
    }
    done = list(interleave(blocks(["x", "y"], 2), contestants))
    assert [run[0] for run in runs] == ["A", "B"] * 4
    assert [run[1:] for run in runs[::2]] == [("x", 0), ("y", 0), ("x", 1), ("y", 1)]
    assert [block for block, _ in done] == blocks(["x", "y"], 2)


def test_a_block_runs_when_it_is_requested() -> None:
    """An interruption leaves only complete blocks."""
    runs: list[Block] = []
    steps = interleave(blocks(["x", "y"], 1), {"A": runs.append})
    next(steps)
    assert runs == [Block("x", 0)]
