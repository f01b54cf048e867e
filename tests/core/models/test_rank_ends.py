"""Faults of ranks and leaders."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.config.ranks import RankSplit, ranks_of
from core.errors import ConfigError, RankError
from core.models.ranks import leader, processes
from core.models.ranks.leader import RankedModel
from core.models.ranks.rendezvous import env_rendezvous
from tests.core.engines import ids_of_events, texts_of
from tests.core.models.forked_ranks import forked_ranks
from tests.core.models.over_ranks import all_end, is_running, pids_of
from tests.fakes import tiny_module, word_tokenizer
from tests.interrupts import hear_interrupts

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).resolve().parents[3]
# Arguments of `python -m core` for a tiny LLM over ranks.
SPLIT = ("--llm-ranks", "tp=2", "--dtype", "float32", "--prompt", "w1 w2", "--events")
TIMEOUT_S = 3.0
BUSY_S = 8.0  # for a busy machine


@pytest.fixture(scope="module")
def llm_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Made before a test replaces `tempfile.tempdir`: importing transformers leaves files there."""
    folder = str(tmp_path_factory.mktemp("llm"))
    tiny_module("llama", 3, torch.float32, num_key_value_heads=2).save_pretrained(folder)
    word_tokenizer(64).save_pretrained(folder)
    return folder


# -- ranks that do not start: tests that run before the fixture `tiny` is made --


def test_a_rank_that_stops_while_it_loads_is_an_error(
    llm_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOADING_S", 1.0)
    started, start = list[subprocess.Popen[bytes]](), processes._start

    def start_stopped(*args: Any) -> subprocess.Popen[bytes]:
        started.append(start(*args))
        started[-1].send_signal(signal.SIGSTOP)
        return started[-1]

    monkeypatch.setattr(processes, "_start", start_stopped)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RankError, match="rank 1 of the LLM did not load its part within 1 s"):
        load_models(llm_folder, [], "float32", "cpu", ranks=ranks_of("tp=2"))
    assert all_end([started[0].pid], BUSY_S) and not list(tmp_path.iterdir())


def test_ranks_that_cannot_be_started_leave_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: Any) -> subprocess.Popen[bytes]:
        raise OSError("no process")

    monkeypatch.setattr(processes, "_start", failing)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="no process"):
        processes.Followers(ranks_of("tp=2") or RankSplit("tp", 2))
    assert not list(tmp_path.iterdir())


# -- ranks that end or do not answer --


@pytest.fixture(scope="module")
def tiny(llm_folder: str) -> Iterator[LoadedModels]:
    """While this LLM exists, this process may have no other LLM over ranks."""
    with pytest.MonkeyPatch.context() as patch, forked_ranks():
        short = partial(leader.load_ranked, timeout_s=TIMEOUT_S)
        patch.setattr(leader, "load_ranked", short)
        models = load_models(llm_folder, [], "float32", "cpu", ranks=ranks_of("tp=2"))
        model: Any = models.llm
        yield models
        model.close()
    assert all_end(pids_of(model), 1.0)


def request(tokens: int = 24) -> Request:
    plain = SpeculationConfig.preset("autoregressive")
    return Request("w", SamplingParams(tokens), plain, prompt_token_ids=(3, 9, 27, 17))


@pytest.mark.parametrize(
    ("sent", "within_s", "message"),
    [
        (signal.SIGKILL, 2.0, r"rank 1 of the LLM \(process \d+\) has ended by signal 9"),
        (signal.SIGSTOP, TIMEOUT_S + 2.0, "a rank of the LLM among 1 did not answer in time"),
    ],
)
def test_a_run_fails_with_a_rank_and_the_next_run_works(
    tiny: LoadedModels, sent: int, within_s: float, message: str
) -> None:
    engine, model = Engine(tiny), tiny.llm
    assert isinstance(model, RankedModel)
    expected = ids_of_events(engine.generate(request()))
    (pid,) = pids_of(model)
    events = engine.generate(request())
    for _ in range(9):  # the run's start, two rounds
        next(events)
    os.kill(pid, sent)
    began = time.monotonic()
    with pytest.raises(RankError, match=message):
        list(events)
    assert time.monotonic() - began < within_s
    assert all_end([pid], 1.0)
    assert ids_of_events(engine.generate(request())) == expected  # over new ranks
    assert pids_of(model) != [pid]


def test_all_requests_of_a_pass_fail_with_a_rank_and_the_next_one_works(tiny: LoadedModels) -> None:
    engine, model = Engine(tiny), tiny.llm
    assert isinstance(model, RankedModel)
    expected = texts_of(engine.generate_many([request()]))
    events = engine.generate_many([request(), replace(request(), prompt_token_ids=(5, 6))])
    received = [next(events) for _ in range(6)]
    os.kill(pids_of(model)[0], signal.SIGKILL)
    received += list(events)
    failed = [event for event in received if type(event).__name__ == "RunFailed"]
    assert len(failed) == 2 and all("rank 1" in e.message for e in failed)  # type: ignore[union-attr]
    assert texts_of(engine.generate_many([request()])) == expected


def test_ranks_may_idle_for_longer_than_a_collective_may_take(tiny: LoadedModels) -> None:
    engine = Engine(tiny)
    expected = ids_of_events(engine.generate(request()))
    time.sleep(TIMEOUT_S + 1.0)
    assert ids_of_events(engine.generate(request())) == expected


# -- the leader's end --


def children_of(pid: int) -> list[int]:
    result = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in result]


@pytest.mark.parametrize("call", ["OpenRow", "RunPass", "CommitRow", "CloseRow", "collective"])
def test_after_an_interrupt_the_next_texts_are_right(
    tiny: LoadedModels, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """If the ranks kept running after an interrupt, texts would be wrong without an error."""
    engine, model = Engine(tiny), tiny.llm
    assert isinstance(model, RankedModel)
    expected = ids_of_events(engine.generate(request()))
    calls = [0]

    def interrupt() -> None:
        calls[0] += 1
        # A run sends OpenRow and CloseRow only once.
        if calls[0] == (1 if call in ("OpenRow", "CloseRow") else 3):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if call == "collective":
            group: Any = model._running.group
            count_collective = group.count_collective
            patch.setattr(
                group, "count_collective", lambda *args: (count_collective(*args), interrupt())
            )
        else:
            send = model._send

            def send_then_interrupt(message: Any) -> None:
                send(message)
                if type(message).__name__ == call:
                    interrupt()

            patch.setattr(model, "_send", send_then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(engine.generate(request()))
    for _ in range(2):
        assert ids_of_events(engine.generate(request())) == expected
    assert all(row is None for row in model._rows)


# The events of 100 tokens fill a pipe: a run whose output is not read cannot end before a signal
# arrives.
UNREAD = "100"


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])  # SIGTERM acts like SIGKILL
def test_no_rank_outlives_the_leader(sent: int, llm_folder: str, tmp_path: Path) -> None:
    command = ["-m", "core", "--llm", llm_folder, *SPLIT, "--max-new-tokens", UNREAD]
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=hear_interrupts,
    )
    try:
        assert process.stdout is not None
        assert '"RunStarted"' in process.stdout.readline()
        (follower,) = children_of(process.pid)
        assert is_running(follower) and list(tmp_path.glob("specscope-ranks-*"))
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert all_end([follower], 10.0)
    assert not list(tmp_path.glob("specscope-ranks-*"))
    if sent == signal.SIGINT:
        assert (process.returncode, errors) == (130, "")


@pytest.mark.parametrize("sent", [None, signal.SIGKILL])
def test_ranks_that_a_person_starts_end_with_the_leader(
    sent: int | None, llm_folder: str, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    variables["TMPDIR"] = str(tmp_path)
    tokens = "8" if sent is None else UNREAD
    leader_command = ("core", "--llm", llm_folder, *SPLIT, "--max-new-tokens", tokens)
    started_ranks = [
        subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env={**os.environ, **variables, "RANK": str(rank)},
            stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
            stderr=subprocess.DEVNULL if rank else subprocess.PIPE,
            text=True,
        )
        for rank, words in enumerate((leader_command, ("core.models.ranks",)))
    ]
    try:
        first_rank, follower = started_ranks
        assert first_rank.stdout is not None and '"RunStarted"' in first_rank.stdout.readline()
        assert not children_of(first_rank.pid)
        if sent is not None:
            first_rank.send_signal(sent)
        _, errors = first_rank.communicate(timeout=60)
        if sent is None:
            waits = f"rank 0 of 2 waits at 127.0.0.1:{port}\n"
            assert (first_rank.returncode, errors) == (0, waits)
        assert follower.wait(30) == (0 if sent is None else 1)
        assert not list(tmp_path.glob("specscope-ranks-*"))
    finally:
        for process in started_ranks:
            process.kill()
            process.wait()


def test_ranks_that_a_person_started_are_not_restarted(
    tiny: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, model = Engine(tiny), tiny.llm
    assert isinstance(model, RankedModel)
    monkeypatch.setattr(model._running.followers, "local", False)
    events = engine.generate(request())
    next(events)
    os.kill(pids_of(model)[0], signal.SIGKILL)
    with pytest.raises(RankError):
        list(events)
    with pytest.raises(RankError, match="end all ranks and start them anew"):
        list(engine.generate(request()))


def test_the_engine_is_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="RANK is '1': 0 for the process with the engine"):
        env_rendezvous(RankSplit("tp", 2))


RANKS_BY_HAND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("RANK", "x", "a whole number from 0 to 1"),
        ("RANK", "2", "a whole number from 0 to 1"),
        ("WORLD_SIZE", "1", "a whole number from 2"),
        ("MASTER_PORT", "zz", "a whole number from 1 to 65535"),
        ("MASTER_ADDR", "192.0.2.1", "an address of rank 0's machine"),
        ("MASTER_ADDR", "no.host.invalid", "an address of rank 0's machine"),
    ],
)
def test_a_wrong_variable_of_a_rank_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    for name, given in (RANKS_BY_HAND | {variable: value}).items():
        monkeypatch.setenv(name, given)
    with pytest.raises(ConfigError, match=f"{variable} is '{value}': {allowed}"):
        env_rendezvous()


def test_a_port_in_use_is_reported_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        variables = RANKS_BY_HAND | {"MASTER_PORT": str(taken.getsockname()[1])}
        ended = subprocess.run(
            [sys.executable, "-m", "core.models.ranks"],
            env={**os.environ, **variables},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    (message,) = (line for line in ended.stderr.splitlines() if line.startswith("error: "))
    assert f":{variables['MASTER_PORT']}: the 2 ranks do not meet there" in message
