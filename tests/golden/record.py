"""Runs golden cases.

Tables take their times from a PassClock. With the bundled models all times are 0.

`python -m tests.golden.record` writes all files anew.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from core import Engine, Run, Worker, load_models
from core.events import Event, RoundCompleted, event_to_plain
from core.models.protocol import Feed
from tests.fakes import TableModel, loaded_tables, random_table
from tests.golden.cases import CASES, GoldenCase
from tests.synthetic import SyntheticFailure

__all__ = ["FOLDER", "bundled_models", "golden_lines", "recorded_lines"]

FOLDER = Path(__file__).parent / "runs"
VOCAB = 8
CONTEXT = 192
# Times of one pass, and of each token in the pass.
LLM_MS, SSM_MS = (10.0, 0.5), (1.0, 0.1)
MEASURED = frozenset(
    (
        *("at_ms", "start_ms", "end_ms", "share", "queue_ms", "between_ms", "predicted_ms"),
        *("saved_ms", "wasted_ms", "draft_ms", "verify_ms", "prefill_ms"),
        *("ttft_ms", "total_ms", "overlap_ratio", "tokens_per_second"),
    )
)


class PassClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class TimedTable(TableModel):
    """Passes advance a clock by `base + each * tokens` milliseconds."""

    def __init__(
        self,
        name: str,
        seed: int,
        clock: PassClock,
        ms: tuple[float, float],
        fails: tuple[str, tuple[int, ...]] = ("", ()),
    ) -> None:
        super().__init__(name, VOCAB, random_table(VOCAB, seed, sharpness=2.5), CONTEXT)
        self._clock, self._pass_ms = clock, ms
        self._failing = fails[1] if fails[0] == name else ()
        self._num_passes = 0

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self._num_passes += 1
        if self._num_passes in self._failing:
            raise SyntheticFailure("this pass fails")
        base, each = self._pass_ms
        self._clock.seconds += (base + each * sum(len(f.token_ids) for f in feeds)) / 1000
        return super().forward(feeds)


def _in_caller(_: ThreadPoolExecutor, work: Callable[..., Any], *args: Any) -> Future[Any]:
    """Runs `work` in the caller's thread: two threads would advance the clock in an undefined
    order."""
    future: Future[Any] = Future()
    try:
        future.set_result(work(*args))
    except BaseException as error:
        future.set_exception(error)
    return future


@contextmanager
def _table_engine(case: GoldenCase) -> Iterator[Engine]:
    clock = PassClock()
    llm = TimedTable("llm", 1, clock, LLM_MS, case.fails)
    # The first SSM has the LLM's own table.
    ssms = [TimedTable(f"ssm-{seed}", seed, clock, SSM_MS, case.fails) for seed in (1, 2, 3)]
    with (
        mock.patch.object(time, "perf_counter", clock),
        mock.patch.object(ThreadPoolExecutor, "submit", _in_caller),
    ):
        engine = Engine(loaded_tables(llm, ssms, case.eos_ids), schedule=case.schedule)
        yield engine
        engine.close()


@cache
def bundled_models() -> Any:
    return load_models(dtype="float32")


def recorded_lines(case: GoldenCase) -> list[str]:
    if case.models == "tables":
        with _table_engine(case) as engine:
            return _lines(engine, case)
    engine = Engine(bundled_models())
    try:
        return _lines(engine, case)
    finally:
        engine.close()


def _lines(engine: Engine, case: GoldenCase) -> list[str]:
    names: dict[str, str] = {}
    lines = []
    for event in _events(engine, case):
        plain = without_local(event_to_plain(event))
        if case.models == "bundled":
            plain = without_times(plain)
        plain["run_id"] = names.setdefault(event.run_id, f"run-{len(names)}")
        lines.append(json.dumps(plain, ensure_ascii=False))
    return lines


def _events(engine: Engine, case: GoldenCase) -> Iterator[Event]:
    if case.cancel_after:
        yield from _cancelled_events(engine, case)
        return
    groups = [[one] for one in case.requests] if case.one_by_one else [case.requests]
    yield from chain.from_iterable(map(engine.generate_many, groups))


def _cancelled_events(engine: Engine, case: GoldenCase) -> Iterator[Event]:
    submitted: Future[Run]

    def cancel_late(event: Event) -> None:
        if isinstance(event, RoundCompleted) and event.round == case.cancel_after - 1:
            # The worker's thread may get here before `submit` has returned the run.
            submitted.result().cancel()

    worker = Worker(engine, threads=1)
    try:
        for request in case.requests:
            submitted = Future()
            submitted.set_result(worker.submit(request, cancel_late))
            yield from submitted.result().events()
    finally:
        worker.close()


def without_local(plain: dict[str, Any]) -> dict[str, Any]:
    """Empties the date and the versions: both differ between machines."""
    local = {"created_utc": "", "versions": {}}
    return {name: local.get(name, value) for name, value in plain.items()}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: 0.0 if k in MEASURED else without_times(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_times(item) for item in value]
    return value


def golden_lines(name: str) -> list[str]:
    return gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()


def write_all() -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        text = "\n".join(recorded_lines(case)) + "\n"
        # No time in the gzip header: the same events give the same bytes.
        (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    write_all()
