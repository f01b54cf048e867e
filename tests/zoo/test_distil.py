"""Training of SSMs to predict their LLM, one by one or as a pool."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from core.errors import ConfigError
from tests.zoo.killing import kill_when
from tests.zoo.small import SMALL, TickingClock, saved_model
from zoo import __main__ as command
from zoo import boost as boosting
from zoo import distil as distilling
from zoo.boost import boost
from zoo.distil import Distilled, Teaching, Tuning, distil
from zoo.draft_accuracy import LONGEST, coverage, draft_accuracy, runs_of
from zoo.initial_weights import InitialWeights, initial_model
from zoo.learning_curve import LearningCurve
from zoo.losses import Distillation, log_probabilities
from zoo.models import open_model, weights_id
from zoo.own_texts import BatchShape, OwnTexts, continue_prefixes
from zoo.result_cache import NO_CACHE
from zoo.students import Student, students, tuning_preset
from zoo.tokens import TokenStore, open_tokens
from zoo.train import TrainingRun
from zoo.trainer import new_model

SHORT = BatchShape(texts=4, length=24, prefixes=(6, 10), temperatures=(0.0, 0.8))


def fresh(store: TokenStore, which: int, seed: int) -> Any:
    vocabulary = store.manifest.vocab_size
    return new_model(SMALL.models[which], SMALL, vocabulary, seed).eval()


NAMES = ("llm", "ssm-code", "ssm-docs")


@pytest.fixture(scope="module")
def taught_folder(prepared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests must not change this folder."""
    folder = shutil.copytree(prepared_folder, tmp_path_factory.mktemp("taught") / "family")
    store = open_tokens(folder)
    llm, *_ = (saved_model(store, which, which, name) for which, name in enumerate(NAMES))
    run = TrainingRun(SMALL, store, 1.0, torch.device("cpu"), stream=io.StringIO())
    teaching = Teaching(run, llm, own_batches=1)
    teaching.held_out()
    teaching.rows()
    return folder


@pytest.fixture
def family(taught_folder: Path, tmp_path: Path) -> tuple[TokenStore, Path, list[Path]]:
    store = open_tokens(shutil.copytree(taught_folder, tmp_path / "family"))
    llm, *ssms = (store.folder / "given" / name for name in NAMES)
    return store, llm, ssms


@pytest.fixture
def teach(family: tuple[TokenStore, Path, list[Path]]) -> Callable[..., Any]:
    """The Teaching has time for `num_steps` steps of each student."""

    def make(num_steps: int, **changes: Any) -> tuple[list[Student], Teaching]:
        store, llm, ssms = family
        result = students(ssms, SMALL, store, 1e-2)
        result = [replace(one, recipe=replace(one.recipe, tokens_per_step=512)) for one in result]
        preset = tuning_preset(SMALL, result)
        minutes = (num_steps - 0.5) / 60.0 * len(result)
        run = TrainingRun(preset, store, minutes, torch.device("cpu"), stream=io.StringIO())
        run = replace(run, clock=TickingClock(), **changes)
        return result, Teaching(run, llm, own_batches=1)

    return make


class HalfNegated(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        logits = self.model(input_ids=input_ids, use_cache=use_cache).logits
        return SimpleNamespace(logits=torch.cat([logits[:1], -logits[1:]]))


def test_stored_texts_belong_to_one_tokenizer_and_seed(teach: Callable[..., Any]) -> None:
    _, teaching = teach(1)
    store, folder = teaching.run.store, teaching.texts.folder
    manifest = replace(store.manifest, tokenizer_sha256="another's")
    other = replace(teaching, run=replace(teaching.run, store=replace(store, manifest=manifest)))
    assert other.texts.folder.parent != folder.parent
    seeded = replace(teaching, run=replace(teaching.run, seed=1))
    assert seeded.texts.folder != folder and seeded.texts.folder.parent == folder.parent


def test_a_new_ssm_begins_with_embeddings_of_its_llm(teach: Callable[..., Any]) -> None:
    (one, _), teaching = teach(1)
    loss_function = Distillation(teaching.teacher)
    unchanging = replace(one.recipe, learning_rate=1e-12)
    new = Tuning(unchanging, None, loss_function)
    assert new.initial_weights(teaching) == InitialWeights(None, teaching.llm, "ssm")
    from_folder = Tuning(one.recipe, one.start, loss_function)
    assert from_folder.initial_weights(teaching).identity() == {"start": weights_id(one.start)}
    assert new.identity(teaching)["embeddings"] == weights_id(teaching.llm)
    assert "embeddings" not in from_folder.identity(teaching)
    distil(new, teaching)
    run = teaching.run
    saved = open_model(run.store.folder / "distilled" / unchanging.name)
    weights = new.initial_weights(teaching)
    initial = initial_model(unchanging, run.preset, run.store, run.seed, weights)
    result, expected = (each.get_input_embeddings().weight for each in (saved, initial))
    torch.testing.assert_close(result, expected.to(torch.bfloat16).float())


def windows_of(store: TokenStore) -> torch.Tensor:
    return torch.from_numpy(store.train["code"][:60].astype(np.int64)).view(2, 30)


def test_the_loss_is_the_divergence_from_the_teacher(store: TokenStore) -> None:
    teacher, model = fresh(store, 0, 1), fresh(store, 1, 2)
    windows = windows_of(store)
    p, q = (log_probabilities(one, windows[:, :-1]) for one in (teacher, model))
    expected = (p.exp() * (p - q)).sum(-1).mean()
    loss = Distillation(teacher)
    assert loss(model, windows).mean.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss(teacher, windows).mean.item() == pytest.approx(0.0, abs=1e-6)


def test_positions_that_an_earlier_ssm_predicts_have_little_weight(store: TokenStore) -> None:
    teacher, model = fresh(store, 0, 1), fresh(store, 1, 2)
    other = HalfNegated(teacher)
    windows = windows_of(store)
    p, q, r = (log_probabilities(one, windows[:, :-1]) for one in (teacher, model, other))
    each = functional.kl_div(q, p, log_target=True, reduction="none").sum(-1)
    weights = torch.where(r.argmax(-1) == p.argmax(-1), 0.1, 1.0)
    expected = (each * weights).sum() / weights.sum()
    assert 0.4 < weights.mean() < 0.7 and abs(expected - each.mean()) > 5e-5
    loss = Distillation(teacher, (other,))
    assert loss(model, windows).mean.item() == pytest.approx(expected.item(), rel=1e-5)
    # An earlier SSM that predicts every position makes all weights equal.
    equal_weights = Distillation(teacher, (teacher,))(model, windows).mean.item()
    assert equal_weights == pytest.approx(each.mean().item(), rel=1e-5)


def test_a_teacher_does_not_learn(store: TokenStore) -> None:
    teacher, model = fresh(store, 0, 1), fresh(store, 1, 2)
    windows = windows_of(store)
    loss = Distillation(teacher, (fresh(store, 1, 3),))
    loss(model, windows).mean.backward()  # type: ignore[no-untyped-call]
    assert all(one.grad is None for one in teacher.parameters())
    assert any(one.grad is not None for one in model.parameters())


def test_own_texts_continue_corpus_prefixes_and_are_stored(store: TokenStore) -> None:
    model = fresh(store, 0, 1)
    texts = OwnTexts(model, store.train, store.folder / "own", SHORT)
    first = texts.batch("code", 0)
    assert first.shape == (4, 24) and first.dtype == np.uint16
    assert list(first[::2, 0]) == [0, 0], "every other text begins a document"
    row = store.train["code"]
    for text in first:
        result = np.lib.stride_tricks.sliding_window_view(row, 6) == text[:6]
        assert result.all(-1).any()
    greedy = model.generate(
        torch.from_numpy(first[:1, :6].astype(np.int64)), max_new_tokens=18, min_new_tokens=18,
        do_sample=False, eos_token_id=None,
    )  # fmt: skip
    assert greedy[0].tolist() == first[0].tolist()
    written_ns = (store.folder / "own" / "code-0000.npy").stat().st_mtime_ns
    assert np.array_equal(texts.batch("code", 0), first)
    assert (store.folder / "own" / "code-0000.npy").stat().st_mtime_ns == written_ns
    again = OwnTexts(model, store.train, store.folder / "anew", SHORT)
    assert np.array_equal(again.batch("code", 1), texts.batch("code", 1))
    assert texts.prefix(1) == 10 and not np.array_equal(texts.batch("code", 1)[:, :6], first[:, :6])


def test_a_stored_batch_of_another_shape_is_refused(store: TokenStore) -> None:
    model = fresh(store, 0, 1)
    OwnTexts(model, store.train, store.folder / "own", SHORT).batch("code", 0)
    other = OwnTexts(model, store.train, store.folder / "own", replace(SHORT, length=30))
    with pytest.raises(ConfigError, match="texts of the same form"):
        other.batch("code", 0)
    (store.folder / "own" / "code-0000.npy").write_bytes(b"half a batch")
    with pytest.raises(ConfigError, match="a batch of texts"):
        other.batch("code", 0)


def test_runs_are_numbers_of_consecutive_agreements() -> None:
    agrees = torch.tensor([[True, True, False, True, True, True]])
    assert runs_of(agrees, 3).tolist() == [[2, 1, 0, 3]]


def test_the_llm_predicts_its_own_texts(store: TokenStore) -> None:
    llm = fresh(store, 0, 1)
    texts = [continue_prefixes(llm, np.zeros((2, 4), np.int64), 40, t, 1) for t in (0.0, 0.8)]
    result = draft_accuracy(llm, llm, texts, 4)
    assert result.agreement == 1.0 and result.overlap == pytest.approx(1.0, abs=1e-5)
    assert result.tokens_per_pass == 1.0 + LONGEST


def test_first_proposals_of_a_pool_are_compared_with_as_many_of_one_ssm(store: TokenStore) -> None:
    llm, one, other = fresh(store, 0, 1), fresh(store, 1, 2), fresh(store, 1, 3)
    texts = [continue_prefixes(llm, np.zeros((2, 4), np.int64), 40, 0.8, 1)]
    alone = coverage(llm, {"one": one}, texts, 4)
    assert alone["union"] == alone["one"]
    result = coverage(llm, {"one": one, "other": other, "llm": llm}, texts, 4)
    assert result["union"] == pytest.approx(1.0), "the pool contains the LLM"
    assert result["one"] >= alone["one"]
    inputs = torch.from_numpy(texts[0][:, :-1].astype(np.int64))
    p, q = (log_probabilities(model, inputs)[:, 3:] for model in (llm, one))
    hits = (q.topk(3).indices == p.argmax(-1, keepdim=True)).any(-1).float().mean()
    assert result["one"] == pytest.approx(float(hits))


def test_distilling_increases_the_overlap_with_the_llm(teach: Callable[..., Any]) -> None:
    (student, _), teaching = teach(60)
    result: Distilled = distil(
        Tuning(student.recipe, student.start, Distillation(teaching.teacher)), teaching
    )
    assert result.trained.num_steps == 60
    for domain, before in result.before.items():
        assert result.after[domain].overlap > before.overlap + 0.02
    assert [line["step"] for line in result.curve] == sorted(line["step"] for line in result.curve)
    assert result.curve and set(result.curve[0]) == {"step", "docs", "code"}
    measured = [
        result.measured,
        *({d: line[d]["measured"] for d in ("docs", "code")} for line in result.curve),
    ]
    assert all(1 <= one[d] <= LONGEST + 1 for one in measured for d in ("docs", "code"))
    folder = teaching.run.store.folder
    assert (folder / "distilled" / "ssm-code" / "tokenizer.json").is_file()


def test_an_interrupted_measurement_of_the_curve_is_repeated(teach: Callable[..., Any]) -> None:
    (student, _), teaching = teach(12)
    tuned = Tuning(student.recipe, student.start, Distillation(teaching.teacher))
    uninterrupted = distil(tuned, teaching)
    shutil.rmtree(teaching.run.store.folder / "runs")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Teaching, "engine_tokens_per_pass", interrupt)
        distil(tuned, teaching)
    _, again = teach(12)
    assert distil(tuned, again).curve == uninterrupted.curve != ()


def test_stored_results_of_finished_ssms_are_not_computed_again(teach: Callable[..., Any]) -> None:
    result, teaching = teach(3)
    pool = [(one.recipe, one.start) for one in result]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(boosting, "coverage", lambda *_: {"union": 0.5, "ssm-code": 0.5})
        first = boost(pool, teaching, "prompts", lambda _: None)
    assert len(first) == 2

    def fail(*_: object) -> None:
        raise AssertionError("a stored result is computed again")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Teaching, "engine_tokens_per_pass", fail)
        patched.setattr(distilling, "accuracy_by_domain", fail)
        patched.setattr(boosting, "coverage", fail)
        patched.setattr(boosting._Drops, "_is_continued", fail)
        _, again = teach(3)
        assert boost(pool, again, "prompts", lambda _: None) == first


def test_distilling_from_cached_distributions_increases_the_overlap(
    teach: Callable[..., Any],
) -> None:
    (student, _), teaching = teach(60)
    teaching = replace(teaching, remembered=480, corpus_tokens=20_000)
    schedule, usual = teaching.of_one_length().preset.schedule, teaching.run.preset.schedule
    assert schedule.context == schedule.late_context == usual.late_context > usual.context
    tuned = Tuning(student.recipe, student.start, Distillation(teaching.teacher))
    result = distil(tuned, teaching)
    assert result.trained.num_steps == 60
    for domain, before in result.before.items():
        assert result.after[domain].overlap > before.overlap + 0.02
    with pytest.raises(ConfigError, match="a checkpoint of the same"):
        distil(tuned, replace(teaching, remembered=8))


def test_a_checkpoint_of_another_teacher_or_start_is_refused(teach: Callable[..., Any]) -> None:
    (one, other), teaching = teach(3)
    loss = Distillation(teaching.teacher)
    distil(Tuning(one.recipe, one.start, loss), teaching)
    with pytest.raises(ConfigError, match="a checkpoint of the same start"):
        distil(Tuning(one.recipe, other.start, loss), teaching)
    assert weights_id(one.start) != weights_id(other.start)


def test_a_start_folder_is_not_overwritten(teach: Callable[..., Any]) -> None:
    (one, _), teaching = teach(3)
    loss = Distillation(teaching.teacher)
    distil(Tuning(one.recipe, one.start, loss), teaching)
    result_folder = teaching.run.store.folder / "distilled" / one.recipe.name
    with pytest.raises(ConfigError, match="ssm is .*another folder than it is to be saved in"):
        distil(Tuning(one.recipe, result_folder, loss), teaching)


def test_a_pool_is_tuned_until_the_union_falls(teach, monkeypatch):
    result, teaching = teach(3)
    unions = iter((0.4, 0.5, 0.5, 0.3))

    def coverage_of_pool(*_: object) -> dict[str, float]:
        return {"union": next(unions), "ssm-code": 0.2}

    monkeypatch.setattr(boosting, "_mean_coverage", coverage_of_pool)
    tuned: list[Tuning] = []

    def distil_recorded(tuning: Tuning, teaching: Teaching) -> Any:
        tuned.append(tuning)
        return distil(tuning, teaching)

    monkeypatch.setattr(boosting, "distil", distil_recorded)
    messages: list[str] = []
    pool = [(one.recipe, one.start) for one in result]
    pool.append((replace(result[0].recipe, name="never tuned"), teaching.llm))
    done = boost(pool, teaching, "positions", messages.append)
    assert [one.kept for one in done] == [True, False]
    assert "40.0% -> 50.0%" in messages[0]
    assert messages[1].endswith("it and those behind it stay as they were")
    kept = teaching.run.store.folder / "boosted"
    saved = [weights_id(kept / recipe.name) for recipe, _ in pool]
    starts = [weights_id(folder) for _, folder in pool]
    assert saved[0] != starts[0] and saved[1:] == starts[1:], "the complete pool is saved"
    assert [one.further["behind"] for one in tuned] == [[], saved[:1]]


def test_texts_that_an_earlier_ssm_continues_like_the_llm_are_dropped(
    teach: Callable[..., Any],
) -> None:
    _, teaching = teach(1)
    texts = OwnTexts(teaching.teacher, teaching.run.store.train, Path("/nowhere"), SHORT)
    greedy = texts._generate_batch("code", 0)
    drops = boosting._Drops((boosting._Member(teaching.teacher, "", NO_CACHE),))
    assert len(drops(greedy, 6)) == 0 and (drops.seen, drops.dropped) == (4, 4)
    other = greedy.copy()
    other[0, -1] = (int(other[0, -1]) + 1) % 512
    assert len(drops(other, 6)) == 1, "one token is not the LLM's"
    nobody = boosting._Drops(())
    assert len(nobody(greedy, 6)) == 4 and nobody.dropped == 0


def test_a_curve_continues_from_the_step_of_a_resumed_run(tmp_path: Path) -> None:
    curve = LearningCurve(tmp_path / "runs" / "curve.jsonl")
    assert curve.lines() == ()
    for step in (10, 20, 30):
        curve.add(step, {"code": step / 100})
    curve.add(20, {"code": 0.9})
    assert [(line["step"], line["code"]) for line in curve.lines()] == [(10, 0.1), (20, 0.9)]


def test_the_commands_distil_and_boost(family: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store, llm, ssms = family
    common = ["--out", store.folder, "--llm", llm, "--ssm", *ssms, "--minutes", "0.005"]
    one_batch = ["--own-batches", "1"]
    assert command.main([str(one) for one in ("distil", *common, *one_batch)]) == 0
    assert " -> " in capsys.readouterr().out
    document = json.loads((store.folder / "distilled.json").read_text("utf-8"))
    assert set(document) == {"ssm-code", "ssm-docs"}
    for way in boosting.WAYS:
        assert command.main([str(one) for one in ("boost", "--by", way, *common, *one_batch)]) == 0
        assert "union " in capsys.readouterr().out
    assert json.loads((store.folder / "boosted.json").read_text("utf-8"))[0]["texts"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["boost", "--ssm", "A"], "ssm is 1: two model folders or more"),
        (["distil", "--ssm", "nowhere"], "ssm is 'nowhere'"),
        (["distil", "--ssm", "A", "--rate", "0"], "rate is 0.0"),
        (["distil", "--ssm", "A", "A"], "folders of different names"),
        (["distil", "--ssm", "A", "--llm", "nowhere"], "llm is 'nowhere'"),
        (["distil", "--ssm", "A", "--own-share", "2"], "own_share is 2.0"),
        (["distil", "--ssm", "A", "--remembered", "-1"], "remembered is -1"),
        (["distil", "--ssm", "A", "--corpus-tokens", "0"], "corpus_tokens is 0"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(family, capsys, arguments: list[str], message: str):
    store, llm, ssms = family
    replaced = [str(ssms[0]) if one == "A" else one for one in arguments]
    common = ["--out", str(store.folder), "--llm", str(llm)]
    assert command.main([replaced[0], *common, *replaced[1:]]) == 2
    stderr = capsys.readouterr().err
    assert message in stderr and stderr.count("\n") == 1


@pytest.mark.parametrize(("way", "run"), [("distil", "distilled"), ("boost", "boosted")])
def test_killed_tuning_continues_from_its_checkpoint(way: str, run: str, family: Any) -> None:
    store, llm, ssms = family
    tuned = ssms if way == "boost" else ssms[:1]
    arguments = [way, "--out", str(store.folder), "--llm", str(llm)]
    arguments += ["--ssm", *map(str, tuned), "--own-batches", "1", "--minutes"]
    checkpoint = store.folder / "runs" / f"{run}-ssm-code" / "checkpoint.pt"
    kill_when(checkpoint.is_file, *arguments, "5")
    killed = torch.load(checkpoint, weights_only=True)
    assert killed["spent"] > 0
    minutes = (killed["spent"] + 0.3) / 60 * len(tuned)
    assert command.main([*arguments, str(minutes)]) == 0
    resumed = torch.load(checkpoint, weights_only=True)
    assert resumed["spent"] >= killed["spent"] + 0.3
    assert resumed["trainer"]["num_steps"] > killed["trainer"]["num_steps"]
