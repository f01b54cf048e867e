"""If a rank is killed or stopped during a pass, the run ends in time with one error that names the
rank."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig
from core.errors import RankError
from core.events import RunFailed
from core.models.ranks import leader
from core.models.ranks.leader import RankedModel
from tests.core.engines import ids_of_events
from tests.core.models.forked_ranks import forked_ranks
from tests.core.models.over_ranks import over_ranks, pids_of
from tests.fakes import tiny_module, word_tokenizer
from tests.laws.runs import bundled_engine, prompts

pytestmark = pytest.mark.nightly
TIMEOUT_S = 3.0
# For each signal: the seconds within which the run ends, and the error message.
ENDS = {
    signal.SIGKILL: (2.0, r"rank {} of the LLM \(process \d+\) has ended by signal 9"),
    signal.SIGSTOP: (TIMEOUT_S + 2.0, "a rank of the LLM among {} did not answer in time"),
}
LOOP = (3, 9, 27, 17, 3, 9, 27, 17, 3, 9)
NODES = 12  # a fixed limit, since measuring the costs over ranks takes seconds
DRAFTS = SpeculationConfig(drafters=("ngram",), max_tree_nodes=NODES)
TREES = Request("w", SamplingParams(12), DRAFTS, False, LOOP)


@pytest.fixture(scope="module")
def llm_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("llm"))
    sizes = {"num_key_value_heads": 4, "num_hidden_layers": 4}
    tiny_module("llama", 3, torch.float32, **sizes).save_pretrained(folder)
    word_tokenizer(64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def short_timeout() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        short = partial(leader.load_ranked, timeout_s=TIMEOUT_S)
        patch.setattr(leader, "load_ranked", short)
        yield


@pytest.fixture(scope="module", params=["tp=4", "pp=3"])
def ranks(request: pytest.FixtureRequest, llm_folder: str) -> Iterator[RankedModel]:
    """A parameter may name another LLM than the tiny LLM: `bundled tp=2`."""
    name, _, split = request.param.rpartition(" ")
    with forked_ranks(), over_ranks(name or llm_folder, split) as model:
        yield model


def in_pass(model: RankedModel, number: int, act: Callable[[], None]) -> None:
    """Rank 0 calls `act` during its `number`th pass from now."""
    group: Any = model._running.group
    count_collective, first, passes = group.count_collective, [True], model._passes

    def counting(*figures: Any) -> None:
        count_collective(*figures)
        if model._passes == passes + number and first:
            first.clear()
            act()

    group.count_collective = counting


def kill_in_pass(model: RankedModel, number: int, rank: int, sent: int) -> Callable[[], float]:
    """Returns a function that returns the seconds since the signal."""
    pid, began = pids_of(model)[rank - 1], list[float]()

    def kill() -> None:
        began.append(time.monotonic())
        os.kill(pid, sent)

    in_pass(model, number, kill)
    return lambda: time.monotonic() - began[0]


def check_end(events: Iterator[Any], since: Callable[[], float], sent: int, rank: int) -> None:
    within_s, message = ENDS[signal.Signals(sent)]
    received = []
    with pytest.raises(RankError, match=message.format(rank)):
        received += events
    assert since() < within_s
    assert not any(isinstance(event, RunFailed) for event in received)


def has_ended(pids: list[int], folder: Path | None) -> bool:
    """A zombie has not ended."""
    processes = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    return not processes and folder is not None and not folder.exists()


@pytest.mark.parametrize("sent", list(ENDS))
def test_the_run_ends_with_the_rank(
    ranks: RankedModel, llm_folder: str, sent: signal.Signals
) -> None:
    rank = max(1, ranks.ranks.count - 2)  # last but one: another rank waits for it
    tokenizer = AutoTokenizer.from_pretrained(llm_folder)
    engine = Engine(LoadedModels(ranks, {}, tokenizer, ()))
    expected = ids_of_events(engine.generate(TREES))
    assert len(expected) == 12
    pids, folder = pids_of(ranks), ranks._running.followers._folder
    since = kill_in_pass(ranks, 3, rank, sent)
    check_end(engine.generate(TREES), since, sent, rank)
    assert has_ended(pids, folder)
    assert ids_of_events(engine.generate(TREES)) == expected  # over new ranks
    assert not {*pids} & {*pids_of(ranks)}


@pytest.mark.parametrize("ranks", ["bundled tp=2", "bundled pp=2"], indirect=True)
def test_runs_of_the_bundled_llm_with_ssms_end_with_the_rank(ranks: RankedModel) -> None:
    one = bundled_engine()
    speculation = replace(SpeculationConfig.preset("specinfer"), max_tree_nodes=NODES)
    run = Request(prompts(1)[0], SamplingParams(16), speculation)
    expected = ids_of_events(one.generate(run))
    engine, pids = Engine(replace(one.models, llm=ranks)), pids_of(ranks)
    folder, split = ranks._running.followers._folder, ranks.ranks.split
    since = kill_in_pass(ranks, 3, 1, signal.SIGKILL)
    check_end(engine.generate(run), since, signal.SIGKILL, 1)
    assert has_ended(pids, folder)
    assert ids_of_events(engine.generate(run)) == expected
    pids, folder = pids_of(ranks), ranks._running.followers._folder
    ranks.close()
    assert has_ended(pids, folder)
    with over_ranks("bundled", f"{split}=2") as model:
        another = Engine(replace(one.models, llm=model))
        assert ids_of_events(another.generate(run)) == expected
