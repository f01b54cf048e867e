"""SSMs for a chat LLM: its texts in batches, what its students learn from them, their folders."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import zoo.__main__ as command
import zoo.batch_generation as batch_generation
import zoo.shared_folders as shared_folders
from core import load_models
from core.errors import ConfigError
from core.models.lean import map_tensors
from core.models.loading.load import LoadedModels
from core.models.protocol import chain
from tests.core.models.folders import save_tiny_model
from tests.fakes import VOCAB, tiny_module, word_tokenizer
from tests.zoo.small import Killed, TickingClock
from zoo.batch_generation import TOP, BatchGenerator, BatchLimits, Generated
from zoo.chat_family import (
    FAMILY,
    FamilyPlan,
    _check_folder,
    accuracy,
    kind_weights,
    make_family,
)
from zoo.chat_prompts import chat_prompts
from zoo.family_checkpoint import FamilyCheckpoint
from zoo.own_answers import (
    ENDED_QUESTIONS,
    OWN_QUESTIONS,
    Lengths,
    Questions,
    TrainingTokens,
    own_answers,
    training_tokens,
)
from zoo.shared_folders import EMBEDDING, LAYERS, write_family
from zoo.shared_students import (
    SharedTrainer,
    SoftCrossEntropy,
    StudentBatch,
    StudentShape,
    hidden_states,
    member,
    new_students,
)

TEMPLATE = (
    "{% for m in messages %}w1 {{ m.content }} w2{% endfor %}"
    "{% if add_generation_prompt %} w3{% endif %}"
)
END = 9
SHAPE = StudentShape(layers=2, hidden=32, intermediate=48, head_size=8, head=40)
QUESTIONS = {"facts": ["w4", "w5 w6"], "code": ["w7 w8 w10"]}
PROMPTS = ([5, 6, 7], [8, 11, 12, 13, 14, 15, 16], [3])


def llm_folder(folder: Path, **changes: Any) -> Path:
    module = tiny_module("llama", seed=1, dtype=torch.float32, **changes)
    module.generation_config.eos_token_id = END
    module.save_pretrained(folder)
    tokenizer = word_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def models(tmp_path: Path) -> LoadedModels:
    return load_models(str(llm_folder(tmp_path / "llm")), [], "float32", "cpu")


def new_tokens(texts: Generated) -> list[list[int]]:
    return list(texts.new_tokens())


def module_of(models: LoadedModels, tmp_path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tmp_path / "llm", dtype=torch.float32)


# -- generation --


@pytest.mark.parametrize("prefill", [2, 512])
def test_a_batch_is_written_as_transformers_writes_each_text(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefill: int
) -> None:
    """Greedily, past a rounded number of slots, from prompts of different lengths, to the end
    token where there is one."""
    monkeypatch.setattr(batch_generation, "PREFILL_TEXTS", prefill)
    texts = BatchGenerator(models).generate(PROMPTS, [0.0] * 3, BatchLimits(80))
    module, expected = module_of(models, tmp_path), []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        result = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=80, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        expected.append(result[0, len(prompt) :].tolist())
    assert new_tokens(texts) == expected
    assert {len(tokens) for tokens in expected} != {80}, "one ends by itself"


def test_kept_probabilities_are_those_of_each_next_token(
    models: LoadedModels, tmp_path: Path
) -> None:
    texts = BatchGenerator(models).generate(PROMPTS, [1.0, 0.0, 0.6], BatchLimits(12))
    tokens = training_tokens(texts, [0, 1, 2])
    module = module_of(models, tmp_path)
    bounds = [*tokens.starts.tolist(), len(tokens.ids)]
    for number, prompt in enumerate(PROMPTS):
        at = slice(bounds[number], bounds[number + 1])
        ids = tokens.ids[at].long()
        assert ids.tolist() == [*prompt, *new_tokens(texts)[number]]
        assert tokens.kinds[at].tolist() == [number] * len(ids)
        p = module(ids[None]).logits[0].softmax(-1)
        p[: len(prompt) - 1] = 0  # nothing is learned of a prompt
        p[-1] = 0  # nor behind the end
        top = p.gather(1, tokens.top_ids[at].long())
        torch.testing.assert_close(tokens.top_probs[at].float(), top, atol=1e-3, rtol=1e-3)
        answered = slice(len(prompt) - 1, len(ids) - 1)
        largest = p.topk(TOP).values[answered]
        torch.testing.assert_close(
            tokens.top_probs[at].float()[answered], largest, atol=1e-3, rtol=0
        )


def test_temperatures_are_each_texts_own(models: LoadedModels) -> None:
    def texts(seed: int, temperatures: list[float]) -> list[list[int]]:
        generator = BatchGenerator(models, seed)
        return new_tokens(generator.generate([PROMPTS[0]] * 4, temperatures, BatchLimits(12)))

    mixed = texts(0, [0.0, 1.0, 1.0, 0.0])
    assert mixed[0] == mixed[3] and mixed[1] != mixed[2]
    assert texts(0, [0.0, 1.0, 1.0, 0.0]) == mixed != texts(1, [0.0, 1.0, 1.0, 0.0])


def test_a_batch_ends_with_most_of_its_texts_or_at_its_deadline(models: LoadedModels) -> None:
    clock = TickingClock()
    generator = BatchGenerator(models, clock=clock)
    whole = generator.generate(PROMPTS, [0.0] * 3, BatchLimits(80))
    late = generator.generate(PROMPTS, [0.0] * 3, BatchLimits(80, deadline=clock.now))
    assert late.top_probs.shape[1] == batch_generation.CHECKED_EVERY
    assert new_tokens(late) == [
        tokens[: batch_generation.CHECKED_EVERY] for tokens in new_tokens(whole)
    ]
    some = generator.generate(PROMPTS, [0.0] * 3, BatchLimits(80, ended_share=0.3))
    assert late.ids.shape[1] <= some.ids.shape[1] < whole.ids.shape[1]


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    module = tiny_module("gpt2", dtype=torch.float32)
    module.save_pretrained(tmp_path / "other")
    word_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match="llm is 'other': a Llama-like model"):
        BatchGenerator(load_models(str(tmp_path / "other"), [], "float32", "cpu"))


# -- questions and answers --


def questions(models: LoadedModels, left_out: tuple[str, ...] = ()) -> Questions:
    lengths = Lengths(prompt=8, answer=20, question=12)
    return Questions(models, BatchGenerator(models), QUESTIONS, left_out, lengths, 0)


def test_the_llm_writes_questions_of_its_own(models: LoadedModels) -> None:
    """Turns of the user, from their beginning in the template: those that end by themselves."""
    turns = BatchGenerator(models).generate(
        [[1]] * 40, [1.0] * 40, BatchLimits(12, ENDED_QUESTIONS)
    )
    ended = [tokens[:-1] for tokens in new_tokens(turns) if tokens[-1] == END]
    texts = ["".join(f"w{i}" for i in tokens) for tokens in ended]
    result = questions(models).own_questions(40)
    assert result == [text for text in texts if len(text) >= 4]
    assert 0 < len(result) < len(ended) < 40


def test_half_of_the_questions_are_its_own(
    models: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its template; those that are too long are left out. The others are the given ones, over
    and over."""
    own = ["w20"] * 4 + ["w20 " * 6]
    monkeypatch.setattr(Questions, "own_questions", lambda *_: list(own))
    asked = questions(models)
    assert asked.kinds == ("facts", "code", OWN_QUESTIONS)
    first, second = asked.batch(8), asked.batch(8)
    assert first[:4] == [(2, (1, 20, 2, 3))] * 4 and second[:3] == first[:3]
    given = [(0, (1, 4, 2, 3)), (0, (1, 5, 6, 2, 3)), (1, (1, 7, 8, 10, 2, 3))]
    others = first[4:] + second[3:]
    assert sorted(others[:3]) == given and others[3:6] == others[:3] and others[6:] == others[:2]


def test_development_prompts_are_no_own_questions(models: LoadedModels) -> None:
    result = questions(models).own_questions(40)
    left = questions(models, (result[0].upper(),)).own_questions(40)
    assert left == [text for text in result if text != result[0]]


def test_answers_are_written_until_the_deadline(models: LoadedModels) -> None:
    clock = TickingClock()
    generator = BatchGenerator(models, clock=clock)
    lengths = Lengths(prompt=8, answer=20, question=12)
    asked = Questions(models, generator, QUESTIONS, (), lengths, 0)
    messages: list[str] = []
    tokens = own_answers(generator, asked, lengths, 4.0, messages.append)
    assert (
        len(messages) > 1
        and messages[-1] == f"{len(tokens.starts)} answers, {len(tokens.ids):,} tokens"
    )
    starts = tokens.starts.tolist()
    assert starts == sorted(starts) and tokens.ids[starts].eq(1).all(), "the template's first token"
    assert len(tokens.ids) == len(tokens.kinds) == len(tokens.top_ids) == len(tokens.top_probs)


def test_a_batch_without_a_short_enough_question_is_skipped_but_not_the_first(
    models: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, short = BatchGenerator(models, clock=TickingClock()), Lengths(2, 20, 12)
    asked = Questions(models, generator, QUESTIONS, (), short, 0)
    with pytest.raises(ConfigError, match="prompt is 2: more tokens: no question"):
        own_answers(generator, asked, short, 4.0, [].append)
    batches = iter([[(0, (1, 4, 2, 3))], [], [(1, (1, 5, 2, 3))]])
    monkeypatch.setattr(Questions, "batch", lambda *_: next(batches, [(0, (1, 4, 2, 3))]))
    tokens = own_answers(generator, asked, Lengths(8, 20, 12), 40.0, [].append)
    assert tokens.kinds[tokens.starts].tolist()[:2] == [0, 1]


def test_weights_by_kind() -> None:
    kinds = [*chat_prompts([], [], 0), OWN_QUESTIONS]
    weights = dict(zip(FAMILY, kind_weights(kinds), strict=True))
    assert {kind for own in FAMILY.values() for kind in own} < set(kinds)
    assert weights["ssm-chat"] == [1.0] * len(kinds)
    code = dict(zip(kinds, weights["ssm-code"], strict=True))
    assert code == {
        "facts": 0.25, "writing": 0.25, "how": 0.25, "code": 1.0, "text": 0.25, "own": 0.4,
    }  # fmt: skip
    facts = dict(zip(kinds, weights["ssm-facts"], strict=True))
    assert (facts["facts"], facts["how"], facts["code"]) == (1.0, 1.0, 0.25)


# -- training --


def random_tokens(count: int = 64, kinds: int = 2, seed: int = 0) -> TrainingTokens:
    """Two texts; every third token has no target."""
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
    """Whatever the chunks, with tokens that the head lacks, and scaled."""
    monkeypatch.setattr("zoo.shared_students.CHUNK", 10)
    tokens, noise = random_tokens(), torch.Generator().manual_seed(1)
    hidden = torch.randn(64, 16, generator=noise, requires_grad=True)
    head = torch.randn(16, 40, generator=noise, requires_grad=True)
    weights = torch.rand(64, generator=noise)
    targets = tokens.top_ids, tokens.top_probs
    ours = SoftCrossEntropy.apply(hidden, head, *targets, weights)
    p = torch.zeros(64, VOCAB).scatter_(1, tokens.top_ids.long(), tokens.top_probs.float())[:, :40]
    each = -(p * (hidden @ head).log_softmax(-1)).sum(-1)
    theirs = (each * weights).sum() / weights.sum()
    torch.testing.assert_close(ours, theirs)
    by_hand = torch.autograd.grad(3 * ours, (hidden, head))
    by_autograd = torch.autograd.grad(3 * theirs, (hidden, head))
    torch.testing.assert_close(by_hand, by_autograd)


def students(seed: int = 0, count: int = 2) -> Any:
    wide = torch.randn(VOCAB, 48, generator=torch.Generator().manual_seed(seed))
    return new_students(SHAPE, count, wide, seed)


def test_new_embeddings_are_the_llms_principal_components() -> None:
    noise = torch.Generator().manual_seed(0)
    # Of no higher rank than the students are wide, so that nothing is lost but the scale.
    wide = torch.randn(VOCAB, 20, generator=noise) @ torch.randn(20, 48, generator=noise)
    ours = new_students(SHAPE, 2, wide, 0).embedding
    products, wide_products = ours @ ours.t(), wide @ wide.t()
    torch.testing.assert_close(
        products / products.norm(), wide_products / wide_products.norm(), atol=1e-5, rtol=1e-3
    )
    assert ours.pow(2).mean().sqrt().item() == pytest.approx(0.03)


def test_a_kinds_weight_is_what_its_tokens_count() -> None:
    """Where a kind weighs nothing, its targets change nothing for that student."""
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
    with pytest.raises(ConfigError, match="generation_minutes is '64 tokens': enough for 65"):
        SharedTrainer(
            students(), random_tokens(), [[1.0], [1.0]], StudentBatch(2, 65), torch.float32
        )


# -- folders --


def test_folders_open_with_the_students_logits(models: LoadedModels, tmp_path: Path) -> None:
    """By core and, with the whole head, by transformers; the embedding is stored once."""
    stacked = students()
    write_family(tmp_path / "out", ["ssm-a", "ssm-b"], stacked, models, {"steps": 1})
    folders = [tmp_path / "out" / name for name in ("ssm-a", "ssm-b")]
    llm = str(tmp_path / "llm")
    loaded = load_models(llm, [str(folder) for folder in folders], "float32", "cpu")
    halves = map_tensors([stacked], lambda parts: parts[0].bfloat16().float())
    ids = [1, 5, 63, 2, 40, 8]
    expected = hidden_states(halves, torch.tensor([ids])) @ halves.head
    for number, folder in enumerate(folders):
        ssm = loaded.ssms[folder.name]
        row = ssm.open_row()
        (logits,) = ssm.forward([chain(row, ids)])
        assert logits.shape == (len(ids), SHAPE.head)
        torch.testing.assert_close(torch.as_tensor(logits), expected[number], atol=1e-5, rtol=1e-4)
        whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        result = whole(torch.tensor([ids])).logits[0]
        assert result.shape == (len(ids), VOCAB)
        torch.testing.assert_close(result[:, : SHAPE.head], expected[number], atol=1e-5, rtol=1e-4)
        assert whole.generation_config.eos_token_id == END
    files = sorted(path.name for path in (tmp_path / "out").rglob("*.safetensors"))
    assert files == [EMBEDDING, LAYERS, LAYERS]
    assert "embed" not in " ".join(load_file(folders[0] / LAYERS))


def test_a_kill_while_writing_leaves_what_was_written(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, names = tmp_path / "out", ["ssm-a", "ssm-b"]
    write_family(out, names, students(0), models, {"steps": 1})
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    left = iter(range(2))

    def killed(*given: Any, **more: Any) -> None:
        if next(left, None) is None:
            raise Killed
        save_file(*given, **more)

    monkeypatch.setattr(shared_folders, "save_file", killed)
    with pytest.raises(Killed):
        write_family(out, names, students(1), models, {"steps": 2})
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


# -- the whole --


def test_accuracy_is_counted_on_the_llms_greedy_tokens() -> None:
    """Of texts that the first student writes itself, padded as a batch is."""
    five, prompts = students(count=len(FAMILY)), ([7, 8, 9], [5])
    five.norm[1:] = -1.0  # the others think the opposite
    for layer in five.layers:
        layer.out.mul_(100.0)  # else its last token is what a new student predicts
    rows = []
    for prompt in prompts:
        ids = list(prompt)
        for _ in range(12):
            hidden = hidden_states(five, torch.tensor([ids]))[0, -1]
            ids.append(int((hidden @ five.head).argmax()))
        rows.append([0] * (15 - len(ids)) + ids)
    assert len({*rows[0][3:]}) > 2
    rows[1][5] = (rows[1][5] + 1) % SHAPE.head  # the third new token is another
    ids, starts = torch.tensor(rows), torch.tensor([0, 2])
    ends = torch.tensor([15, 6])
    empty = torch.zeros(2, 12, TOP)
    result = accuracy(five, Generated(ids, starts, ends, 3, empty.int(), empty.half()))
    own = result["students"]["ssm-chat"]
    # 12 tokens in 3 passes (4 drafted and the LLM's own each), then 3 with a miss at their end.
    assert own["agreement"] == round(14 / 15, 3) <= own["in_three"]
    assert own["acceptance_length"] == round(15 / 4, 3)
    others = list(result["students"].values())[1:]
    assert {(one["agreement"], one["in_three"], one["acceptance_length"]) for one in others} == {
        (0.0, 0.0, 1.0)
    }
    assert result["union"] == own["agreement"]


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
    """Every tensor of a family by its file and name."""
    files = sorted(folder.rglob("*.safetensors"))
    tensors = ((file, name, one) for file in files for name, one in load_file(file).items())
    return {f"{file.relative_to(folder)}/{name}": one for file, name, one in tensors}


@pytest.mark.parametrize("last", ["answers-00000.pt", "answers-00001.pt", "training.pt"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """It is killed when a file has been stored: once behind the first or the second batch of
    answers, twice in training."""
    monkeypatch.setattr(batch_generation, "LARGEST_BATCH_ON_CPU", 4)
    monkeypatch.setattr("zoo.own_answers.ENDED_QUESTIONS", 0.5)
    fields = {"minutes": 0.7, "generation_minutes": 0.4, "checkpoint_seconds": 7.0}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    figures = make_family(models, small_plan(**fields), whole)
    save, kills = FamilyCheckpoint.save, [last] if last != "training.pt" else [last, last]

    def killing(checkpoint: FamilyCheckpoint, name: str, state: Any) -> None:
        save(checkpoint, name, state)
        if f"{name}.pt" in kills:
            kills.remove(f"{name}.pt")
            raise Killed

    monkeypatch.setattr(FamilyCheckpoint, "save", killing)
    while kills:
        with pytest.raises(Killed):
            make_family(models, small_plan(**fields), parts)
    assert make_family(models, small_plan(**fields), parts) == figures
    expected, result = weights_in(whole), weights_in(parts)
    assert expected.keys() == result.keys()
    assert all(torch.equal(one, result[name]) for name, one in expected.items())
    assert [path.name for path in parts.iterdir()] == ["models"], "no checkpoint is left"


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    checkpoint = FamilyCheckpoint(tmp_path, {}, torch.device("cpu"))
    checkpoint.save("training", {"spent": 1.0})
    assert checkpoint.load("training") == {"spent": 1.0} and checkpoint.load("other") is None
    (path,) = tmp_path.rglob("*.pt")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ConfigError, match=r"training\.pt'?: a readable checkpoint; remove"):
        checkpoint.load("training")


def test_development_prompts_are_what_it_is_measured_on(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[list[int]] = []

    def noted(students: Any, texts: Generated) -> Any:
        starts = texts.starts.tolist()
        measured.extend(
            row[start : texts.first_new]
            for row, start in zip(texts.ids.tolist(), starts, strict=True)
        )
        return accuracy(students, texts)

    monkeypatch.setattr("zoo.chat_family.accuracy", noted)
    make_family(models, small_plan(minutes=0.1, generation_minutes=0.0), tmp_path / "out")
    assert measured[:2] == [[1, 40, 41, 2, 3], [1, 42, 2, 3]]


def test_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llm, out = llm_folder(tmp_path / "llm"), tmp_path / "out"
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "w4"}\n')
    arguments = ["chat-family", "--llm", llm, "--out", out, "--minutes", "0.05", "--layers", "1"]
    arguments += ["--prompts", tmp_path / "prompts.jsonl", "--device", "cpu"]
    assert command.main([str(each) for each in arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *FAMILY]
    assert (out / "models" / "ssm-chat" / "config.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "0"], "layers is 0"),
        (["--minutes", "0"], "minutes is 0.0: a number above 0"),
        (["--minutes", "1", "--generation-minutes", "1"], "generation_minutes is 1.0: a number"),
        (["--prompts", "nowhere"], "prompts is"),
        ([], "has no chat template"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    folder = save_tiny_model(tmp_path / "llm")
    common = ["chat-family", "--llm", str(folder), "--out", str(tmp_path / "out")]
    assert command.main([*common, *arguments]) == 2
    stderr = capsys.readouterr().err
    assert message in stderr and stderr.count("\n") == 1


def test_a_folder_with_other_models_is_refused(tmp_path: Path) -> None:
    """`zoo train` writes its models into the same place, and this would replace it whole."""
    for name in ("ssm-chat", "ssm-math"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="without other models: .* has ssm-math"):
        _check_folder(tmp_path / "models")
    shutil.rmtree(tmp_path / "models" / "ssm-math")
    _check_folder(tmp_path / "models")
