"""Configurations and helpers for tests of nodes."""

from collections.abc import Callable, Sequence

from core import Engine, SamplingParams, SpeculationConfig
from core.events import Event, RoundCompleted
from core.remote_ssms.messages import RoundMessage, to_node
from tests.core.engines import request, rounds_of
from tests.core.remote_ssms.fake_transport import FakeTransport

GREEDY = SamplingParams(24, seed=1)
WARM = SamplingParams(24, temperature=0.8, seed=1)
PARTS = (("same", "ssm-2"), ("ssm-3",))
BEST = SpeculationConfig.preset("best")
SETTINGS = {
    "specinfer": SpeculationConfig.preset("specinfer"),
    "cosine": SpeculationConfig.preset("cosine"),
    "log_pool": SpeculationConfig(combine="log_pool"),
    "best": BEST,
    "credit": SpeculationConfig(routing="credit", routed_drafters=1),
    "minions": SpeculationConfig.preset("minions"),
    "best_first": SpeculationConfig(draft="best_first", length="confidence"),
    "weighted": SpeculationConfig(combine="vote", draft="auto"),
}


def sent_rounds(transport: FakeTransport, node: int) -> list[RoundMessage]:
    messages = [to_node(frame) for frame in transport.sent[node]]
    return [message for message in messages if isinstance(message, RoundMessage)]


def states(events: Sequence[Event], node: int) -> list[str]:
    address = f"10.0.0.{node + 1}:7000"
    return [trip.state for one in rounds_of(events) for trip in one.nodes if trip.node == address]


def rounds_while(
    engine: Engine,
    config: SpeculationConfig,
    changes: dict[int, Callable[[], object]],
    length: int = 40,
) -> list[Event]:
    """`changes[n]` is called after the run's n-th round."""
    events: list[Event] = []
    count = 0
    sampling = SamplingParams(length, temperature=0.8, seed=4)
    for event in engine.generate(request(sampling=sampling, config=config)):
        events.append(event)
        if isinstance(event, RoundCompleted):
            count += 1
            if count in changes:
                changes[count]()
    return events
