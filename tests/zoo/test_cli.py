"""The commands `prepare`, `train` and `evaluate`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import zoo.__main__ as command
from zoo.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PAGE_CODE = """
import runpy, sys
others = ("gradio", "plotly", "sqlite_utils", "ui", "storage", "bench")
sys.modules.update(dict.fromkeys(others))
runpy.run_module("zoo", run_name="__main__", alter_sys=True)
"""
"""The zoo's program, which cannot import page, store, benchmarks or their packages."""


def zoo(*arguments: object) -> int:
    return command.main([str(each) for each in arguments])


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("smoke") / "family"
    assert zoo("prepare", "--preset", "smoke", "--out", out) == 0
    assert zoo("train", "--preset", "smoke", "--out", out, "--minutes", "0.1") == 0
    return out


def test_smoke_needs_no_corpora_and_its_loss_falls(family: Path) -> None:
    written = json.loads((family / "training.json").read_text("utf-8"))
    for name, trained in written["models"].items():
        assert trained["num_steps"] > 0, name
        # A uniform distribution over 512 tokens has a loss of 6.2 nats.
        assert trained["held_out"]["code"]["loss"] < 5.7, name


def test_every_model_of_the_family_opens(family: Path) -> None:
    for recipe in PRESETS["smoke"].models:
        folder = family / "models" / recipe.name
        assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == 512
        assert AutoTokenizer.from_pretrained(folder)("x")["input_ids"][0] == 0


def test_evaluate_prints_a_table_and_writes_json(family: Path, capsys: pytest.CaptureFixture[str]):
    assert zoo("evaluate", "--out", family) == 0
    written = json.loads((family / "evaluation.json").read_text("utf-8"))
    assert written["context"] == PRESETS["smoke"].schedule.late_context
    assert written["models"].keys() == {"llm", "ssm-code", "ssm-docs"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "docs", "code"]
    assert f"{written['models']['llm']['code']['loss']:.3f}" in lines[2]
    trained = json.loads((family / "training.json").read_text("utf-8"))["models"]
    for name, scores in written["models"].items():
        assert scores == trained[name]["held_out"]


def test_evaluate_reports_models_of_one_name_by_path(family: Path) -> None:
    model = family / "models" / "ssm-code"
    assert zoo("evaluate", "--out", family, "--models", model, model / ".") == 0
    written = json.loads((family / "evaluation.json").read_text("utf-8"))
    assert set(written["models"]) == {str(model)}


def test_a_killed_training_continues_from_its_checkpoint(family: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    out.mkdir()
    for name in ("manifest.json", "tokens", "tokenizer"):
        (out / name).symlink_to(family / name)
    arguments = ("train", "--preset", "smoke", "--out", str(out), "--minutes")
    with (tmp_path / "log").open("w") as log:
        training = subprocess.Popen(
            [sys.executable, "-c", WITHOUT_PAGE_CODE, *arguments, "5"], cwd=ROOT, stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        checkpoint = out / "runs" / "llm" / "checkpoint.pt"
        _wait_for(checkpoint, training)
        time.sleep(0.5)  # the kill must lose steps that are made after the checkpoint
        training.send_signal(signal.SIGKILL)
        assert training.wait() == -signal.SIGKILL
    killed = torch.load(checkpoint, weights_only=True)
    assert killed["spent"] > 0
    share = PRESETS["smoke"].models[0].budget_share
    assert zoo(*arguments, (killed["spent"] + 0.5) / 60 / share) == 0
    resumed = torch.load(checkpoint, weights_only=True)
    assert resumed["spent"] >= killed["spent"] + 0.5
    assert resumed["trainer"]["num_steps"] > killed["trainer"]["num_steps"]
    assert (
        resumed["trainer"]["order"]["num_batches"]
        == resumed["trainer"]["num_steps"]
        > killed["trainer"]["order"]["num_batches"]
    )
    assert (out / "models" / "llm" / "config.json").is_file()


def _wait_for(path: Path, process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.is_file():
        assert process.poll() is None, "training ended before its first checkpoint"
        assert time.monotonic() < deadline, "no checkpoint in time"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "prepare|answers|train|distil|boost|tables|chat-family|evaluate|samples"),
        (("train",), "--out"),
        (
            ("prepare", "--out", "{out}", "--preset", "big"),
            "preset is 'big': it must be one of 'smoke'",
        ),
        (("prepare", "--out", "{out}"), "corpora is None: a folder of corpora"),
        (("prepare", "--out", "{out}", "--corpora", "{out}/no"), "a folder with .txt files in"),
        (
            ("prepare", "--out", "{out}", "--preset", "smoke", "--tokenizer", "{out}"),
            "tokenizer is",
        ),
        (("prepare", "--out", "{out}", "--preset", "smoke", "--prompts", "{out}/no"), "prompts is"),
        (("prepare", "--out", "{out}", "--preset", "smoke", "--seed", "-1"), "seed is -1"),
        (("train", "--out", "{out}/no"), "python -m zoo prepare"),
        (
            ("train", "--out", "{family}", "--minutes", "nan"),
            "minutes is nan: it must be a number above 0",
        ),
        (
            ("train", "--out", "{family}", "--minutes", "0"),
            "minutes is 0.0: it must be a number above 0",
        ),
        (("train", "--out", "{family}", "--minutes", "x"), "minutes is 'x': it must be a number"),
        (("train", "--out", "{family}", "--preset", "cpu"), "mixture is 'stories, dialogue, math'"),
        (("evaluate", "--out", "{family}", "--models", "{out}/no"), "models is"),
        (("evaluate", "--out", "{family}", "--context", "0"), "context is 0: 1 to 256"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, family, tmp_path, capsys):
    assert zoo(*(each.format(out=tmp_path, family=family) for each in arguments)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith("zoo: ")
    assert message in error


def test_evaluate_without_models_is_refused(family, tmp_path, capsys):
    for name in ("manifest.json", "tokens", "tokenizer"):
        (tmp_path / name).symlink_to(family / name)
    assert zoo("evaluate", "--out", tmp_path) == 2
    assert "models is None: model folders" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_device_is_named(family: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo("train", "--out", family, "--device", "cuda") == 2
    assert "device is 'cuda': cpu or auto" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(family, monkeypatch, capsys):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "train_family", interrupt)
    assert zoo("train", "--out", family) == 130
    assert "interrupted" in capsys.readouterr().err
