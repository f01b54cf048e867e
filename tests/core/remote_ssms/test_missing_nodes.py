"""Nodes that are late, missing or slow, with the test's own clock."""

import random
from contextlib import closing
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from core import Engine, Request, SamplingParams, Worker
from core.engine import worker as worker_module
from core.events import Event, RoundCompleted, RunCompleted
from core.remote_ssms.client import RemotePool
from core.remote_ssms.messages import DraftsMessage
from tests.core.engines import ids_of_events, request, rounds_of
from tests.core.gated import all_of, until
from tests.core.remote_ssms.fake_transport import FakeTransport
from tests.core.remote_ssms.served import HASH, change_answers, engine_over, pool_over, server_of
from tests.core.remote_ssms.settings import PARTS, SETTINGS, WARM, rounds_while, states
from tests.fakes import loaded_tables


@pytest.mark.parametrize("name", ["specinfer", "cosine"])
@pytest.mark.parametrize("how", ["kill", "cut", "slow"])
def test_a_missing_node_changes_no_text(models, name: str, how: str) -> None:
    engine, transport = engine_over(models, PARTS)
    # `auto` measures costs: on a busy machine, an SSM might get no tree nodes.
    config = replace(SETTINGS[name], max_tree_nodes=24)
    sampling = SamplingParams(40, temperature=0.8, seed=4)
    expected = ids_of_events(Engine(models).generate(request(sampling=sampling, config=config)))
    change = {
        "kill": lambda: transport.kill(0),
        "cut": lambda: transport.cut(0),
        "slow": lambda: transport.delay(0, 5.0),
    }[how]
    back = {
        "kill": lambda: transport.start(0, server_of(models, PARTS[0])),
        "cut": lambda: (transport.cut(0, cut=False), transport.reconnect(0)),
        "slow": lambda: (transport.delay(0, 0.0), transport.pass_time(5.0)),
    }[how]
    events = rounds_while(engine, config, {3: change, 6: back})
    assert ids_of_events(events) == expected
    result = states(events, 0)
    assert result[:2] == ["in_time"] * 2 and result[-1] == "in_time"
    assert ("absent" if how == "kill" else "late") in result
    assert set(states(events, 1)) == {"in_time"}, "the other node's drafts are used"
    notes = [note for one in rounds_of(events) for note in one.notes if "10.0.0.1" in note]
    assert len(notes) == 2 and "drafts again" in notes[1], notes


def test_a_run_that_begins_while_a_node_is_missing_has_a_note(models) -> None:
    engine, transport = engine_over(models, PARTS)
    transport.kill(0)
    for _ in range(2):
        events = rounds_while(engine, SETTINGS["specinfer"], {})
        notes = [note for one in rounds_of(events) for note in one.notes if "10.0.0.1" in note]
        assert len(notes) == 1 and "is not there: rounds go on" in notes[0], notes
        assert notes[0] in rounds_of(events)[0].notes


def test_a_round_ends_at_the_deadline_of_a_silent_node(models) -> None:
    engine, transport = engine_over(models, PARTS)
    times: list[float] = []
    config = SETTINGS["specinfer"]

    def note() -> None:
        times.append(transport.now())

    changes = dict.fromkeys(range(1, 9), note)
    changes[3] = lambda: (note(), transport.cut(0))
    rounds_while(engine, config, changes)
    waits_s = [after - before for before, after in zip(times, times[1:], strict=False)]
    # After the deadline, the node gets no request until it answers.
    assert max(waits_s) == pytest.approx(0.05) and sum(one > 0 for one in waits_s) == 1


def test_the_deadline_follows_the_round_trips(models) -> None:
    engine, transport = engine_over(models, [("same", "ssm-2", "ssm-3")])
    transport.delay(0, 0.04)
    events = rounds_while(engine, SETTINGS["specinfer"], {})
    (link,) = engine.nodes.links
    assert link.deadline_s == pytest.approx(0.12) and set(states(events, 0)) == {"in_time"}
    trips = [trip for one in rounds_of(events) for trip in one.nodes]
    assert all(trip.round_trip_ms == pytest.approx(40) for trip in trips)
    transport.delay(0, 0.1)
    assert set(states(rounds_while(engine, SETTINGS["specinfer"], {}), 0)) == {"in_time"}


def test_the_deadline_grows_for_a_slow_node(models) -> None:
    """Late answers show how long the node takes."""
    engine, transport = engine_over(models, [("same",)])
    transport.delay(0, 0.2)
    events = rounds_while(
        engine, SETTINGS["specinfer"], {n: lambda: transport.pass_time(0.2) for n in (1, 3)}
    )
    result = states(events, 0)
    assert result[0] == "late" and result[-1] == "in_time"


def test_a_node_may_start_later(models) -> None:
    transport = FakeTransport([server_of(models)])
    transport.kill(0)
    pool = RemotePool(transport, ["10.0.0.1:7000"], HASH, 8)
    messages: list[str] = []

    def say(stage: str) -> None:
        messages.append(stage)
        if len(messages) == 5:
            transport.start(0, server_of(models))

    assert pool.connect((), say=say).drafters.keys() == models.ssms.keys()
    assert set(messages) == {"Waiting for node 10.0.0.1:7000"}


def test_a_node_that_comes_back_with_other_ssms_is_left_out(models) -> None:
    engine, transport = engine_over(models, PARTS)
    changes = {
        2: lambda: transport.kill(0),
        4: lambda: transport.start(0, server_of(models, ["ssm-3"])),
    }
    events = rounds_while(engine, SETTINGS["specinfer"], changes)
    assert states(events, 0)[-1] == "absent"
    assert "other SSMs: ssm-3" in engine.nodes.links[0].refusal


def test_random_failures_of_nodes_change_no_text(models) -> None:
    rng = random.Random(5)
    servers = [server_of(models, part) for part in PARTS]
    pool, transport = pool_over(models, servers)
    engine = Engine(loaded_tables(models.llm), nodes=pool)

    def change() -> None:
        node = rng.randrange(2)
        action = rng.randrange(5)
        if action == 0:
            transport.kill(node)
        elif action == 1:
            transport.kill(node)
            transport.start(node, server_of(models, PARTS[node]))
        elif action == 2:
            transport.cut(node, cut=rng.random() < 0.5)
            transport.reconnect(node)
        elif action == 3:
            transport.delay(node, rng.choice([0.0, 0.04, 0.3]))
        else:
            transport.pass_time(0.3)

    for seed in range(20):
        name = rng.choice([*SETTINGS])
        sampling = SamplingParams(20, temperature=rng.choice([0.0, 0.8]), seed=seed)
        run_request = Request("w1 w2 w3", sampling, SETTINGS[name])
        events: list[Event] = []
        for event in engine.generate(run_request):
            events.append(event)
            if isinstance(event, RoundCompleted) and rng.random() < 0.5:
                change()
        assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request)), name


def test_rounds_hardly_wait_for_a_late_node(models) -> None:
    engine, transport = engine_over(models, PARTS)
    transport.delay(0, 5.0)
    times = [transport.now()]
    pause = 6.0  # by then, the previous answer has arrived

    def next_round() -> None:
        times.append(transport.now())
        transport.pass_time(pause)

    events = rounds_while(engine, SETTINGS["specinfer"], dict.fromkeys(range(1, 40), next_round))
    waits = [b - a - pause for a, b in zip(times[1:], times[2:], strict=False)]
    assert set(states(events, 0)) == {"late"} and len(waits) > 8
    assert max(waits) <= 1.0 + 1e-6 and sum(waits) < 2.0


def test_local_drafting_is_no_part_of_a_round_trip(models) -> None:
    """The answer arrives long before the engine reads it."""
    server = server_of(models, ["ssm-2", "ssm-3"])
    change_answers(server, DraftsMessage, lambda message: replace_fields(message, busy_ms=5.0))
    pool, transport = pool_over(models, [server])
    draft_pass = models.ssms["same"].forward

    def forward(feeds):
        transport.pass_time(0.4)
        return draft_pass(feeds)

    models.ssms["same"].forward = forward
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    transport.delay(0, 0.01)
    events = rounds_while(engine, SETTINGS["specinfer"], {})
    (link,) = pool.links
    assert set(states(events, 0)) == {"in_time"}
    assert max(link.trips) < 0.2 and link.deadline_s < 0.6


def test_a_node_that_came_back_while_the_engine_was_idle_drafts_at_once(
    models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "IDLE_S", 0.01)
    engine, transport = engine_over(models, PARTS)
    run_request = request(sampling=WARM, config=SETTINGS["specinfer"])

    def restart(event: Event) -> None:
        if isinstance(event, RunCompleted):  # nothing reads the transport during the restart
            transport.kill(0)
            transport.start(0, server_of(models, PARTS[0]))

    with closing(Worker(engine, threads=1)) as worker:
        all_of(worker.submit(run_request, restart))
        until(lambda: engine.nodes.links[0].starts == 2)
        assert {*states(all_of(worker.submit(run_request)), 0)} == {"in_time"}


def test_a_nodes_drafting_time_is_at_most_its_round_trip(models) -> None:
    server = server_of(models, ["ssm-3"])
    change_answers(server, DraftsMessage, lambda message: replace_fields(message, busy_ms=1e7))
    pool, transport = pool_over(models, [server])
    transport.delay(0, 0.01)
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    events = list(engine.generate(request(config=SETTINGS["specinfer"])))
    trips = [trip for one in rounds_of(events) for trip in one.nodes]
    assert {trip.state for trip in trips} == {"in_time"}
    assert all(trip.busy_ms <= trip.round_trip_ms for trip in trips)
