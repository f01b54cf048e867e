"""GGUF files as models, and the cache of their dequantized weights."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.errors import ConfigError, ModelLoadError, VocabMismatchError
from core.events.outcome import Outcome
from core.models.loading import gguf_cache, gguf_header
from core.models.loading.catalog import shown_name
from core.models.loading.finding import find_folder
from core.models.loading.gguf_cache import dequantize_file, narrow_exactly
from core.models.loading.placing import need_of
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.core.models.gguf_files import TEMPLATE, TOKENS, module_of, write_model

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(gguf_cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def q8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = write_model(tmp_path_factory.mktemp("gguf") / "tiny.Q8_0.gguf", "Q8_0")
    by_transformers(file)  # imports transformers' modules here, not in the first test
    return file


def ignore(_: str) -> None:
    """Ignores a reported stage."""


def by_transformers(file: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )


def text_of(models: Any, prompt: str, count: int = 24) -> list[int]:
    sampling = SamplingParams(max_new_tokens=count, ignore_eos=True)
    outcome = Outcome()
    config = SpeculationConfig.preset("autoregressive")
    for event in Engine(models).generate(Request(prompt, sampling, config)):
        outcome.observe(event)
    return list(outcome.token_ids)


# -- what is loaded --


@pytest.mark.usefixtures("q8")
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    file = write_model(tmp_path / f"tiny.{kind}.gguf", kind)
    theirs = by_transformers(file)
    ours = load_models(str(file), [])
    stored = load_file(Path(find_folder(str(file))) / gguf_cache.WEIGHTS)
    for name, weight in theirs.state_dict().items():
        assert torch.equal(stored[name].float(), weight), name
    narrow = {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32)
    assert stored["model.layers.0.mlp.up_proj.weight"].dtype == narrow
    prompt = "the theatre at the end"
    ids = torch.tensor([ours.tokenizer(prompt)["input_ids"]])
    expected_ids = theirs.generate(ids, do_sample=False, max_new_tokens=24, eos_token_id=None)
    assert text_of(ours, prompt) == expected_ids[0, ids.shape[1] :].tolist()


def test_tokenizer_and_settings_come_from_the_file(q8: Path) -> None:
    models = load_models(str(q8), [])
    assert models.llm.info.name == "tiny.Q8_0" and models.eos_ids == (2,)
    assert models.llm.vocab_size == len(TOKENS) and models.warnings == ()
    theirs = AutoTokenizer.from_pretrained(q8.parent, gguf_file=q8.name)
    for text in ("the cat, 1234 naïve", "<|im_start|>user the<|im_end|>", "  日本\n\tthe"):
        assert models.tokenizer(text)["input_ids"] == theirs(text)["input_ids"]
        assert models.tokenizer.decode(theirs(text)["input_ids"]) == text
    assert models.tokenizer.chat_template == theirs.chat_template == TEMPLATE


def test_other_files_in_its_folder_are_not_read(q8: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(q8, tmp_path / "mine.gguf"))
    settings = {"chat_template": "another", "added_tokens_decoder": {}, "eos_token": "t"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "chat_template.jinja").write_text("another")
    (tmp_path / "config.json").write_text("{}")
    models = load_models(str(file), [])
    assert models.tokenizer.chat_template == TEMPLATE and models.tokenizer.eos_token_id == 2


def test_a_tied_head_is_stored_once(tmp_path: Path) -> None:
    file = write_model(tmp_path / "tied.gguf", "F16", module_of(tie_word_embeddings=True))
    models = load_models(str(file), [])
    assert "lm_head.weight" not in load_file(Path(find_folder(str(file))) / gguf_cache.WEIGHTS)
    assert torch.equal(models.llm._module.lm_head.weight, by_transformers(file).lm_head.weight)


def test_a_gguf_file_may_be_an_ssm_and_in_bfloat16(q8: Path, tmp_path: Path) -> None:
    small = write_model(tmp_path / "small.gguf", "Q4_0", module_of(7, num_hidden_layers=1))
    models = load_models(str(q8), [str(small)], dtype="bfloat16")
    assert models.drafter_names == ("small",)
    assert {info.dtype for info in models.infos} == {"bfloat16"}
    refusal_of(VocabMismatchError, q8, save_tiny_model(tmp_path / "words"))


def test_tensors_that_transformers_leaves_out_are_a_warning(tmp_path: Path) -> None:
    extra = {gguf_cache.SCALED_ROPE: torch.ones(8)}
    file = write_model(tmp_path / "scaled.gguf", extra=extra)
    for _ in range(2):  # the second time from the cache
        (warning,) = load_models(str(file), []).warnings
        assert "transformers reads 8 of the " in warning and gguf_cache.SCALED_ROPE in warning


def test_values_are_narrowed_only_where_none_changes() -> None:
    exact = torch.tensor([1.0, -0.5, 0.0])
    assert narrow_exactly(exact).dtype == torch.bfloat16
    assert narrow_exactly(exact + 2**-10).dtype == torch.float16
    assert narrow_exactly(exact + 2**-20).dtype == torch.float32
    assert narrow_exactly(torch.tensor([70000.0 + 1 / 64])).dtype == torch.float32
    assert narrow_exactly(torch.tensor([float("nan")])).dtype == torch.float32


def test_the_memory_need_is_read_from_the_header(q8: Path, cache: Path) -> None:
    need = need_of(str(q8), "auto", torch.device("cpu"))
    count = sum(weight.numel() for weight in module_of().parameters())
    assert (need.parameters, need.bytes, need.dtype, need.here) == (count, 4 * count, "float32", 1)
    assert need_of(str(q8), "bfloat16", torch.device("cpu")).bytes == 2 * count
    assert not cache.exists()


# -- the cache --


def test_a_file_is_dequantized_once(
    q8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    folder = dequantize_file(q8, messages.append)
    shares = [stage for stage in messages if stage.startswith("dequantizing ")]
    assert len(shares) > 5 and "reading the GGUF file's tokenizer" in messages
    monkeypatch.setattr(gguf_cache, "_dequantize", None)
    # The same file under another name has the same cache entry.
    messages.clear()
    assert dequantize_file(Path(shutil.copy(q8, tmp_path / "other")), messages.append) == folder
    assert messages == ["hashing the GGUF file"]


@pytest.mark.parametrize("damage", ["cut", "gone", "changed", "record", "leftover"])
def test_an_incomplete_entry_is_written_anew(q8: Path, damage: str) -> None:
    folder = dequantize_file(q8, ignore)
    weights, tokenizer = folder / gguf_cache.WEIGHTS, folder / "tokenizer.json"
    record = folder / gguf_cache.RECORD
    before = {path.name: path.read_bytes() for path in (weights, tokenizer, record)}
    if damage == "cut":
        weights.write_bytes(before[weights.name][:-1])
    elif damage == "gone":
        tokenizer.unlink()
    elif damage == "changed":
        tokenizer.write_bytes(before[tokenizer.name].replace(b"t", b"u"))
    elif damage == "record":
        record.write_text("[1")
    else:
        folder.parent.rename(folder.parent.with_suffix(".part"))  # as after a kill
    assert dequantize_file(q8, ignore) == folder
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert not list(folder.parent.parent.glob("*.part"))


def test_an_entry_is_synced_before_it_is_renamed(q8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    before: set[int] = set()
    real_sync, real_rename = os.fsync, Path.rename

    def sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real_sync(descriptor)

    def rename(path: Path, target: Path) -> Path:
        before.update(synced)
        return real_rename(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    folder = dequantize_file(q8, ignore)
    assert {path.stat().st_ino for path in (folder.parent, folder, *folder.iterdir())} <= before
    assert folder.parents[1].stat().st_ino in synced - before


def test_installations_of_other_versions_share_the_cache(
    q8: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = dequantize_file(q8, ignore)
    with monkeypatch.context() as patched:
        patched.setattr(gguf_cache, "FORMAT", 0)
        assert dequantize_file(q8, ignore) != ours
    monkeypatch.setattr(gguf_cache, "_dequantize", None)
    assert dequantize_file(q8, ignore) == ours


def test_an_entry_of_other_versions_is_removed_after_a_month_without_use(
    q8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file_of_version(file: Path, version: int) -> Path:
        monkeypatch.setattr(gguf_cache, "FORMAT", version)
        return dequantize_file(file, ignore)

    def leave_unused(*folders: Path) -> None:
        for folder in folders:
            long_ago = time.time() - gguf_cache.UNUSED_S - 60
            os.utime(folder / gguf_cache.RECORD, (long_ago, long_ago))

    other_file = write_model(tmp_path / "other.gguf", "F16")
    old, used, recent, other = (
        file_of_version(file, version)
        for file, version in ((q8, 1), (q8, 2), (q8, 3), (other_file, 1))
    )
    leave_unused(old, used, other)
    assert file_of_version(q8, 2) == used  # used now
    new = file_of_version(q8, 4)
    assert not old.parent.exists()
    assert all(folder.is_dir() for folder in (used, recent, other, new))


def test_a_file_that_changes_while_it_is_dequantized_is_not_cached(
    q8: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copy(q8, tmp_path / "mine.gguf"))

    def overwrite(stage: str) -> None:
        if stage.startswith("writing"):
            with file.open("r+b") as opened:
                opened.seek(-1, os.SEEK_END)
                opened.write(b"x")

    with pytest.raises(ModelLoadError, match="it changed while it was dequantized"):
        dequantize_file(file, overwrite)
    assert dequantize_file(file, ignore).name == "mine"


@pytest.mark.parametrize("name", [".gguf", "..gguf", "...gguf"])
def test_a_file_may_be_named_only_by_its_suffix(q8: Path, tmp_path: Path, name: str) -> None:
    file = Path(shutil.copy(q8, tmp_path / name))
    folder = dequantize_file(file, ignore)
    assert (folder / gguf_cache.WEIGHTS).is_file() and dequantize_file(file, ignore) == folder
    assert folder.name == shown_name(str(file)) == name


def test_giving_up_leaves_no_files(q8: Path, cache: Path) -> None:
    def stop(stage: str) -> None:
        if "dequantizing" in stage:
            raise ConfigError("given up")

    with pytest.raises(ConfigError, match="given up"):
        load_models(str(q8), [], say=stop)
    assert [path.suffix for path in (cache / "gguf").iterdir()] == [".lock"]
    load_models(str(q8), [])


KILLED = """
import os, signal, sys
from pathlib import Path
from core.models.loading.gguf_cache import dequantize_file

def say(stage):
    if stage.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

dequantize_file(Path(sys.argv[1]), say)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("stage", ["dequantizing 5", "writing"])
def test_after_a_kill_the_entry_is_written_anew(q8: Path, cache: Path, stage: str) -> None:
    command = [sys.executable, "-c", KILLED, str(q8), stage]
    killed = subprocess.run(command, cwd=ROOT, check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    (leftover,) = (cache / "gguf").glob("*.part")
    folder = dequantize_file(q8, ignore)
    assert not leftover.exists() and gguf_cache.CACHE_VARIABLE in os.environ
    assert json.loads((folder / gguf_cache.RECORD).read_text())["file"] == q8.name


def test_leftovers_of_other_files_are_removed(q8: Path, cache: Path) -> None:
    leftover, locked = (cache / "gguf" / f"{letter * 64}.part" for letter in "ab")
    for part in (leftover, locked):
        (part / "tiny").mkdir(parents=True)
    with gguf_cache.FileLock(locked.with_suffix(".lock")):
        dequantize_file(q8, ignore)
        assert locked.exists() and not leftover.exists()


def test_another_process_is_waited_for(q8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_cache, "LOCK_POLL_S", 0.01)
    folder = dequantize_file(q8, ignore)
    shutil.rmtree(folder)
    other_lock = gguf_cache.FileLock(folder.parent.with_suffix(".lock"))
    other_lock.acquire()
    stages: list[str] = []

    def say(stage: str) -> None:
        stages.append(stage)
        if len(stages) == 4:
            other_lock.release()

    assert dequantize_file(q8, say) == folder
    waiting = "waiting for another process that dequantizes it"
    assert stages[:4] == ["hashing the GGUF file", waiting, waiting, waiting]


def test_a_cache_that_cannot_be_written_is_refused(q8: Path, cache: Path) -> None:
    cache.write_text("a file where the folder is to be")
    message = refusal_of(ModelLoadError, q8)
    assert "cannot be dequantized into" in message and gguf_cache.CACHE_VARIABLE in message


def test_a_file_system_without_locks_is_refused(
    q8: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acquire(*_: object, **__: object) -> None:
        raise NotImplementedError("use SoftFileLock instead")  # filelock 3 raises this

    monkeypatch.setattr(gguf_cache.FileLock, "acquire", acquire)
    (cache / "gguf" / "left.part").mkdir(parents=True)
    message = refusal_of(ModelLoadError, q8)
    assert "(use SoftFileLock instead)" in message and gguf_cache.CACHE_VARIABLE in message


@pytest.mark.parametrize("limit", [1 << 9, 1 << 15], ids=["tokenizer", "weights"])
def test_a_disk_that_fills_up_is_reported(q8: Path, cache: Path, limit: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def say(stage: str) -> None:
        if stage.startswith("writing"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

    try:
        with pytest.raises(
            ModelLoadError, match=r"dequantized into .*File too large.*; SPECSCOPE_"
        ):
            dequantize_file(q8, say)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.suffix for path in (cache / "gguf").iterdir()] == [".lock"]


def test_a_disk_that_cannot_be_read_is_reported(q8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_disk(file: Path) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(gguf_cache, "sha256_of", broken_disk)
    message = refusal_of(ModelLoadError, q8)
    assert "it cannot be read" in message and gguf_cache.CACHE_VARIABLE not in message


def test_too_little_memory_is_refused(q8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_cache, "available_bytes", lambda _: 10_240)
    with pytest.raises(gguf_cache.OutOfMemoryError, match=r"10 KiB are free in memory; choose"):
        dequantize_file(q8, ignore)


def test_a_file_too_large_for_memory_is_not_hashed(
    q8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing a large file takes minutes."""
    folder, messages = dequantize_file(q8, ignore), list[str]()
    monkeypatch.setattr(gguf_cache, "available_bytes", lambda _: 10_240)
    assert dequantize_file(q8, ignore) == folder
    with pytest.raises(gguf_cache.OutOfMemoryError, match=r"10 KiB are free in memory; choose"):
        dequantize_file(write_model(tmp_path / "other.gguf", "F16"), messages.append)
    assert not messages


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_dequantizing_needs_memory_besides_the_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the largest tensor is dequantized and narrowed, each of its values takes 12 additional
    bytes."""
    file = write_model(tmp_path / "tiny.gguf", kind)
    sizes = [weight.numel() for weight in module_of().parameters()]
    enough = 4 * sum(sizes) + 12 * max(sizes)
    monkeypatch.setattr(gguf_cache, "available_bytes", lambda _: enough - 1)
    with pytest.raises(gguf_cache.OutOfMemoryError, match="are free in memory; choose"):
        dequantize_file(file, ignore)
    monkeypatch.setattr(gguf_cache, "available_bytes", lambda _: enough)
    dequantize_file(file, ignore)


def test_no_weight_is_in_memory_twice() -> None:
    module = module_of(tie_word_embeddings=True).half().float()
    large = {name: weight.data_ptr() for name, weight in module.named_parameters()}
    weights = gguf_cache._exact_weights(module)
    assert weights.keys() == large.keys() and "lm_head.weight" not in weights
    assert module.lm_head.weight is module.model.embed_tokens.weight
    for name, weight in module.named_parameters():
        assert weight.data_ptr() == weights[name].data_ptr() != large[name], name
        assert weight.element_size() == 2


def test_missing_packages_are_named(q8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "PACKAGES", ("gguf", "no_such_package"))
    message = refusal_of(ModelLoadError, q8)
    assert "no_such_package, which is not installed here" in message
    assert message.endswith("pip install gguf no_such_package")
