"""Models in a process of their own: they answer as here, and nothing of them stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from core.drafters.base import Ask, Draft, Drafts
from core.drafters.child import Desk
from core.drafters.process import IDLE_LOOKS, DraftingProcess, Toil, process_helps
from core.drafters.remote import RemoteStudio
from core.drafters.studio import Studio
from core.drafters.wire import Wire
from core.errors import DrafterError, EngineError
from core.models.hf_model import HfModel
from core.models.language_model import LanguageModel
from core.models.tree_check import checked_model
from core.noise import SeededNoise
from core.sequence import Sequence
from tests.fakes import VOCAB, TableModel, info_of, random_table, sequence_of, tiny_module

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the process needs Linux"),
]
ROOT_FOLDER = Path(__file__).parents[3]
SOON = 60.0


@cache
def models() -> dict[str, LanguageModel]:
    found: dict[str, LanguageModel] = {}
    for i, family in enumerate(("llama", "gpt2")):
        module = tiny_module(family, seed=i)
        found[family] = checked_model(module, info_of(module, family, context=128))
    return found


def child_of(process: DraftingProcess) -> subprocess.Popen[bytes]:
    assert process.child is not None
    return process.child


def sequence_for(draft: str, verify: str, **fields: Any) -> Sequence:
    greedy = verify == "greedy"
    speculation = SpeculationConfig(
        drafters=("llama", "gpt2"), draft=draft, verify=verify, **fields
    )
    sampling = SamplingParams(30, temperature=0.0 if greedy else 0.9, seed=3)
    noise = SeededNoise(3, VOCAB)
    return sequence_of((1, 2, 3), speculation, sampling, noise, context_length=128)


@pytest.fixture(scope="module")
def process() -> Iterator[DraftingProcess]:
    made = DraftingProcess(models(), VOCAB)
    assert made.wait(SOON), made.error
    yield made
    made.close()


def shown(draft: Draft) -> tuple[object, ...]:
    return draft.token_ids, draft.parents, draft.scores, draft.qs, draft.ranks, draft.rows


CASES = [
    ("topk", "greedy", {}),
    ("coupled", "match", {"record_top_k": 2}),
    ("sampled", "mss", {}),
    ("sampled_iid", "traversal", {"weights": "full_information", "combine": "union"}),
]


def drafted(studio: Studio | RemoteStudio, ask: Ask) -> Draft:
    drafts = studio.draft({ask.name: [ask]})[ask.name]
    assert isinstance(drafts, list)
    return drafts[0]


@pytest.mark.parametrize(("draft", "verify", "fields"), CASES)
def test_it_drafts_as_the_studio_here(
    process: DraftingProcess, draft: str, verify: str, fields: dict[str, Any]
) -> None:
    told: list[list[Any]] = []
    for studio in (Studio(models(), VOCAB), RemoteStudio(process)):
        sequence = sequence_for(draft, verify, **fields)
        told.append([])
        for name in ("llama", "gpt2"):
            studio.open(name, sequence)
        for committed in ((4,), (5, 6), (7,)):
            for index, name in enumerate(("llama", "gpt2")):
                made = drafted(studio, Ask(sequence, index, draft, (2, 1), 9, name))
                assert (made.q is not None) == (verify in ("mss", "traversal"))
                assert made.logits is not None or not fields.get("record_top_k")
                told[-1].append(shown(made))
            sequence.tokens.extend(committed)
            for name in ("llama", "gpt2"):
                studio.commit(name, sequence, made if name == "gpt2" else None, committed)
                told[-1].append(studio.temperature(name, sequence))
        for name in ("llama", "gpt2"):
            studio.close(name, sequence)
    assert told[0] == told[1]


def test_a_sequence_moves_with_what_was_learnt(process: DraftingProcess) -> None:
    here, there = Studio(models(), VOCAB), RemoteStudio(process)
    sequence = sequence_for("topk", "greedy", combine="vote")
    here.open("llama", sequence)
    draft = drafted(here, Ask(sequence, 0, "topk", (1, 1), 4, "llama"))
    sequence.tokens.extend((4, 5))
    here.commit("llama", sequence, draft, (4, 5))
    temperature = here.temperature("llama", sequence)
    assert temperature != 1.0
    there.unpack("llama", sequence, here.pack("llama", sequence))
    assert there.temperature("llama", sequence) == temperature
    heard = there.likelihoods("llama", sequence)
    assert len(heard) > 0 and there.likelihoods("llama", sequence) == []
    moved = drafted(there, Ask(sequence, 0, "topk", (1, 1), 4, "llama"))
    here.unpack("llama", sequence, there.pack("llama", sequence))
    back = drafted(here, Ask(sequence, 0, "topk", (1, 1), 4, "llama"))
    assert shown(moved) == shown(back)
    here.close("llama", sequence)


class Failing(Studio):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def draft(self, asked: object) -> dict[str, Drafts]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("no memory"), ("", "RuntimeError: no memory")),
        (DrafterError("gpt2", ValueError("x")), ("gpt2", "DrafterError: drafter gpt2 failed")),
    ],
)
def test_what_fails_there_is_told_here(error: Exception, told: tuple[str, str]) -> None:
    ours, theirs = Wire.pair()
    with closing(ours), closing(theirs):
        Desk(theirs, Failing(error)).serve("draft", ({},))
        failed, (name, said) = ours.receive()
    assert failed and name == told[0] and said.startswith(told[1])


def test_a_killed_process_is_noticed_and_leaves_nothing() -> None:
    before = set(threading.enumerate())
    process = DraftingProcess(models(), VOCAB)
    assert process.wait(SOON), process.error
    child, studio = child_of(process), RemoteStudio(process)
    sequence = sequence_for("topk", "greedy")
    studio.open("llama", sequence)
    child.kill()
    with pytest.raises(EngineError, match=r"is gone: it ended with status -9"):
        drafted(studio, Ask(sequence, 0, "topk", (1,), 4, "llama"))
    assert not process.ready
    assert studio.pack("llama", sequence).temperature == 1.0
    studio.close("llama", sequence)  # no error: there is nothing to close
    process.close()
    process.close()
    assert not [t for t in threading.enumerate() if t not in before and t.name == "drafting-start"]
    assert not process.wait(0)


def test_closing_while_it_starts() -> None:
    process = DraftingProcess(models(), VOCAB)
    process.close()
    assert process.child is None or process.child.poll() is not None
    assert not process.ready and process.error == "it was closed"


def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent("""
        import time
        from core.drafters.process import DraftingProcess

        process = DraftingProcess({}, 8)  # models would only take time to read
        assert process.wait(60), process.error
        print(process.child.pid, flush=True)
        time.sleep(600)
        """)
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT_FOLDER)}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + SOON
    while alive(pid):
        assert time.monotonic() < end, "the child lives on"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_one_at_work_is_waited_for_and_one_that_does_nothing_given_up(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    toil = Toil(os.getpid())
    assert toil()  # this process has worked
    toil._stat = stat
    for ticks in range(1_000_000, 1_000_000 + 3 * IDLE_LOOKS):
        stat.write_text(f"7 (a) name)) R {'0 ' * 10} {ticks} 3 0 0")
        assert toil()
    assert [toil() for _ in range(IDLE_LOOKS)] == [True] * (IDLE_LOOKS - 1) + [False]
    stat.write_text(f"7 (a) name)) R {'0 ' * 10} 2000000 3 0 0")
    assert toil()
    stat.unlink()
    assert [toil() for _ in range(IDLE_LOOKS)][-1] is False


def test_a_process_that_is_stopped_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.drafters.process.LOOK_S", 0.05)
    process = DraftingProcess({}, VOCAB)
    assert process.wait(SOON), process.error
    child_of(process).send_signal(signal.SIGSTOP)
    with pytest.raises(EngineError, match=r"is gone: it does not answer"):
        process.ask("close", "llama", "a run")
    assert child_of(process).returncode == -signal.SIGKILL
    process.close()


class Unpicklable(torch.nn.Module):
    def __reduce_ex__(self, protocol: object) -> object:
        raise TypeError("cannot pickle a lock")


def test_a_module_that_cannot_travel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HfModel, "parts", (Unpicklable(), None, None))
    process = DraftingProcess(models(), VOCAB)
    assert not process.wait(SOON)
    assert process.error == "it did not start (TypeError: cannot pickle a lock)"
    process.close()


def test_where_a_process_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"table": TableModel("table", 8, random_table(8, 1), 64)}
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    llm = next(iter(models().values()))
    assert process_helps(models(), llm)
    with monkeypatch.context() as patch:
        patch.setattr(HfModel, "own_threads", True)
        assert not process_helps(models(), llm), "what is compiled drafts beside it in a thread"
        assert process_helps(models(), table["table"]), "an LLM that is not holds the lock"
        patch.setattr(HfModel, "own_threads", property(lambda model: model.info.name == "llama"))
        assert process_helps(models(), llm), "so does an SSM"
    assert not process_helps({}, llm) and not process_helps(table, llm)
    with monkeypatch.context() as patch:
        patch.setattr("core.drafters.process.available_bytes", lambda device: 1000)
        assert not process_helps(models(), llm)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert not process_helps(models(), llm)
