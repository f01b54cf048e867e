"""Training lowers the loss, ends when its budget is spent, and continues after an interruption."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.errors import ConfigError, ModelError
from tests.zoo.small import SMALL, Killed, new_trainer
from zoo import train as training
from zoo.checkpoint import TrainingCheckpoint
from zoo.learning_curve import LearningCurve
from zoo.models import autocast
from zoo.progress import ProgressLine
from zoo.tokens import TokenStore
from zoo.train import TrainingRun, train_family, train_model
from zoo.trainer import Trainer

SSM = SMALL.models[1]
ONE = replace(SMALL, models=(SSM,))
CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
MakeRun = Callable[..., TrainingRun]


def killing_clock(after: int) -> Callable[[], float]:
    readings = iter(range(1, after))

    def read() -> float:
        for reading in readings:
            return float(reading)
        raise Killed

    return read


def saved_state(store: TokenStore) -> dict[str, Any]:
    return torch.load(store.folder / "runs" / SSM.name / "checkpoint.pt", weights_only=True)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return {path: value}
    return {k: v for key, each in items for k, v in flat(each, f"{path}/{key}").items()}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = flat(one), flat(other)
    assert first.keys() == second.keys()
    for key, value in first.items():
        same = value.equal(second[key]) if torch.is_tensor(value) else value == second[key]
        assert same, key


def test_the_loss_falls(ticking_run: MakeRun) -> None:
    start = new_trainer(SSM, ticking_run(ONE, 1).store)
    start.step(0.0)
    trained = train_model(SSM, ticking_run(ONE, 150))
    assert trained.num_steps == 150
    assert start.loss() > 6.0
    assert trained.training_loss < start.loss() - 1.0
    assert all(score.loss < 5.2 for score in trained.held_out.values())


def test_a_model_folder_opens_with_transformers(ticking_run: MakeRun, store: TokenStore) -> None:
    train_model(SSM, ticking_run(ONE, 3))
    folder = store.folder / "models" / SSM.name
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.bfloat16 and model.config.tie_word_embeddings
    inputs = tokenizer("import os", return_tensors="pt")
    assert inputs["input_ids"][0, 0] == 0
    written = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    assert written.shape[1] > inputs["input_ids"].shape[1]


def test_saved_weights_are_divided_into_shards_of_twelve_megabytes(ticking_run, store):
    large = replace(SSM, hidden_size=512, intermediate_size=4096, head_dim=64)  # 15 MB in bfloat16
    train_model(large, ticking_run(replace(ONE, models=(large,)), 1))
    shards = list((store.folder / "models" / large.name).glob("*.safetensors"))
    assert len(shards) > 1
    assert max(shard.stat().st_size for shard in shards) <= 12e6


def test_an_interrupted_run_ends_as_an_uninterrupted_one(ticking_run: MakeRun, store: TokenStore):
    train_model(SSM, ticking_run(ONE, 40))
    uninterrupted = saved_state(store)
    (store.folder / "runs" / SSM.name / "checkpoint.pt").unlink()
    for after in (8, 15, 16):  # after the last kill, training windows are longer
        with pytest.raises(Killed):
            train_model(SSM, replace(ticking_run(ONE, 40), clock=killing_clock(after)))
    assert 0.75 * 40 < saved_state(store)["spent"] < 40
    train_model(SSM, ticking_run(ONE, 40))
    assert_same(saved_state(store), uninterrupted)


def test_a_run_without_its_checkpoint_begins_its_curve_anew(
    ticking_run: MakeRun, store: TokenStore
):
    train_model(SSM, ticking_run(ONE, 40))
    curve = LearningCurve(store.folder / "runs" / SSM.name / "curve.jsonl")
    known = curve.lines()
    curve.add(1000, {})
    train_model(SSM, ticking_run(ONE, 40))
    assert len(curve.lines()) == len(known) + 1, "the curve continues"
    curve.begin()
    curve.add(1, {})
    (store.folder / "runs" / SSM.name / "checkpoint.pt").unlink()
    train_model(SSM, ticking_run(ONE, 40))
    assert curve.lines() == known


def test_an_interrupted_evaluation_is_made_when_the_run_is_resumed(ticking_run, store):
    seldom = replace(ONE, schedule=replace(ONE.schedule, checkpoint_seconds=100.0))
    curve = LearningCurve(store.folder / "runs" / SSM.name / "curve.jsonl")
    train_model(SSM, ticking_run(seldom, 40))
    uninterrupted, lines = saved_state(store), curve.lines()
    assert len(lines) == ONE.schedule.evaluations
    shutil.rmtree(store.folder / "runs")

    def kill(*_: object) -> None:
        raise Killed

    for _ in range(2):
        with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
            patched.setattr(training, "measure", kill)
            train_model(SSM, ticking_run(seldom, 40))
    assert curve.lines() == () and saved_state(store)["owes"]
    with pytest.raises(Killed):  # a kill one step after the evaluation
        train_model(SSM, replace(ticking_run(seldom, 40), clock=killing_clock(3)))
    assert curve.lines() == lines[:1] and not saved_state(store)["owes"]
    train_model(SSM, ticking_run(seldom, 40))
    assert curve.lines() == lines
    assert_same(saved_state(store), uninterrupted)


def test_an_older_checkpoint_has_no_evaluation_due(store: TokenStore, tmp_path: Path) -> None:
    trainer = new_trainer(SSM, store)
    trainer.step(0.0)
    checkpoint = TrainingCheckpoint(tmp_path / "c.pt", {})
    checkpoint.save(trainer, 1.0, evaluation_due=True)
    state = torch.load(tmp_path / "c.pt", weights_only=True)
    assert state.pop("owes")
    torch.save(state, tmp_path / "c.pt")
    assert checkpoint.load(new_trainer(SSM, store)) == (1.0, False)


def test_a_kill_costs_less_than_the_time_between_checkpoints(ticking_run, store):
    preset = replace(ONE, schedule=replace(ONE.schedule, checkpoint_seconds=10.0, evaluations=0))
    with pytest.raises(Killed):
        train_model(SSM, replace(ticking_run(preset, 1000), clock=killing_clock(28)))
    state = saved_state(store)
    assert (state["spent"], state["trainer"]["num_steps"]) == (20.0, 20)


def test_the_budget_counts_what_was_spent_before(ticking_run: MakeRun) -> None:
    assert train_model(SSM, ticking_run(ONE, 5)).num_steps == 5
    assert train_model(SSM, ticking_run(ONE, 5)).num_steps == 5
    stream = io.StringIO()
    longer = train_model(SSM, ticking_run(ONE, 12, stream=stream))
    assert (longer.num_steps, longer.seconds) == (12, 12.0)
    assert "ssm-code resumes at step 5, 43% done" in stream.getvalue()


def test_a_family_shares_the_minutes_and_writes_its_figures(ticking_run, store):
    run = ticking_run(SMALL, 9)
    trained = train_family(run)
    assert [each.num_steps for each in trained.values()] == [9, 3, 3]
    written = json.loads((store.folder / "training.json").read_text("utf-8"))
    assert written["models"].keys() == trained.keys() == {"llm", "ssm-code", "ssm-docs"}
    assert written["models"]["llm"]["held_out"]["code"]["loss"] > 0


@pytest.mark.parametrize(
    ("field", "change"), [("recipe", {"learning_rate": 0.5}), ("recipe", {"num_layers": 2})]
)
def test_a_checkpoint_of_another_recipe_is_refused(ticking_run, field, change):
    train_model(SSM, ticking_run(ONE, 2))
    with pytest.raises(ConfigError, match=rf"out is .*checkpoint\.pt.*the same {field}"):
        train_model(replace(SSM, **change), ticking_run(ONE, 4))


def test_a_checkpoint_of_another_seed_or_damaged_is_refused(ticking_run, store):
    train_model(SSM, ticking_run(ONE, 2))
    with pytest.raises(ConfigError, match="the same seed"):
        train_model(SSM, ticking_run(ONE, 4, seed=1))
    path = store.folder / "runs" / SSM.name / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ConfigError, match=r"checkpoint\.pt.*a readable checkpoint"):
        train_model(SSM, ticking_run(ONE, 4))


@pytest.mark.parametrize("content", [{}, [1.0], {"identity": {}, "spent": 1.0}])
def test_a_file_that_is_no_checkpoint_is_refused(
    store: TokenStore, tmp_path: Path, content: object
) -> None:
    torch.save(content, tmp_path / "c.pt")
    checkpoint = TrainingCheckpoint(tmp_path / "c.pt", {})
    with pytest.raises(ConfigError, match=r"out is .*c\.pt': a readable checkpoint"):
        checkpoint.load(new_trainer(SSM, store))


def test_a_loss_that_is_nan_raises_and_leaves_the_last_checkpoint(
    ticking_run: MakeRun, store: TokenStore, tmp_path: Path
) -> None:
    trainer = new_trainer(SSM, store)
    checkpoint = TrainingCheckpoint(tmp_path / "c.pt", {"seed": 0})
    trainer.step(0.0)
    checkpoint.save(trainer, 1.0)
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(float("nan"))
    trainer.step(0.1)
    with pytest.raises(ModelError, match="loss of ssm-code is nan at step 2"):
        checkpoint.save(trainer, 2.0)
    assert checkpoint.load(new_trainer(SSM, store)) == (1.0, False)


def test_gradients_are_clipped(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = new_trainer(SSM, store)
    trainer.schedule = replace(ONE.schedule, max_gradient_norm=0.01)
    norms = []

    def record() -> None:
        gradients = [p.grad.norm() for p in trainer.model.parameters() if p.grad is not None]
        norms.append(torch.stack(gradients).norm().item())

    monkeypatch.setattr(trainer.optimizer, "step", record)
    trainer.step(0.5)
    assert norms == [pytest.approx(0.01, rel=1e-3)]


def test_the_running_loss_is_at_first_the_mean_of_the_steps(store, monkeypatch):
    trainer = new_trainer(SSM, store)
    losses = iter([6.0, 4.0, 2.0])
    monkeypatch.setattr(Trainer, "_backward", lambda *_: torch.tensor(next(losses)))
    means = []
    for _ in range(3):
        trainer.step(0.0)
        means.append(trainer.loss())
    assert means == pytest.approx([6.0, 5.0, 4.0])


def test_a_new_model_does_not_change_the_global_random_state(store: TokenStore) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    new_trainer(SSM, store)
    assert torch.rand(3).equal(expected)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_every_15_seconds() -> None:
    stream = io.StringIO()
    progress = ProgressLine("llm", 120.0, stream, log_seconds=15.0)
    for second in range(31):
        if progress.is_due(float(second)):
            progress.show(float(second), second * 10, second * 5000, 3.25)
    progress.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[-1] == (
        "llm [######------------------]  25%  step 300  loss 3.250  5,000 tok/s  1:30 left"
    )


def test_a_terminal_gets_one_line_and_notes_stay() -> None:
    stream = Terminal()
    progress = ProgressLine("llm", 10.0, stream)
    progress.show(1.0, 1, 1, 2.0)
    progress.show(2.0, 2, 2, 2.0)
    progress.note("held out: code 3.0")
    progress.end()
    assert stream.getvalue().count("\r") == 2
    assert stream.getvalue().endswith("left\x1b[K\nllm held out: code 3.0\n")


@on_gpu
@pytest.mark.gpu
def test_products_are_bfloat16() -> None:
    device = torch.device("cuda")
    one = torch.ones(8, 8, device=device)
    with autocast(device):
        assert (one @ one).dtype == torch.bfloat16


@on_gpu
@pytest.mark.gpu
def test_a_run_begun_on_the_device_continues_on_the_cpu(
    ticking_run: Callable[..., TrainingRun],
) -> None:
    begun = train_model(ONE.models[0], ticking_run(ONE, 60, device=torch.device("cuda")))
    assert begun.training_loss < 6.0
    resumed = train_model(ONE.models[0], ticking_run(ONE, 80))
    assert resumed.num_steps == 80
    assert resumed.training_loss < begun.training_loss
