"""SSMs with shared embeddings: loss, gradients, training, and their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import zoo.shared_folders as shared_folders
from core import load_models
from core.errors import ConfigError
from core.models.lean import map_tensors
from core.models.loading.load import LoadedModels
from core.models.protocol import chain
from tests.fakes import VOCAB
from tests.zoo.chat_models import END, SHAPE, students
from tests.zoo.small import Killed
from zoo.batch_generation import TOP
from zoo.own_answers import TrainingTokens
from zoo.shared_folders import EMBEDDING, LAYERS, write_family
from zoo.shared_students import (
    SharedTrainer,
    SoftCrossEntropy,
    StudentBatch,
    hidden_states,
    member,
    new_students,
)


def random_tokens(count: int = 64, kinds: int = 2, seed: int = 0) -> TrainingTokens:
    noise = torch.Generator().manual_seed(seed)
    top_probs = torch.rand(count, TOP, generator=noise).sort(-1, descending=True).values
    top_probs = (top_probs / top_probs.sum(-1, keepdim=True)).half()
    top_probs[::3] = 0
    ids = [torch.randperm(VOCAB, generator=noise)[:TOP] for _ in range(count)]
    return TrainingTokens(
        ids=torch.randint(VOCAB, (count,), generator=noise).int(),
        kinds=(torch.arange(count) % kinds).to(torch.int8),
        top_ids=torch.stack(ids).int(),
        top_probs=top_probs,
        starts=torch.tensor([0, count // 2]),
    )


def test_the_loss_and_its_gradient_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covers chunks, targets outside the head's vocabulary, and a scaled gradient."""
    monkeypatch.setattr("zoo.shared_students.CHUNK", 10)
    tokens, noise = random_tokens(), torch.Generator().manual_seed(1)
    hidden = torch.randn(64, 16, generator=noise, requires_grad=True)
    head = torch.randn(16, 40, generator=noise, requires_grad=True)
    weights = torch.rand(64, generator=noise)
    targets = tokens.top_ids, tokens.top_probs
    result = SoftCrossEntropy.apply(hidden, head, *targets, weights)
    p = torch.zeros(64, VOCAB).scatter_(1, tokens.top_ids.long(), tokens.top_probs.float())[:, :40]
    each = -(p * (hidden @ head).log_softmax(-1)).sum(-1)
    expected = (each * weights).sum() / weights.sum()
    torch.testing.assert_close(result, expected)
    gradients = torch.autograd.grad(3 * result, (hidden, head))
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, (hidden, head)))


def test_new_embeddings_are_the_llms_principal_components() -> None:
    noise = torch.Generator().manual_seed(0)
    # The rank of `wide` is below the students' width: inner products are kept up to a factor.
    wide = torch.randn(VOCAB, 20, generator=noise) @ torch.randn(20, 48, generator=noise)
    embedding = new_students(SHAPE, 2, wide, 0).embedding
    products, wide_products = embedding @ embedding.t(), wide @ wide.t()
    torch.testing.assert_close(
        products / products.norm(), wide_products / wide_products.norm(), atol=1e-5, rtol=1e-3
    )
    assert embedding.pow(2).mean().sqrt().item() == pytest.approx(0.03)


def test_a_kinds_weight_is_that_of_its_tokens_losses() -> None:
    """Tokens of kind 1 have other targets in one trainer; student 0 gives this kind no weight."""
    tokens = random_tokens()
    others = tokens.top_ids.where(tokens.kinds[:, None] == 0, tokens.top_ids.flip(1))
    losses = [
        SharedTrainer(
            students(), each, [[1.0, 0.0], [1.0, 1.0]], StudentBatch(2, 32), torch.float32
        ).step(0.0)
        for each in (tokens, tokens._replace(top_ids=others))
    ]  # fmt: skip
    assert losses[0][0] == losses[1][0] and losses[0][1] != losses[1][1]


def test_training_lowers_each_students_loss() -> None:
    trainer = SharedTrainer(
        students(), random_tokens(), [[1.0, 0.25], [0.25, 1.0]], StudentBatch(2, 32), torch.float32
    )
    losses = torch.stack([trainer.step(step / 60) for step in range(60)])
    assert (losses[-5:].mean(0) < losses[0] - 0.3).all()
    one, other = member(trainer.students, 0), member(trainer.students, 1)
    assert one.embedding is other.embedding
    assert not torch.equal(one.layers[0].qkv, other.layers[0].qkv)
    assert (trainer.num_steps, trainer.num_tokens) == (60, 60 * 64)
    assert trainer.num_targets == 60 * int((random_tokens().top_probs[:, 0] > 0).sum())


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_tokens is 64: at least 65; raise gen"):
        SharedTrainer(
            students(), random_tokens(), [[1.0], [1.0]], StudentBatch(2, 65), torch.float32
        )


def test_folders_open_with_the_students_logits(models: LoadedModels, tmp_path: Path) -> None:
    stacked = students()
    write_family(tmp_path / "out", ["ssm-a", "ssm-b"], stacked, models, {"steps": 1})
    folders = [tmp_path / "out" / name for name in ("ssm-a", "ssm-b")]
    llm = str(tmp_path / "llm")
    loaded = load_models(llm, [str(folder) for folder in folders], "float32", "cpu")
    rounded = map_tensors([stacked], lambda parts: parts[0].bfloat16().float())
    ids = [1, 5, 63, 2, 40, 8]
    expected = hidden_states(rounded, torch.tensor([ids])) @ rounded.head
    for number, folder in enumerate(folders):
        ssm = loaded.ssms[folder.name]
        row = ssm.open_row()
        (logits,) = ssm.forward([chain(row, ids)])
        assert logits.shape == (len(ids), SHAPE.head)
        torch.testing.assert_close(torch.as_tensor(logits), expected[number], atol=1e-5, rtol=1e-4)
        module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        result = module(torch.tensor([ids])).logits[0]
        assert result.shape == (len(ids), VOCAB)
        torch.testing.assert_close(result[:, : SHAPE.head], expected[number], atol=1e-5, rtol=1e-4)
        assert module.generation_config.eos_token_id == END
    files = sorted(path.name for path in (tmp_path / "out").rglob("*.safetensors"))
    assert files == [EMBEDDING, LAYERS, LAYERS]
    assert "embed" not in " ".join(load_file(folders[0] / LAYERS))


def test_a_kill_while_writing_leaves_the_previous_family(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, names = tmp_path / "out", ["ssm-a", "ssm-b"]
    write_family(out, names, students(0), models, {"steps": 1})
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    saves_left = iter(range(2))

    def save_or_kill(*arguments: Any, **options: Any) -> None:
        if next(saves_left, None) is None:
            raise Killed
        save_file(*arguments, **options)

    monkeypatch.setattr(shared_folders, "save_file", save_or_kill)
    with pytest.raises(Killed):
        write_family(out, names, students(1), models, {"steps": 2})
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
