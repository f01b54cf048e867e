"""The trees of the run that Live opens with do not depend on the machine's load."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from unittest import mock

import pytest

from core import Engine, Worker
from core.events import Combined, Event, RoundCompleted, RunStarted
from core.speculation_length.cost_model import NODE_COUNTS, Costs, VerifyCosts
from storage import RunQuery, RunStore
from tests.logs import log_at
from ui.live.handlers import record_opening
from ui.server.arguments import parse
from ui.server.context import make_context
from ui.server.visitors import Access

WAIT_S = 60.0
NARROW = VerifyCosts({n: 1.0 + n for n in NODE_COUNTS}, 64)
"""A machine on which each node costs as much as a pass: `max_tree_nodes=auto`
resolves to one node."""
WIDE = VerifyCosts(dict.fromkeys(NODE_COUNTS, 1.0), 64)
"""A machine on which nodes are free: `auto` affords the largest tree that was timed."""


def opening_events(store: RunStore, engine: Engine, verify: VerifyCosts) -> tuple[Event, ...]:
    models = engine.models
    fresh = Engine(models, costs=Costs(models.llm, verify))
    with closing(Worker(fresh, threads=1)) as worker:
        access = Access("127.0.0.1")
        context = make_context(worker, store, access, parse([]).preset, RunQuery)
        record_opening(context)
        end = time.monotonic() + WAIT_S
        while (source := context.opening.source()) is None:
            assert context.opening.is_awaited and time.monotonic() < end
            time.sleep(0.01)
    return source.events(0, source.count)


@contextmanager
def busy_thread() -> Iterator[None]:
    ended = threading.Event()

    def spin() -> None:
        while not ended.wait(0.015):
            end = time.monotonic() + 0.005
            while time.monotonic() < end:
                sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def leaping_clock() -> Callable[[], float]:
    rng, clock, lost_s = random.Random(5), time.perf_counter, 0.0

    def now() -> float:
        nonlocal lost_s
        lost_s += 0.02 * rng.random()
        return clock() + lost_s

    return now


@pytest.fixture(scope="module")
def quiet(bundled: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Event, ...]:
    with RunStore(log_at(tmp_path_factory.mktemp("quiet") / "runs.db")) as store:
        return opening_events(store, bundled, NARROW)


def test_the_opening_run_has_the_same_trees_on_any_machine_and_under_any_load(
    store: RunStore, bundled: Engine, quiet: tuple[Event, ...]
) -> None:
    with busy_thread(), mock.patch.object(time, "perf_counter", leaping_clock()):
        disturbed = opening_events(store, bundled, WIDE)

    def trees(events: tuple[Event, ...]) -> list[tuple[object, ...]]:
        return [
            (e.round, e.root_token_id, e.token_ids, e.parents, e.proposals, e.origins, e.dropped)
            for e in events
            if isinstance(e, Combined)
        ]

    def rounds(events: tuple[Event, ...]) -> list[tuple[int, ...]]:
        return [e.token_ids for e in events if isinstance(e, RoundCompleted)]

    (start, disturbed_start) = (e for e in (quiet[0], disturbed[0]) if isinstance(e, RunStarted))
    assert start.asked == disturbed_start.asked
    assert len(trees(quiet)) > 10 and trees(disturbed) == trees(quiet)
    assert rounds(disturbed) == rounds(quiet)
