"""`python -m core`: its output, its exit codes and its one-line errors."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from core import Engine
from core.__main__ import main
from core.config import PRESETS
from core.errors import EngineBusyError
from core.events import RoundCompleted, RunCompleted, RunStarted, event_from_plain
from core.models.loading import load as loading
from core.models.loading.catalog import bundled_llm, locate
from core.speculation_length.cost_model import ledger
from core.speculation_length.cost_model.verify_costs import measure_verify_costs
from tests.fakes import tiny_module, word_tokenizer
from tests.interrupts import hear_interrupts

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "Once upon a time"
SHORT = ["--prompt", PROMPT, "--max-new-tokens", "12"]


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _loaded_once() -> Iterator[None]:
    loaded_models: dict[tuple[Any, ...], Any] = {}
    load = loading.load_models

    def load_once(
        llm: str, ssms: list[str], dtype: str, device: str, say: Any, *options: Any
    ) -> Any:
        key = (llm, tuple(ssms), dtype, device, *options)
        if key not in loaded_models:
            loaded_models[key] = load(llm, ssms, dtype, device, say, *options)
        return loaded_models[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load_models", load_once)
        patch.setattr(ledger, "measure_verify_costs", cache(measure_verify_costs))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main(SHORT)
        yield


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def result(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    assert err == "" and out.count("\n") == 1
    return json.loads(out)


@pytest.fixture(scope="module")
def tiny_llm(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_module("llama", seed=1, dtype=torch.float32).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)


def test_json_is_one_object_with_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = result(capsys, *SHORT)
    assert {"text", "token_ids", "prompt_token_ids", "summary", "config", "models"} <= parsed.keys()
    assert len(parsed["token_ids"]) == 12
    assert parsed["summary"]["num_new_tokens"] == 12
    assert parsed["summary"]["finish_reason"] == "length"
    assert parsed["summary"]["wall_ms"] > 0
    assert [model["name"] for model in parsed["models"]][0] == "llm"
    ssms = [model["name"] for model in parsed["models"][1:]]
    assert parsed["config"]["speculation"]["drafters"] == [*ssms, "ngram"]
    assert parsed["config"]["speculation"]["length"] == "goodput", "preset `best` is the default"


@pytest.mark.parametrize("prompt", [PROMPT, "def f(x):\n    return", "東京は", "🙂🙂"])
def test_the_text_is_what_decode_adds_to_the_prompt(
    capsys: pytest.CaptureFixture[str], prompt: str
) -> None:
    parsed = result(
        capsys, "--prompt", prompt, "--max-new-tokens", "20", "--temperature", "1.3", "--seed", "4"
    )
    tokenizer = loading.load_tokenizer(locate(str(bundled_llm())))

    def decode(ids: list[int]) -> str:
        return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    before = parsed["prompt_token_ids"]
    assert decode(before) + parsed["text"] == decode(before + parsed["token_ids"])


def test_plain_output_is_the_text_and_a_summary_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, *SHORT)
    assert code == 0
    assert out == result(capsys, *SHORT)["text"] + "\n"
    assert re.fullmatch(
        r"12 tokens in \d+ rounds, \d+\.\d\d tokens per LLM pass, \d+\.\d tokens/s, "
        r"first after \d+ ms, ended by length\n",
        err,
    )


def test_events_are_one_object_a_line_and_can_be_read_back(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, *SHORT, "--events")
    assert (code, err) == (0, "")
    events = [event_from_plain(json.loads(line)) for line in out.splitlines()]
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunCompleted)
    assert [event.seq for event in events] == list(range(len(events)))
    ids = [t for event in events if isinstance(event, RoundCompleted) for t in event.token_ids]
    assert ids == result(capsys, *SHORT)["token_ids"]


@pytest.mark.parametrize("preset", ["autoregressive", "sequence", "specinfer-paper"])
def test_every_preset_writes_the_same_text(capsys: pytest.CaptureFixture[str], preset: str) -> None:
    parsed = result(capsys, *SHORT, "--preset", preset)
    assert parsed["token_ids"] == result(capsys, *SHORT)["token_ids"]
    assert (parsed["config"]["speculation"]["drafters"] == []) == (preset == "autoregressive")


def test_fields_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = result(
        capsys, *SHORT, "--temperature", "0.8", "--top-k", "20", "--top-p", "0.9", "--seed", "5",
        "--stop", "zzzz", "--ignore-eos", "--min-p", "0.05", "--repetition-penalty", "1.2",
            "--set", "expansion=2,1", "--set", "drafters=ngram",
        "--set", "speculation_length = 3", "--set", "max_tree_nodes=uncut",
    )  # fmt: skip
    speculation, sampling = parsed["config"]["speculation"], parsed["config"]["sampling"]
    assert speculation["expansion"] == [2, 1]
    assert (speculation["drafters"], speculation["speculation_length"]) == (["ngram"], 3)
    assert sampling == {
        "max_new_tokens": 12, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 5,
        "stop": ["zzzz"], "ignore_eos": True, "min_p": 0.05, "repetition_penalty": 1.2,
    }  # fmt: skip


def test_prompts_may_come_from_files_and_standard_input(capsys, tmp_path, monkeypatch):
    expected = result(capsys, *SHORT)["token_ids"]
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT, encoding="utf-8")
    rest = ["--max-new-tokens", "12"]
    assert result(capsys, "--prompt-file", str(file), *rest)["token_ids"] == expected
    for mark in ("", "\ufeff"):
        file.write_text(mark + PROMPT, encoding="utf-8")
        assert result(capsys, "--prompt-file", str(file), *rest)["token_ids"] == expected
        monkeypatch.setattr(sys, "stdin", io.StringIO(mark + PROMPT))
        assert result(capsys, "--prompt-file", "-", *rest)["token_ids"] == expected


def test_a_model_without_ssms_decodes_plainly(capsys: pytest.CaptureFixture[str], tiny_llm: str):
    parsed = result(capsys, "--prompt", "w1 w2", "--llm", tiny_llm, "--max-new-tokens", "5")
    assert len(parsed["models"]) == 1
    assert parsed["config"]["speculation"]["drafters"] == []
    assert parsed["warnings"] == ["no drafters: this is plain decoding"]


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "autoregressive"])
def test_a_preset_without_ssms_drafts_from_texts(capsys, tiny_llm: str, preset: str) -> None:
    parsed = result(capsys, "--prompt", "w1 w2 w1 w2", "--llm", tiny_llm, "--preset", preset,
                  "--max-new-tokens", "20")  # fmt: skip
    assert set(parsed["config"]["speculation"]["drafters"]) <= {"suffix", "table"}
    plain = result(capsys, "--prompt", "w1 w2 w1 w2", "--llm", tiny_llm, "--max-new-tokens", "20")
    assert parsed["text"] == plain["text"]


def test_ngram_needs_no_ssm(capsys: pytest.CaptureFixture[str], tiny_llm: str) -> None:
    arguments = ["--prompt", "w1 w2 w1", "--llm", tiny_llm, "--max-new-tokens", "5"]
    parsed = result(capsys, *arguments, "--preset", "specinfer", "--set", "drafters=ngram")
    assert parsed["token_ids"] == result(capsys, *arguments)["token_ids"]


def test_given_ssms_are_used(capsys: pytest.CaptureFixture[str], tiny_llm: str) -> None:
    parsed = result(
        capsys,
        "--prompt",
        "w1 w2",
        "--llm",
        tiny_llm,
        "--ssm",
        tiny_llm,
        tiny_llm,
        "--max-new-tokens",
        "9",
    )
    assert [model["name"] for model in parsed["models"]] == ["tiny", "tiny", "tiny-2"]
    assert parsed["summary"]["num_accepted_tokens"] > 0


X = ["--prompt", "x"]
BAD: list[tuple[list[str], str]] = [
    ([], "prompt is None: it must be one of --prompt, --prompt-file and --chat"),
    (["--prompt", ""], "prompt is '': it must be a text with at least one visible character"),
    ([*X, "--max-new-tokens", "0"], "max_new_tokens is 0: it must be a whole number from 1"),
    ([*X, "--max-new-tokens", "many"], "max_new_tokens is 'many': it must be a whole number"),
    ([*X, "--temperature", "hot"], "temperature is 'hot': it must be a number"),
    (
        [*X, "--temperature", "nan"],
        "temperature is nan: it must be 0 or a number from 0.001 to 100",
    ),
    (
        [*X, "--temperature", "-1"],
        "temperature is -1.0: it must be 0 or a number from 0.001 to 100",
    ),
    ([*X, "--top-p", "1.5"], "top_p is 1.5: it must be a number above 0 to 1"),
    ([*X, "--top-k", "-2"], "top_k is -2: it must be a whole number from 0"),
    ([*X, "--seed", "-1"], "seed is -1: it must be a whole number from 0"),
    ([*X, "--preset", "fastest"], "preset is 'fastest': it must be one of autoregressive, "),
    ([*X, "--set", "draft"], "--set is 'draft': FIELD=VALUE"),
    ([*X, "--set", "speed=3"], "field is 'speed': it must be one of "),
    ([*X, "--set", "draft=wild"], "draft is 'wild': it must be one of auto, topk"),
    ([*X, "--set", "verify=mss"], "lossless choices are auto, greedy, match"),
    ([*X, "--set", "drafters=nobody"], "drafters is 'nobody': it must be one of all, first, ssm-"),
    ([*X, "--chat"], "chat is True: it must be false, since llm has no chat template"),
    ([*X, "--dtype", "float8"], "dtype is 'float8': it must be one of auto, float32, bfloat16"),
    ([*X, "--device", "tpu"], "device is 'tpu': it must be one of auto, cpu, cuda"),
    ([*X, "--threads", "0"], "threads is 0: it must be a whole number from 1"),
    ([*X, "--llm", "./nowhere"], "no such folder"),
    (["--prompt", "x " * 2000], "the context of llm is 1024 tokens"),
    (
        ["--prompt-file", "/nowhere/at.all"],
        "--prompt-file is '/nowhere/at.all': it must be a UTF-8 text file",
    ),
    ([*X, "--json", "--events"], "not allowed with argument"),
    ([*X, "--nonsense"], "unrecognized arguments: --nonsense"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_ends_with_one_line_and_code_2(capsys, arguments: list[str], message: str):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")


def test_a_prompt_file_that_is_no_text_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe\x00")
    code, _, err = run(capsys, "--prompt-file", str(file))
    assert code == 2 and "a UTF-8 text file" in err


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (EngineBusyError("busy"), 1)]
)
def test_other_errors_have_their_exit_codes(monkeypatch, error: BaseException, code: int):
    def failing(self: Engine, request: object) -> Iterator[object]:
        raise error
        yield

    monkeypatch.setattr(Engine, "generate", failing)
    assert main(SHORT) == code


# The events of 100 tokens fill a pipe: a run whose output is not read cannot end before a signal
# arrives.
UNREAD = ("--prompt", "w1 w2", "--max-new-tokens", "100", "--events", "--dtype", "float32")


def process(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "core", *arguments], cwd=ROOT, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts,
    )  # fmt: skip


@pytest.mark.nightly
def test_an_interrupt_ends_with_130_and_no_traceback(tiny_llm: str) -> None:
    running = process(*UNREAD, "--llm", tiny_llm)
    for _ in range(9):
        assert running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in err


@pytest.mark.nightly
def test_a_closed_pipe_is_no_error(tiny_llm: str) -> None:
    running = process(*UNREAD, "--llm", tiny_llm)
    assert running.stdout is not None and running.stderr is not None
    assert running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=60) == 0
    assert "Traceback" not in running.stderr.read()
    running.stderr.close()


@pytest.mark.nightly
def test_a_wrong_argument_is_reported_before_anything_is_loaded() -> None:
    running = process("--prompt", "x", "--temperature", "-1")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (2, "")
    assert err == "error: temperature is -1.0: it must be 0 or a number from 0.001 to 100\n"
