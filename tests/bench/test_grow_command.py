"""`python -m bench grow`: the folders that it writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.__main__ import main
from bench.contestants import load_module
from bench.grown import writing
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted
from core.models.loading.load import load_models
from tests.fakes import tiny_module, word_tokenizer

Grow = Callable[..., int]
LAYERS = {"llm": 3, "ssm": 2}


Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `llm` and `ssm` of one vocabulary."""
    root = tmp_path_factory.mktemp("pair")
    for seed, (name, layers) in enumerate(LAYERS.items()):
        module = tiny_module(
            "llama", seed, torch.float32, num_hidden_layers=layers, tie_word_embeddings=True
        )
        module.save_pretrained(root / name)
        word_tokenizer().save_pretrained(root / name)
    return root


@pytest.fixture
def grow(pair: Path, tmp_path: Path) -> Grow:
    """Runs the command. `options` override the defaults; None removes an option."""

    def run(**options: Any) -> int:
        values = {
            "params": "500e3",
            "ssm-params": "100e3",
            "llm": str(pair / "llm"),
            "ssm": str(pair / "ssm"),
            "out": str(tmp_path / "out"),
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        given = {name: value for name, value in values.items() if value is not None}
        arguments = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        return main(["grow", *arguments])

    return run


def rounds_of(llm: Path, *ssms: Path) -> list[tuple[int, ...]]:
    """New token ids by round: they show the text and how many drafted tokens were accepted."""
    engine = Engine(load_models(str(llm), [str(path) for path in ssms], "float32", "cpu"))
    config = SpeculationConfig(expansion=(2, 1, 1), max_tree_nodes=8)
    sampling = SamplingParams(max_new_tokens=12, ignore_eos=True)
    events = engine.generate(Request("w3 w9 w4", sampling, config))
    return [tuple(event.token_ids) for event in events if isinstance(event, RoundCompleted)]


def test_written_models_load_and_are_labelled_grown(
    grow: Grow, pair: Path, tmp_path: Path, capsys: Capsys
) -> None:
    assert grow(seed=4) == 0
    printed = capsys.readouterr()
    llm, ssm = tmp_path / "out" / "llm-grown-0.5M", tmp_path / "out" / "ssm-grown-0.1M"
    assert f"python -m core --llm {llm} --ssm {ssm}" in printed.out
    assert "grown: llm-grown-0.5M says what llm says, and no such model exists" in printed.out
    assert "the same token is likeliest at" in printed.err

    manifest = json.loads((llm / "grown.json").read_text())
    module = load_module(llm, torch.float32)
    count = sum(p.numel() for p in module.parameters())
    assert manifest["parameters"] == count and abs(count / 500e3 - 1) <= 0.1
    assert manifest["asked"]["seed"] == 4 and manifest["asked"]["source"] == "llm"
    assert 0 <= manifest["measured"]["difference"] < 1e-3

    card = (llm / "README.md").read_text()
    assert "grown: function-preserving enlargement of llm; no such model was trained" in card
    assert f"{count:,} parameters" in card
    assert str(tmp_path) not in card + (llm / "grown.json").read_text()
    assert (llm / "tokenizer.json").read_bytes() == (pair / "llm/tokenizer.json").read_bytes()
    assert llm.stat().st_mode & 0o777 == 0o755
    for file in llm.glob("*.safetensors"):
        assert file.stat().st_mode & 0o777 == 0o644, "readable like other files"
        assert file.stat().st_blocks * 512 >= file.stat().st_size  # not sparse

    models = load_models(str(llm), [str(ssm)], "float32", "cpu")
    assert [model.name for model in models.infos] == ["llm-grown-0.5M", "ssm-grown-0.1M"]
    assert models.llm.lean_weights is not None  # type: ignore[attr-defined]
    assert rounds_of(llm, ssm) == rounds_of(pair / "llm", pair / "ssm")


def test_the_same_command_again_reports_the_models_and_writes_nothing(
    grow: Grow, tmp_path: Path, capsys: Capsys
) -> None:
    assert grow() == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    capsys.readouterr()
    assert grow() == 0
    assert capsys.readouterr().err.count("holds the same grown model already") == 2
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert grow(seed=1) == 2
    stderr = capsys.readouterr().err
    assert "error: --out is" in stderr and "it holds a model grown otherwise" in stderr


def test_a_folder_with_other_files_is_refused_and_unchanged(
    grow: Grow, tmp_path: Path, capsys: Capsys
) -> None:
    folder = tmp_path / "out" / "llm-grown-0.5M"
    folder.mkdir(parents=True)
    assert grow(ssm_params="0") == 0  # an empty folder is used
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("of the user")
    assert grow() == 2
    assert "it exists and has no readable grown.json" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert not (tmp_path / "out" / "ssm-grown-0.1M").exists()


def test_large_models_are_written_in_several_files(
    grow: Grow, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grow(ssm_params="0", dtype="bfloat16", out=tmp_path / "single") == 0
    monkeypatch.setattr(writing, "SHARD_BYTES", 200_000)
    assert grow(ssm_params="0", dtype="bfloat16", out=tmp_path / "parts") == 0
    folder = tmp_path / "parts" / "llm-grown-0.5M"
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    parameters = json.loads((folder / "grown.json").read_text())["parameters"]
    assert index["metadata"]["total_size"] == 2 * parameters
    single = tmp_path / "single" / folder.name
    one, other = (load_module(path, torch.bfloat16) for path in (single, folder))
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert a.dtype == torch.bfloat16 and torch.equal(a, b)


def test_ssms_that_are_large_enough_stay_as_they_are(
    grow: Grow, pair: Path, tmp_path: Path, capsys: Capsys
) -> None:
    assert grow(ssm_params=None) == 0  # by default a hundredth of params, less than the SSM's size
    printed = capsys.readouterr()
    assert "ssm stays as it is" in printed.err
    assert f"--ssm {pair / 'ssm'}" in printed.out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["llm-grown-0.5M"]


def test_a_failed_growth_leaves_no_files(
    grow: Grow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setattr("bench.grown.module.ZERO", frozenset())
    assert grow() == 2
    assert "llm grown differs from the small model by" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_too_little_memory_or_disk_is_refused_before_writing(
    grow: Grow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setattr(writing, "available_bytes", lambda device: 1 << 20)
    assert grow() == 2
    stderr = capsys.readouterr().err
    assert "of memory: 1 MiB are free; choose fewer params or dtype bfloat16" in stderr
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert grow() == 2
    assert "MiB free; it has 1000 B" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": None}, "--params"),
        ({"params": "many"}, "params is 'many': it must be a number such as 0.5e9"),
        ({"params": "nan"}, "params is 'nan': it must be a number such as 0.5e9"),
        ({"params": "100", "ssm_params": None}, "params is 100: more than the"),
        ({"ssm_params": "100"}, "ssm-params is 100: 0 (SSMs as they are) or from 5000"),
        ({"ssm_params": "600e3"}, "to below params"),
        ({"ssm_params": "-1"}, "ssm-params is -1"),
        ({"dtype": "float16"}, "dtype is 'float16': it must be one of float32, bfloat16"),
        ({"seed": "-1"}, "seed is -1"),
        ({"llm": "./nowhere"}, "no such folder"),
        ({"llm": "nobody/nothing"}, "a hub id in the local cache is allowed"),
    ],
)
def test_bad_arguments_are_one_line_and_status_two(
    grow: Grow, options: dict[str, Any], message: str, tmp_path: Path, capsys: Capsys
) -> None:
    assert grow(**options) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "out").exists()


def test_two_models_of_one_name_are_refused(grow: Grow, pair: Path, capsys: Capsys) -> None:
    twice = [str(pair / "ssm")] * 2
    assert main(["grow", "--params", "5e5", "--llm", str(pair / "llm"), "--ssm", *twice]) == 2
    assert "models with names of their own" in capsys.readouterr().err
