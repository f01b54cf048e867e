"""SSMs for a chat LLM."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import zoo.__main__ as command
import zoo.batch_generation as batch_generation
from core import load_models
from core.errors import ConfigError
from core.models.loading.load import LoadedModels
from tests.core.models.folders import save_tiny_model
from tests.zoo.chat_models import QUESTIONS, SHAPE, llm_folder, students
from tests.zoo.small import Killed, TickingClock
from zoo.batch_generation import TOP, Generated
from zoo.chat_family import FAMILY, FamilyPlan, _check_folder, accuracy, make_family
from zoo.family_checkpoint import FamilyCheckpoint
from zoo.own_answers import Lengths
from zoo.shared_students import StudentBatch, hidden_states


def test_accuracy_is_counted_on_the_llms_greedy_tokens() -> None:
    five, prompts = students(count=len(FAMILY)), ([7, 8, 9], [5])
    five.norm[1:] = -1.0  # negates the other students' logits
    for layer in five.layers:
        layer.out.mul_(100.0)  # otherwise a new student repeats the last token
    rows = []
    for prompt in prompts:
        ids = list(prompt)
        for _ in range(12):
            hidden = hidden_states(five, torch.tensor([ids]))[0, -1]
            ids.append(int((hidden @ five.head).argmax()))
        rows.append([0] * (15 - len(ids)) + ids)
    assert len({*rows[0][3:]}) > 2
    rows[1][5] = (rows[1][5] + 1) % SHAPE.head  # the third new token is not the student's
    ids, starts = torch.tensor(rows), torch.tensor([0, 2])
    ends = torch.tensor([15, 6])
    empty = torch.zeros(2, 12, TOP)
    result = accuracy(five, Generated(ids, starts, ends, 3, empty.int(), empty.half()))
    first = result["students"]["ssm-chat"]
    # The first text has 12 tokens in 3 passes, the second has 3 tokens in one pass.
    assert first["agreement"] == round(14 / 15, 3) <= first["in_three"]
    assert first["acceptance_length"] == round(15 / 4, 3)
    others = list(result["students"].values())[1:]
    assert {(one["agreement"], one["in_three"], one["acceptance_length"]) for one in others} == {
        (0.0, 0.0, 1.0)
    }
    assert result["union"] == first["agreement"]


def small_plan(**changes: Any) -> FamilyPlan:
    lengths = Lengths(prompt=16, answer=20, question=12)
    plan = FamilyPlan(
        1.0, 0.05, QUESTIONS, ["w40 w41", "w42"], SHAPE, StudentBatch(4, 24), lengths,
        clock=TickingClock(), stream=io.StringIO(),
    )  # fmt: skip
    return replace(plan, **changes)


def test_a_family_is_made(models: LoadedModels, tmp_path: Path) -> None:
    plan, out = small_plan(), tmp_path / "out"
    figures = make_family(models, plan, out)
    assert json.loads((out / "models" / "training.json").read_text("utf-8")) == figures
    assert figures["students"].keys() == FAMILY.keys()
    assert figures["steps"] == 57
    assert 0 < figures["targets"] < figures["token_steps"]
    assert figures["llm"]["fingerprint"] == models.llm.info.fingerprint
    notes = plan.stream.getvalue()
    assert notes.count("acceptance_length") == 5 and "answers, " in notes
    folders = [str(out / "models" / name) for name in FAMILY]
    loaded = load_models(str(tmp_path / "llm"), folders, "float32", "cpu")
    assert set(loaded.ssms) == set(FAMILY)
    assert len({ssm.info.fingerprint for ssm in loaded.ssms.values()}) == len(FAMILY)


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.rglob("*.safetensors"))
    tensors = ((file, name, one) for file in files for name, one in load_file(file).items())
    return {f"{file.relative_to(folder)}/{name}": one for file, name, one in tensors}


@pytest.mark.parametrize("last", ["answers-00000.pt", "answers-00001.pt", "training.pt"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    monkeypatch.setattr(batch_generation, "LARGEST_BATCH_ON_CPU", 4)
    monkeypatch.setattr("zoo.own_answers.ENDED_QUESTIONS", 0.5)
    fields = {"minutes": 0.7, "generation_minutes": 0.4, "checkpoint_seconds": 7.0}
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    figures = make_family(models, small_plan(**fields), uninterrupted)
    save, kills = FamilyCheckpoint.save, [last] if last != "training.pt" else [last, last]

    def save_and_kill(checkpoint: FamilyCheckpoint, name: str, state: Any) -> None:
        save(checkpoint, name, state)
        if f"{name}.pt" in kills:
            kills.remove(f"{name}.pt")
            raise Killed

    monkeypatch.setattr(FamilyCheckpoint, "save", save_and_kill)
    while kills:
        with pytest.raises(Killed):
            make_family(models, small_plan(**fields), interrupted)
    assert make_family(models, small_plan(**fields), interrupted) == figures
    expected, result = weights_in(uninterrupted), weights_in(interrupted)
    assert expected.keys() == result.keys()
    assert all(torch.equal(one, result[name]) for name, one in expected.items())
    assert [path.name for path in interrupted.iterdir()] == ["models"], "no checkpoint is left"


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    checkpoint = FamilyCheckpoint(tmp_path, {}, torch.device("cpu"))
    checkpoint.save("training", {"spent": 1.0})
    assert checkpoint.load("training") == {"spent": 1.0} and checkpoint.load("other") is None
    (path,) = tmp_path.rglob("*.pt")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ConfigError, match=r"training\.pt'?: a readable checkpoint; remove"):
        checkpoint.load("training")


def test_accuracy_is_measured_on_the_development_prompts(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[list[int]] = []

    def record_prompts(students: Any, texts: Generated) -> Any:
        starts = texts.starts.tolist()
        prompts.extend(
            row[start : texts.first_new]
            for row, start in zip(texts.ids.tolist(), starts, strict=True)
        )
        return accuracy(students, texts)

    monkeypatch.setattr("zoo.chat_family.accuracy", record_prompts)
    make_family(models, small_plan(minutes=0.1, generation_minutes=0.0), tmp_path / "out")
    assert prompts[:2] == [[1, 40, 41, 2, 3], [1, 42, 2, 3]]


def test_the_command_makes_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llm, out = llm_folder(tmp_path / "llm"), tmp_path / "out"
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "w4"}\n')
    arguments = ["chat-family", "--llm", llm, "--out", out, "--minutes", "0.02", "--layers", "1"]
    arguments += ["--prompts", tmp_path / "prompts.jsonl", "--device", "cpu"]
    assert command.main([str(each) for each in arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *FAMILY]
    assert (out / "models" / "ssm-chat" / "config.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "0"], "layers is 0"),
        (["--minutes", "0"], "minutes is 0.0: it must be a number above 0"),
        (
            ["--minutes", "1", "--generation-minutes", "1"],
            "generation_minutes is 1.0: it must be a number",
        ),
        (["--prompts", "nowhere"], "prompts is"),
        ([], "has no chat template"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    common = ["chat-family", "--llm", str(folder), "--out", str(tmp_path / "out")]
    capsys.readouterr()  # drops transformers' progress bar
    assert command.main([*common, *arguments]) == 2
    stderr = capsys.readouterr().err
    assert message in stderr and stderr.count("\n") == 1


def test_a_folder_with_other_models_is_refused(tmp_path: Path) -> None:
    """`zoo train` may have written models into the folder; `make_family` would delete them."""
    for name in ("ssm-chat", "ssm-math"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="without other models: .* has ssm-math"):
        _check_folder(tmp_path / "models")
    shutil.rmtree(tmp_path / "models" / "ssm-math")
    _check_folder(tmp_path / "models")
