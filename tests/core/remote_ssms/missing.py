"""A long run over real nodes, while the first node is missing for a time."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, connect_nodes
from core.config.nodes import NodeSettings
from core.events import Event, NodeTrip, RoundCompleted
from core.models.loading.catalog import vocabulary_hash
from core.remote_ssms.client import RemotePool
from core.remote_ssms.messages import RoundMessage, to_node
from tests.core.engines import ids_of_events, rounds_of

__all__ = ["LONG", "RunWithout", "missing_node", "until_rounds"]

LONG = Request(
    "Once upon a time",
    SamplingParams(900, temperature=0.8, seed=3, ignore_eos=True),
    # `auto` measures costs: on a busy machine, an SSM might get no tree nodes.
    replace(SpeculationConfig.preset("specinfer"), max_tree_nodes=24),
)
AFTER_MS = 50
"""A trip may end this many milliseconds after its deadline."""


def until_rounds(stream: Iterator[Event], count: int) -> list[Event]:
    events: list[Event] = []
    for event in stream:
        events.append(event)
        count -= isinstance(event, RoundCompleted)
        if not count:
            break
    return events


@dataclass
class RunWithout:
    """`first_missed`: the first node's earliest trip that was not in time."""

    stream: Iterator[Event]
    events: list[Event]
    first_missed: NodeTrip

    def come_back(self, seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        state = ""
        while state != "in_time":
            assert time.monotonic() < deadline, f"the node did not draft again within {seconds} s"
            self.events += until_rounds(self.stream, 1)
            state = rounds_of(self.events)[-1].nodes[0].state
            time.sleep(seconds / 500)
        self.events += until_rounds(self.stream, 40)


def in_next_round(pool: RemotePool, act: Callable[[], None]) -> None:
    """Calls `act` once the next round's request was sent to the first node."""
    transport = pool._transport
    send = transport.send

    def send_and_act(node: int, frame: bytes) -> None:
        send(node, frame)
        if node == 0 and isinstance(to_node(frame), RoundMessage):
            transport.send = send  # type: ignore[method-assign]
            act()

    transport.send = send_and_act  # type: ignore[method-assign]


@cache
def long_text(engine: Engine) -> list[int]:
    return ids_of_events(engine.generate(LONG))


@contextmanager
def missing_node(
    bundled: Engine,
    settings: NodeSettings,
    end: Callable[[], None],
    has_ended: Callable[[], None] = lambda: None,
) -> Iterator[RunWithout]:
    """`end` makes the first node missing; `has_ended` returns once the node is missing. The `with`
    block must bring the node back."""
    models = bundled.models
    without_ssms = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    expected = long_text(bundled)
    pool = connect_nodes(settings, without_ssms)
    assert pool is not None
    assert pool._arrivals._hello.tokenizer == vocabulary_hash(models.tokenizer)
    with closing(Engine(without_ssms, nodes=pool)) as engine:
        stream = engine.generate(LONG)
        events = until_rounds(stream, 8)
        in_next_round(pool, end)
        events += until_rounds(stream, 1)
        has_ended()
        events += until_rounds(stream, 39)
        missed = [e.nodes for e in rounds_of(events) if e.nodes and e.nodes[0].state != "in_time"]
        assert missed, "rounds went on without the node"
        for trip in (each[0] for each in missed):
            assert trip.end_ms - trip.start_ms <= trip.deadline_ms + AFTER_MS
        if len(pool.links) > 1:
            assert "in_time" in {each[1].state for each in missed}, "the other node is in time"
        # Once the node is known to be gone, no round waits for it.
        assert missed[-1][0].state == "absent" and missed[-1][0].end_ms == 0
        run = RunWithout(stream, events, missed[0][0])
        yield run
        stream.close()
        notes = [note for one in rounds_of(run.events) for note in one.notes]
        ours = [note for note in notes if note.startswith(f"node {pool.links[0].address} ")]
        changes = ["gone" if "rounds go on" in note else "back" for note in ours]
        # On a busy machine, the node may be late again.
        assert changes[:2] == ["gone", "back"], notes
        assert all(one != other for one, other in pairwise(changes)), notes
        ids = ids_of_events(run.events)
        assert ids == expected[: len(ids)]
