"""A drafter that fails within a run does not change the text."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import COMBINES
from core.engine.worker import Worker
from core.events import Event, RoundCompleted, RunCompleted
from core.models.protocol import Feed
from tests.core.engines import by_run, ids_of_events, texts_of
from tests.fakes import TableModel, loaded_tables, random_table
from tests.laws.pairwise import parametrize_pairs

pytestmark = pytest.mark.loses_drafters
VOCAB = 8
PROMPT = "w3 w1 w4"


class FailsAtPass(TableModel):
    def __init__(self, seed: int, failing_pass: int, error: type[Exception]) -> None:
        super().__init__(f"ssm-{seed}", VOCAB, random_table(VOCAB, seed), 96)
        self.failing_pass, self.error = failing_pass, error

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if self.passes >= self.failing_pass:
            raise self.error("the device went away")
        return super().forward(feeds)


def engine_with(failing_pass: int, error: type[Exception] = RuntimeError) -> Engine:
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1), 96)
    healthy = TableModel("ssm-2", VOCAB, random_table(VOCAB, 2), 96)
    return Engine(loaded_tables(llm, [FailsAtPass(3, failing_pass, error), healthy]))


def request(temperature: float = 0.0, **fields: Any) -> Request:
    config = SpeculationConfig(speculation_length=3, expansion=(2, 1), **fields)
    return Request(PROMPT, SamplingParams(30, temperature, seed=4), config)


def plain(temperature: float) -> list[int]:
    return ids_of_events(engine_with(999).generate(request(temperature, drafters=())))


def notes(events: Sequence[Event]) -> list[tuple[int, str]]:
    return [(e.round, n) for e in events if isinstance(e, RoundCompleted) for n in e.notes]


@parametrize_pairs(combine=COMBINES, temperature=(0.0, 0.9), failing_pass=(0, 1, 2, 5, 8))
def test_the_text_is_that_of_plain_decoding(
    combine: str, temperature: float, failing_pass: int
) -> None:
    engine = engine_with(failing_pass)
    events = list(engine.generate(request(temperature, combine=combine)))
    assert ids_of_events(events) == plain(temperature)
    assert isinstance(events[-1], RunCompleted)
    ((_, message),) = notes(events)
    assert message == (
        "drafter ssm-3 failed (RuntimeError: the device went away); the run goes on without it"
    )
    later = [e for e in events if isinstance(e, RoundCompleted)][-1]
    assert later.num_accepted >= 0 and engine.models.llm.open_rows == ()  # type: ignore[attr-defined]
    assert engine.models.ssms["ssm-2"].open_rows == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "error",
    [RuntimeError, MemoryError, ValueError, IndexError, KeyError, TypeError, AttributeError]
    + [AssertionError, OSError, ZeroDivisionError, StopIteration],
)
def test_any_error_of_a_drafter_drops_only_this_drafter(error: type[Exception]) -> None:
    events = list(engine_with(3, error).generate(request()))
    assert ids_of_events(events) == plain(0.0) and len(notes(events)) == 1


def test_every_request_that_uses_a_failed_drafter_loses_it_and_continues() -> None:
    engine = engine_with(4)
    events = list(engine.generate_many([request(), request(0.9), request(drafters=("ssm-2",))]))
    assert texts_of(events) == [plain(0.0), plain(0.9), plain(0.0)]
    assert [len(notes(run)) for run in by_run(events)] == [1, 1, 0]


def test_the_next_run_uses_the_drafter_again() -> None:
    engine = engine_with(4)
    first = list(engine.generate(request()))
    second = list(engine.generate(request()))
    assert ids_of_events(first) == ids_of_events(second) == plain(0.0)
    assert notes(first)[0][0] > 0 and notes(second)[0][0] == 0


def test_a_run_whose_only_drafter_dies_decodes_plainly() -> None:
    events = list(engine_with(4).generate(request(drafters=("ssm-3",))))
    assert ids_of_events(events) == plain(0.0)
    assert [e.speculation_length for e in events if isinstance(e, RoundCompleted)][-1] == 3


def test_a_worker_serves_later_runs() -> None:
    worker = Worker(engine_with(4))
    try:
        runs = [worker.submit(request()) for _ in range(3)]
        assert [ids_of_events(run.events()) for run in runs] == [plain(0.0)] * 3
    finally:
        worker.close()


def test_the_traceback_of_a_lost_drafter_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    list(engine_with(2).generate(request(combine="union")))
    (record,) = caplog.records
    assert record.exc_info is not None and "the device went away" in caplog.text
    assert "in forward" in caplog.text
