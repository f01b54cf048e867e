"""Nodes (the machines of remote SSMs) in a run's events, trace and pictures."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from core import Engine, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from core.events import Drafted, Event, RoundCompleted, RunStarted
from storage.exports import chrome_trace
from tests.core.engines import request, rounds_of, tables
from tests.core.remote_ssms.served import engine_over, server_of
from tests.fakes import loaded_tables
from tests.ui.reports import last_timeline
from ui.run.charts import timeline_value
from ui.run.frame import Frame
from ui.run.nodes import nodes_of, nodes_value
from ui.run.view import View, reduce_all

FIRST, SECOND = "10.0.0.1:7000", "10.0.0.2:7000"


@pytest.fixture(scope="module")
def events() -> list[Event]:
    models = loaded_tables(tables()[0], tables(3)[1])
    engine, transport = engine_over(models, [["same"], ["ssm-2", "ssm-3"]])
    engine.warm_up()
    transport.delay(0, 0.01)
    transport.delay(1, 0.001)

    def restart() -> None:
        transport.delay(0, 0.01)
        transport.start(0, server_of(models, ["same"]))

    changes: dict[int, Callable[[], object]] = {
        2: lambda: transport.delay(0, 1.0),
        3: lambda: transport.kill(0),
        5: restart,
        6: lambda: transport.pass_time(0.02),
    }
    sampling = SamplingParams(55, temperature=0.8, seed=4)
    results: list[Event] = []
    for event in engine.generate(request(sampling=sampling)):
        results.append(event)
        if isinstance(event, RoundCompleted):
            changes.get(len(rounds_of(results)), lambda: None)()
    return results


def frame_of(view: View) -> Frame:
    return Frame(view=view, detail=view.last, ended=True, at_end=True)


def test_the_start_names_the_nodes(events: list[Event]) -> None:
    start = events[0]
    assert isinstance(start, RunStarted)
    assert [(model.name, model.node) for model in start.models] == [
        ("llm", ""), ("same", FIRST), ("ssm-2", SECOND), ("ssm-3", SECOND),
    ]  # fmt: skip
    assert nodes_of(reduce_all(events)) == (FIRST, SECOND) and nodes_of(View()) == ()


def test_every_round_records_the_state_of_each_node(events: list[Event]) -> None:
    states = [[trip.state for trip in one.nodes] for one in rounds_of(events)]
    assert states[:2] == [["in_time", "in_time"]] * 2 and ["late", "in_time"] in states
    assert ["absent", "in_time"] in states
    for one in rounds_of(events):
        for trip in one.nodes:
            was_requested = trip.state != "absent"
            assert (trip.end_ms >= trip.start_ms > 0) == was_requested and trip.end_ms <= one.at_ms
            assert (trip.round_trip_ms > 0) == (trip.drafts > 0)
            assert trip.plain_ms > 0
    drafted = [{d.drafter for d in e.drafts} for e in events if isinstance(e, Drafted)]
    assert {"ssm-2", "ssm-3"} in drafted and {"same", "ssm-2", "ssm-3"} in drafted


def test_the_trace_has_the_round_trips(events: list[Event]) -> None:
    trace = json.loads(chrome_trace(events))["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    assert {FIRST, SECOND} <= {*threads.values()}
    trips = [e for e in trace if e["name"] in ("round trip", "late")]
    requested = [t for one in rounds_of(events) for t in one.nodes if t.state != "absent"]
    assert len(trips) == len(requested) and {threads[e["tid"]] for e in trips} == {FIRST, SECOND}
    assert any(entry["name"] == "wire" for entry in trace)


def test_the_pipeline_picture_has_a_lane_for_each_node(events: list[Event]) -> None:
    value = timeline_value(frame_of(reduce_all(events)))
    lanes = {name: key for key, name in value["lanes"].items()}
    assert [*lanes][3:6] == [FIRST, SECOND, "combine"]
    bars = [bar for spans in value["bars"].values() for bar in spans.values()]
    assert {bar["name"] for bar in bars if bar["lane"] == lanes[FIRST]} == {"round trip", "late"}
    assert {bar["name"] for bar in bars if bar["lane"] == lanes[SECOND]} == {"round trip"}


def test_the_report_has_lanes_and_panel(events: list[Event]) -> None:
    value = last_timeline(events)
    assert {FIRST, SECOND} <= {*value["lanes"].values()}
    assert value["nodes"] == json.loads(json.dumps(nodes_value(reduce_all(events))))


def test_the_panel_has_counts_times_and_a_prediction(events: list[Event]) -> None:
    view = reduce_all(events)
    one, two = nodes_value(view).values()
    states = [trip.state for line in view.rounds for trip in line.trips if trip.node == FIRST]
    assert one["ssms"] == "same" and two["ssms"] == "ssm-2, ssm-3"
    assert (one["in_time"], one["late"], one["absent"]) == tuple(
        map(states.count, ("in_time", "late", "absent"))
    )
    assert one["starts"] == 2 and two["starts"] == 1 and one["state"] == states[-1]
    assert one["trip"] == pytest.approx(10) and one["wire"] < 10 and one["deadline"] == 50
    trips = [(line, trip) for line in view.rounds for trip in line.trips if trip.node == FIRST]
    answered = [(line, trip) for line, trip in trips if trip.drafts]
    tokens = sum(line.emitted for line, _ in answered) / len(answered)
    round_ms = sum(line.time.ms for line, _ in answered) / len(answered)
    wire_ms = sum(trip.round_trip_ms - trip.busy_ms for _, trip in answered) / len(answered)
    plain_ms = answered[-1][1].plain_ms
    assert one["even"] == pytest.approx(tokens * plain_ms - round_ms + wire_ms, abs=0.01)
    before = nodes_value(reduce_all(events[:1]))["0"]
    assert before["state"] == "" and before["trip"] is before["even"] is None


def test_a_run_without_nodes_has_no_panel() -> None:
    llm, ssms = tables(2)
    engine, _ = engine_over(loaded_tables(llm, ssms), [["same", "ssm-2"]])
    plain = SpeculationConfig.preset("autoregressive")
    view = reduce_all(engine.generate(request(config=plain)))
    assert nodes_value(view)["0"]["state"] == "" and not any(line.trips for line in view.rounds)
    started = view.started
    assert started is not None
    without = replace(view, started=replace(started, models=started.models[:1]))
    assert nodes_value(without) == {} and timeline_value(frame_of(without))["nodes"] == {}


def test_a_simulated_wire_delays_each_round_with_a_draft() -> None:
    llm, ssms = tables(2)
    engine = Engine(loaded_tables(llm, ssms))
    engine.wire_ms = 5
    rounds = rounds_of(engine.generate(request()))
    for one in rounds:
        wires = [span for span in one.spans if span.name == "wire"]
        assert sum(span.ms for span in wires) >= 4.9 or not wires
    assert sum(any(span.name == "wire" for span in one.spans) for one in rounds) >= len(rounds) - 1
    engine.wire_ms = 0
    spans = [span.name for one in rounds_of(engine.generate(request())) for span in one.spans]
    assert "wire" not in spans
    with pytest.raises(ConfigError, match="wire_ms is 2000"):
        engine.wire_ms = 2000
