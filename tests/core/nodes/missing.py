"""A long run over real nodes, of which the first is missing for a while."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, connect_nodes
from core.config.nodes import NodeSettings
from core.events import Event, RoundCompleted
from core.models.loading.catalog import vocabulary_hash
from tests.core.engines import ids_of_events, rounds_of

__all__ = ["LONG", "RunWithout", "missing_node", "until_rounds"]

LONG = Request(
    "Once upon a time",
    SamplingParams(900, temperature=0.8, seed=3, ignore_eos=True),
    SpeculationConfig.preset("specinfer"),
)
AFTER_MS = 50
"""A round is over so long after its deadline."""


def until_rounds(stream: Iterator[Event], count: int) -> list[Event]:
    """The events of the next `count` rounds, fewer where the run ends."""
    events: list[Event] = []
    for event in stream:
        events.append(event)
        count -= isinstance(event, RoundCompleted)
        if not count:
            break
    return events


@dataclass
class RunWithout:
    """A run whose first node is missing."""

    stream: Iterator[Event]
    events: list[Event]

    def come_back(self, seconds: float = 10) -> None:
        """Goes on until the first node's drafts are used again, and to the end. There are rounds
        for all of these seconds, whatever machine it is: they are spread over 500 of LONG's."""
        until = time.monotonic() + seconds
        state = ""
        while state != "in_time":
            assert time.monotonic() < until, f"it did not draft again within {seconds} s"
            self.events += until_rounds(self.stream, 1)
            state = rounds_of(self.events)[-1].nodes[0].state
            time.sleep(seconds / 500)
        self.events += self.stream


@contextmanager
def missing_node(
    bundled: Engine, settings: NodeSettings, end: Callable[[], None]
) -> Iterator[RunWithout]:
    """A run over the nodes, of which the first is missing after `end`; the block brings it back."""
    models = bundled.models
    here = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    expected = ids_of_events(bundled.generate(LONG))
    pool = connect_nodes(settings, here)
    assert pool is not None
    assert pool._arrivals._hello.tokenizer == vocabulary_hash(models.tokenizer)
    with closing(Engine(here, nodes=pool)) as engine:
        stream = engine.generate(LONG)
        events = until_rounds(stream, 8)
        end()
        events += until_rounds(stream, 40)
        missed = [e.nodes for e in rounds_of(events) if e.nodes and e.nodes[0].state != "in_time"]
        assert missed, "it is gone"
        for trip in (each[0] for each in missed):
            assert trip.end_ms - trip.start_ms <= trip.deadline_ms + AFTER_MS
        if len(pool.links) > 1:
            assert "in_time" in {each[1].state for each in missed}, "the other one's are used"
        # Once it is known to be gone, nothing waits for it.
        assert missed[-1][0].state == "absent" and missed[-1][0].end_ms == 0
        run = RunWithout(stream, events)
        yield run
        notes = [note for one in rounds_of(run.events) for note in one.notes]
        ours = [note for note in notes if note.startswith(f"node {pool.links[0].address} ")]
        changes = ["gone" if "rounds go on" in note else "back" for note in ours]
        # Each change once; on a busy machine it may have been late as well.
        assert changes[:2] == ["gone", "back"], notes
        assert all(one != other for one, other in pairwise(changes)), notes
        assert ids_of_events(run.events) == expected
