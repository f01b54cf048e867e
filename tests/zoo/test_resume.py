"""A killed command finishes when it is run again, and stored results are reused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from core.engine.engine import Engine
from core.errors import ConfigError
from core.models.loading.gguf_cache import sha256_of
from core.models.loading.load import load_models
from tests.zoo.killing import ROOT, kill_before, kill_when
from tests.zoo.small import SMALL, Killed, saved_model
from zoo import __main__ as command
from zoo import round_times, samples, speedup
from zoo.evaluate import as_json, evaluate_folder, measure, trained_models
from zoo.files import replace_folder
from zoo.learning_curve import LearningCurve
from zoo.models import open_model
from zoo.prepare import DEFAULT_PROMPTS
from zoo.presets import PRESETS
from zoo.result_cache import NO_CACHE, ResultCache
from zoo.round_times import Workload
from zoo.speedup import measure_speedups, prompts_of
from zoo.tokens import TokenStore, open_tokens
from zoo.trainer import new_model

CPU = torch.device("cpu")
LLM, SSM = ROOT / "bundled" / "llm", ROOT / "bundled" / "ssm-dialogue"


def zoo(*arguments: object) -> None:
    assert command.main([str(each) for each in arguments]) == 0


def files(folder: Path) -> dict[str, str]:
    results = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256_of(path) for path in results}


def write_times(folder: Path, pattern: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob(pattern)}


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.fixture
def model(store: TokenStore) -> Path:
    return saved_model(store, 0, seed=1)


def record_calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[object]:
    plain: Callable[..., Any] = getattr(module, name)
    calls: list[object] = []

    def call_recorded(*arguments: Any) -> Any:
        calls.append(arguments)
        return plain(*arguments)

    monkeypatch.setattr(module, name, call_recorded)
    return calls


@pytest.fixture(scope="module")
def reference_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    zoo("prepare", "--preset", "smoke", "--out", out)
    return out


@pytest.fixture(scope="module")
def seeded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests share this folder, so they change only copies."""
    out = tmp_path_factory.mktemp("seeded")
    zoo("prepare", "--preset", "smoke", "--out", out, "--seed", 1)
    return out


@pytest.mark.parametrize("last", ["tokenizer", "code.npy", "manifest.json"])
def test_a_killed_prepare_leaves_no_prepared_folder_and_can_be_repeated(
    last: str, reference_folder: Path, seeded_folder: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(seeded_folder, tmp_path / "out")
    again = ("prepare", "--preset", "smoke", "--out", out)
    kill_before(last, *again)
    with pytest.raises(ConfigError, match="python -m zoo prepare"):
        open_tokens(out)
    zoo(*again)
    assert files(out) == files(reference_folder)


def test_an_evaluation_that_a_kill_interrupted_is_on_the_curve(reference_folder: Path) -> None:
    recipe = PRESETS["smoke"].models[2]
    run = reference_folder / "runs" / recipe.name
    train = ("train", "--out", reference_folder, "--only", recipe.name, "--minutes", "0.05")
    kill_before("curve.jsonl", *train)
    state = torch.load(run / "checkpoint.pt", weights_only=True)["trainer"]
    curve = LearningCurve(run / "curve.jsonl")
    assert curve.lines() == ()
    zoo(*train)
    first, *_ = curve.lines()
    assert first["step"] == state["num_steps"]
    store, preset = open_tokens(reference_folder), PRESETS["smoke"]
    at_kill = new_model(recipe, preset, store.manifest.vocab_size, seed=0)
    at_kill.load_state_dict(state["model"])
    for domain, score in measure(at_kill, store, preset.schedule.context, 2048).items():
        assert first[domain]["loss"] == score.loss


def test_a_killed_evaluation_measures_only_the_rest(model: Path, store: TokenStore) -> None:
    arguments = ("evaluate", "--out", store.folder, "--models", model, "--context", "16")
    kill_before("code/0001.json", *arguments, "--device", "cpu")
    before = write_times(store.folder, "measured/llm-*/*/*.json")
    assert {path.parent.name for path in before} == {"docs", "code"}
    assert not (store.folder / "evaluation.json").exists()
    zoo(*arguments)
    after = write_times(store.folder, "measured/llm-*/*/*.json")
    assert before.items() < after.items(), "existing results are not measured again"
    assert not list(store.folder.rglob("*.partial"))
    alone = as_json({"llm": measure(open_model(model), store, 16)}, 16)
    assert read(store.folder / "evaluation.json") == alone


def test_an_evaluation_is_stored_for_its_weights_alone(model: Path, store: TokenStore) -> None:
    evaluate_folder(model, store, 64, CPU)
    (measured,) = (store.folder / "measured").iterdir()
    new_model(SMALL.models[0], SMALL, store.manifest.vocab_size, seed=2).save_pretrained(model)
    result = evaluate_folder(model, store, 64, CPU)
    assert result == measure(open_model(model), store, 64)
    assert len(list(measured.parent.iterdir())) == 2


def test_an_incomplete_folder_that_a_kill_left_is_no_model(model: Path, store: TokenStore) -> None:
    trained = store.folder / "models" / "llm"
    replace_folder(trained, lambda folder: shutil.copytree(model, folder, dirs_exist_ok=True))
    for unfinished in ("llm.partial", "llm.going"):
        (store.folder / "models" / unfinished).mkdir()
        shutil.copy(model / "config.json", store.folder / "models" / unfinished)
    assert trained_models(store.folder) == [trained]


def test_a_replaced_folder_is_renamed_before_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while files are removed leaves no incomplete folder under the old name."""

    def write(folder: Path) -> None:
        (folder / "a").write_text("1")

    replace_folder(tmp_path / "folder", write)

    def kill(folder: Path, **_: Any) -> None:
        if folder.is_dir():
            assert not (tmp_path / "folder").exists()
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", kill)
        with pytest.raises(Killed):
            replace_folder(tmp_path / "folder", write)
    replace_folder(tmp_path / "folder", write)
    assert files(tmp_path).keys() == {"folder/a"}


def test_a_killed_measurement_of_speedups_continues_after_its_timed_runs(tmp_path, monkeypatch):
    options = ("--llm", LLM, "--ssm", SSM, "--count", 2, "--tokens", 24, "--device", "cpu")
    arguments = ("evaluate", *options, "--out", tmp_path)
    kill_when(lambda: any(tmp_path.glob("worth-*/contest/0-0-1.json")), *arguments)
    cached = list(tmp_path.glob("worth-*/*/*.json"))
    assert not (tmp_path / "worth.json").exists()
    calls, pieces = record_calls(monkeypatch, round_times, "_run"), 2 + 2 + 3 * 2 * 2
    length_calls = record_calls(monkeypatch, speedup, "_best_length")
    zoo(*arguments)
    assert not length_calls, "lengths chosen before the kill are kept"
    assert len(calls) == pieces - len(cached) + 3, (
        "the missing runs and a warm-up of each contestant"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["worth.json"]
    engine = Engine(load_models(str(LLM), [str(SSM)], "auto", "cpu"))
    alone, _ = measure_speedups(
        engine, Workload(prompts_of(DEFAULT_PROMPTS, 2), 24, 0.0, 1), lambda _: None
    )
    resumed = read(tmp_path / "worth.json")["pairs"][0]
    for figure in ("acceptance", "tokens_per_pass"):
        assert resumed[figure] == getattr(alone, figure), "the same rounds"


def test_samples_continue_after_the_stored_ones(tmp_path, monkeypatch, capsys):
    options = ("--domains", "code", "stories", "--count", 3, "--tokens", 40, "--device", "cpu")
    arguments = ("samples", *options, "--out", tmp_path / "killed")
    kill_when(lambda: any(tmp_path.glob("killed/samples-*/0001.json")), *arguments)
    num_cached = len(list(tmp_path.glob("killed/samples-*/*.json")))
    calls = record_calls(monkeypatch, samples, "_generate_sample")
    zoo(*arguments)
    printed = capsys.readouterr().out
    assert len(calls) == 6 - num_cached
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["samples.json"]
    zoo("samples", *options, "--out", tmp_path / "alone")
    assert capsys.readouterr().out == printed
    assert read(tmp_path / "killed" / "samples.json") == read(tmp_path / "alone" / "samples.json")


def test_a_result_is_computed_once_for_each_work(tmp_path: Path) -> None:
    result = iter(range(9))
    first = ResultCache.for_inputs(tmp_path / "work", {"of": 1})
    assert [first.get_or_compute("a", lambda: next(result)) for _ in range(2)] == [0, 0]
    assert first.has("a") and not first.has("b") and not first.subcache("b").has("a")
    assert (
        ResultCache.for_inputs(tmp_path / "work", {"of": 1}).get_or_compute(
            "a", lambda: next(result)
        )
        == 0
    )
    assert (
        ResultCache.for_inputs(tmp_path / "work", {"of": 2}).get_or_compute(
            "a", lambda: next(result)
        )
        == 1
    )
    assert first.subcache("b").get_or_compute("a", lambda: next(result)) == 2
    first.clear()
    assert not first.has("a") and not first.subcache("b").has("a")
    assert [NO_CACHE.get_or_compute("a", lambda: next(result)) for _ in range(2)] == [3, 4]
    assert not NO_CACHE.subcache("b").has("a")


def test_a_damaged_result_file_is_refused(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ConfigError, match=r"out is .*a\.json.*: a result file written by this"):
        cache.get_or_compute("a", int)


def test_an_unreadable_result_file_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("1")

    def refuse(path: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigError, match=r"a file that can be read \(.*Permission denied"):
        ResultCache(tmp_path).get_or_compute("a", int)


def test_results_have_the_types_of_json_with_and_without_a_folder(tmp_path: Path) -> None:
    for cache in (NO_CACHE, ResultCache(tmp_path)):
        assert cache.get_or_compute("a", lambda: (1, {2: 3})) == [1, {"2": 3}]


@pytest.mark.parametrize(
    ("count", "numbers"), [(2, [0, 3]), (4, [0, 1, 3, 4]), (6, [*range(6)]), (9, [*range(6)])]
)
def test_prompts_are_evenly_spaced_in_their_file(
    count: int, numbers: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": str(i)}) + "\n" for i in range(6)))
    assert prompts_of(file, count) == [str(number) for number in numbers]
