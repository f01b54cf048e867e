"""Exports: complete, readable by other programs, and harmless whatever a model wrote."""

import csv
import dataclasses
import io
import json
import math
import re
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings

from core.events import (
    Combined,
    Event,
    RoundCompleted,
    Scheduled,
    Span,
    Verified,
    event_from_plain,
    event_to_plain,
)
from storage import RunStore
from storage.export_csv import csv_cell
from storage.exports import EXPORTS, chrome_trace, events_json, rounds_csv
from storage.thinned import THINNED
from tests.core.engines import rounds_of
from tests.storage.strategies import runs
from tests.synthetic import DRAFTERS, ENDINGS, HOSTILE_TEXTS, VOTE_AHEAD, Mechanisms, synthetic_run


def rows_of(events: list[Event] | tuple[Event, ...]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(rounds_csv(events), newline="")))


def trace_of(events: list[Event] | tuple[Event, ...]) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    trace: dict[str, Any] = json.loads(chrome_trace(events), parse_constant=refuse)
    return trace


@pytest.fixture
def thin_run(store: RunStore, keep: Any) -> tuple[Event, ...]:
    keep(store, synthetic_run(12, seed=3))
    store.thin(0)
    return store.events("synthetic-3")


def test_each_export_has_an_extension_a_media_type_and_a_text() -> None:
    assert list(EXPORTS) == ["events", "rounds", "trace"]
    for export in EXPORTS.values():
        assert export.extension
        assert "/" in export.media_type
        assert export.write(synthetic_run(2))


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize(
    "events",
    [[], synthetic_run(0, end="cut"), synthetic_run(0, end="failed"), synthetic_run(3)[:4]],
    ids=["nothing", "start", "no round", "within a round"],
)
def test_a_run_without_a_round_is_no_error(name: str, events: list[Event]) -> None:
    text = EXPORTS[name].write(events)
    assert text.startswith(("{", "round,"))
    assert "\r\n" not in text.removesuffix("\r\n")


@pytest.mark.parametrize("half", range(2))  # examples are slow to draw: two tests of 30
@settings(max_examples=30)
@given(runs())
def test_any_run_can_be_exported(half: int, events: list[Event]) -> None:
    for export in EXPORTS.values():
        export.write(events).encode()
    json.loads(events_json(events), parse_constant=lambda c: pytest.fail(c))
    check_lanes(trace_of(events))
    assert len(rows_of(events)) == len(rounds_of(events))


def test_exports_are_pure() -> None:
    events = synthetic_run(6, hostile=True)
    for export in EXPORTS.values():
        assert export.write(events) == export.write(list(events))


@pytest.mark.parametrize("end", ENDINGS)
def test_events_are_read_back_from_json(end: str) -> None:
    events = synthetic_run(8, seed=2, end=end, hostile=True, mechanisms=VOTE_AHEAD)
    document = json.loads(events_json(events))
    assert [event_from_plain(values) for values in document["events"]] == events
    assert (document["run_id"], document["thinned"]) == ("synthetic-2", False)
    summary = document["summary"]
    assert summary["status"] == ("interrupted" if end == "cut" else end)
    texts = [d for e in rounds_of(events) for d in e.text_deltas]
    assert summary["text"] == "".join([*texts, getattr(events[-1], "text_tail", "")])
    assert summary["token_ids"] == [t for e in rounds_of(events) for t in e.token_ids]
    if end != "cut":
        assert summary["stats"] == json.loads(json.dumps(dataclasses.asdict(events[-1].stats)))  # type: ignore[union-attr]
    assert summary["stats"]["num_rounds"] == 8


def test_the_given_status_is_used_for_a_run_without_an_end() -> None:
    cut, complete = synthetic_run(3, end="cut"), synthetic_run(3)
    for name, part in (("events", "summary"), ("trace", "otherData")):
        write = EXPORTS[name].write
        texts = (write(cut), write(cut, "running"), write(complete, "running"))
        statuses = [json.loads(text)[part]["status"] for text in texts]
        assert statuses == ["interrupted", "running", "completed"]
    assert EXPORTS["rounds"].write(cut, "running") == rounds_csv(cut)


def test_json_can_be_embedded_in_html() -> None:
    text = events_json(synthetic_run(20, hostile=True))
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert "pwned" in text


def test_nan_and_infinity_become_null() -> None:
    events: list[Event] = list(synthetic_run(2, seed=1))
    verdict = events[3]
    events[3] = dataclasses.replace(verdict, own_probability=math.nan)
    events[4] = dataclasses.replace(
        events[4], predicted_ms=math.inf, spans=(Span("llm", "forward", math.nan, math.inf),)
    )
    document = json.loads(events_json(events), parse_constant=lambda c: pytest.fail(c))
    assert document["events"][3]["own_probability"] is None
    assert document["events"][4]["predicted_ms"] is None
    check_lanes(trace_of(events))
    assert len(rows_of(events)) == 2


def test_the_csv_has_the_figures_of_the_events() -> None:
    events = synthetic_run(20, seed=5, mechanisms=Mechanisms(length="goodput", pipeline="ahead"))
    rows = rows_of(events)
    trees = [e for e in events if isinstance(e, Combined)]
    verdicts = [e for e in events if isinstance(e, Verified)]
    assert len(rows) == 20
    begin = 0.0
    for row, round_event, tree, verdict in zip(
        rows, rounds_of(events), trees, verdicts, strict=True
    ):
        assert int(row["round"]) == round_event.round + 1, "rounds are counted from 1"
        assert (float(row["start_ms"]), float(row["end_ms"])) == (begin, round_event.at_ms)
        begin = round_event.at_ms
        assert row["token_ids"] == " ".join(map(str, round_event.token_ids))
        assert int(row["num_accepted"]) == round_event.num_accepted
        assert int(row["num_nodes"]) == len(tree.token_ids)
        assert int(row["drafted_depth"]) == max(tree.depths, default=0)
        assert row["length_reason"] == round_event.length_reason
        assert row["tree"] == "whole"
        assert int(row["ahead_hits"]) == sum(a.hit for a in round_event.ahead)
        stages = sum(float(row[f"{s}_ms"]) for s in ("draft", *ENGINE_STAGES, "prefill"))
        assert stages == pytest.approx(sum(s.ms for s in round_event.spans))
        for name in DRAFTERS:
            proposed = {
                n for n, ps in enumerate(tree.proposals) if any(p.drafter == name for p in ps)
            }
            assert int(row[f"proposed: {name}"]) == len(proposed)
            emitted = set(verdict.path[: round_event.num_accepted])
            assert int(row[f"accepted: {name}"]) == len(emitted & proposed)
            assert float(row[f"weight after: {name}"]) == round_event.weights[name]


def test_the_csv_has_the_drafters_of_fused_tokens_and_the_routed_ones() -> None:
    mechanisms = Mechanisms(routing="cosine", draft="fused")
    events = synthetic_run(20, seed=5, mechanisms=mechanisms)
    trees = [e for e in events if isinstance(e, Combined)]
    verdicts = [e for e in events if isinstance(e, Verified)]
    results = set()
    for row, round_event, tree, verdict in zip(
        rows_of(events), rounds_of(events), trees, verdicts, strict=True
    ):
        emitted = verdict.path[: round_event.num_accepted]
        assert row["fused_from"].split() == [tree.origins[node] for node in emitted]
        drafting = [one.drafter for one in round_event.routing if one.role != "waiting"]
        assert row["routed"].split() == drafting
        explored = [one.drafter for one in round_event.routing if one.role == "explored"]
        assert row["explored"].split() == explored
        scores = {one.drafter: one.score for one in round_event.routing}
        results |= {*row["fused_from"].split()}
        for name in DRAFTERS:
            drafted = [
                node
                for node, offered in enumerate(tree.proposals)
                if any(p.drafter == name and p.rank == 0 for p in offered)
            ]
            assert int(row[f"proposed: {name}"]) == len(drafted), (
                "without nodes that the SSM was only fed"
            )
            assert int(row[f"accepted: {name}"]) == len({*drafted} & {*emitted})
            assert float(row[f"routing score after: {name}"]) == scores[name]
    assert len(results) > 1


def test_the_trace_has_the_routing_and_the_drafters_of_fused_tokens() -> None:
    events = synthetic_run(20, seed=5, mechanisms=Mechanisms(routing="cosine", draft="fused"))
    trees = [e for e in events if isinstance(e, Combined)]
    verdicts = [e for e in events if isinstance(e, Verified)]
    round_slices = check_lanes(trace_of(events))["rounds"]
    results = set()
    for one, round_event, tree, verdict in zip(
        round_slices, rounds_of(events), trees, verdicts, strict=True
    ):
        args = one["args"]
        roles = {name: text.partition(",")[0] for name, text in args["SSMs"].items()}
        assert roles == {routed.drafter: routed.role for routed in round_event.routing}
        assert args["why these SSMs"] == round_event.routing_reason
        emitted = verdict.path[: round_event.num_accepted]
        origins = args.get("fused from", [])
        assert origins == [tree.origins[node] for node in emitted]
        results |= {*origins}
    assert len(results) > 1
    plain = check_lanes(trace_of(synthetic_run(3)))["rounds"][0]["args"]
    assert not {"SSMs", "fused from", "scheduled"} & {*plain}


ENGINE_STAGES = ("combine", "llm", "verify", "commit")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\n=1", "＝1"])
def test_no_text_is_a_formula(text: str) -> None:
    events: list[Event] = list(synthetic_run(1, drafters=(text,)))
    done = events[4]
    deltas = (text, *[""] * (len(done.text_deltas) - 1))
    events[4] = dataclasses.replace(done, text_deltas=deltas, notes=(text,))
    (row,) = rows_of(events)
    assert row["text"] == row["notes"] == f"'{text}"
    for head in rounds_csv(events).splitlines()[0].split(","):
        assert not head.startswith(("=", "+", "-", "@"))


def test_the_csv_has_no_control_characters_and_no_surrogates() -> None:
    events = synthetic_run(60, seed=1, hostile=True)
    text = rounds_csv(events)
    text.encode()
    unsafe = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
    assert not unsafe.search(text)
    assert [row["round"] for row in rows_of(events)] == [str(i) for i in range(1, 61)]
    assert any("\\u202e" in row["text"] for row in rows_of(events))


def test_a_thinned_run_is_marked_in_every_export(thin_run: tuple[Event, ...]) -> None:
    document = json.loads(events_json(thin_run))
    assert document["thinned"] is True
    assert THINNED in document["summary"]["warnings"]
    assert trace_of(thin_run)["otherData"]["note"] == THINNED
    rows, complete = rows_of(thin_run), rows_of(synthetic_run(12, seed=3))
    assert {row["tree"] for row in rows} == {"accepted paths only"}
    for row, old in zip(rows, complete, strict=True):
        removed = {head for head in row if row[head] != old[head]} - {"tree"}
        assert all(row[head] == "" for head in removed)
        assert removed <= {"num_nodes", "drafted_depth"} | {
            f"{kind}: {name}" for kind in ("drafted", "proposed") for name in DRAFTERS
        }


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # three emoji, joined
        "\u06a9\u200c\u062a\u0627\u0628",  # Persian with a non-joiner
        "\u0915\u094d\u200d\u0937",  # Devanagari, half a consonant
        "\u2764\ufe0f \u05e9\u05dc\u05d5\u05dd\u200f",  # a variation selector, a direction mark
    ],
)
def test_characters_of_several_code_points_are_unchanged(text: str) -> None:
    assert csv_cell(text) == text


@pytest.mark.parametrize("text", ["\x00", "\x85", "\u202e", "\u2066", "\ud83d", "\u2028"])
def test_control_characters_and_surrogates_are_escaped(text: str) -> None:
    assert csv_cell(f"a{text}b") == f"a{text.encode('unicode_escape').decode()}b"


def check_lanes(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Asserts that slices of one thread do not overlap."""
    threads = {}
    for entry in trace["traceEvents"]:
        assert entry["ph"] in ("M", "X", "C", "i")
        if entry["name"] == "thread_name":
            threads[entry["tid"]] = entry["args"]["name"]
    assert len(set(threads.values())) == len(threads)
    lanes = defaultdict(list)
    for entry in trace["traceEvents"]:
        if entry["ph"] == "X":
            lanes[threads[entry["tid"]]].append(entry)
    for slices in lanes.values():
        previous_end = -math.inf
        for one in slices:
            start = round(one["ts"] * 1000)
            assert one["dur"] >= 0
            assert start >= previous_end
            previous_end = start + round(one["dur"] * 1000)
    return lanes


@pytest.mark.parametrize("pipeline", ["off", "ahead", "auto", "across"])
def test_the_trace_has_a_lane_for_each_stage_and_every_span(pipeline: str) -> None:
    events = synthetic_run(15, seed=4, mechanisms=Mechanisms(length="goodput", pipeline=pipeline))
    trace = trace_of(events)
    lanes = check_lanes(trace)
    firsts = [name for name in lanes if not name.endswith(")")]
    assert firsts == ["rounds", *DRAFTERS, "combine", "LLM pass", "verdict", "commit"]
    spans = sorted(
        (s.lane, s.name, s.start_ms, s.end_ms) for e in rounds_of(events) for s in e.spans
    )
    slices_of_spans = sorted(
        (one["cat"], one["name"], one["ts"] / 1000, (one["ts"] + one["dur"]) / 1000)
        for name, slices in lanes.items()
        for one in slices
        if name != "rounds"
    )
    assert [s[:2] for s in slices_of_spans] == [s[:2] for s in spans]
    for result, span in zip(slices_of_spans, spans, strict=True):
        assert result[2:] == pytest.approx(span[2:], abs=1e-5)
    ahead = [one for name in DRAFTERS for one in lanes[name] if one["name"] == "ahead"]
    assert bool(ahead) == (pipeline in ("ahead", "auto"))
    rounds = lanes["rounds"]
    assert [one["args"]["accepted"] for one in rounds] == [
        e.num_accepted for e in rounds_of(events)
    ]
    assert rounds[0]["ts"] == 0
    assert [one["name"] for one in rounds] == [f"round {n}" for n in range(1, 16)]
    of_rounds = [one for name in lanes if name != "rounds" for one in lanes[name]]
    assert {one["args"]["round"] for one in of_rounds} == set(range(1, 16))


def test_counters_of_the_trace_are_those_of_the_events() -> None:
    events = synthetic_run(10, seed=4)
    entries = trace_of(events)["traceEvents"]
    counted = defaultdict(list)
    for entry in entries:
        if entry["ph"] == "C":
            for unit, value in entry["args"].items():
                counted[f"{entry['name']} {unit}"].append(value)
    assert counted["accepted tokens"] == [e.num_accepted for e in rounds_of(events)]
    assert counted["committed tokens"][-1] == sum(len(e.token_ids) for e in rounds_of(events))
    names = [entry["name"] for entry in entries if entry["ph"] == "i"]
    assert names == ["RunStarted", "RunCompleted"]
    process = next(e for e in entries if e["name"] == "process_name")
    assert process["args"]["name"] == "SpecScope run synthetic-4"


def test_spans_that_overlap_in_a_lane_get_a_thread_each() -> None:
    events: list[Event] = list(synthetic_run(1))
    done = events[4]
    spans = (Span("a", "one", 0.0, 10.0), Span("a", "two", 5.0, 15.0), Span("a", "in", 6.0, 7.0))
    late = (Span("a", "three", 10.0, 11.0), Span("a", "back", 9.0, 8.0))
    events[4] = dataclasses.replace(done, spans=spans + late)
    lanes = check_lanes(trace_of(events))
    by_thread = {name: [one["name"] for one in lanes[name]] for name in lanes if name[0] == "a"}
    assert by_thread == {"a": ["one", "three"], "a (2)": ["two"], "a (3)": ["in"]}


def test_hostile_names_are_exported_as_data() -> None:
    events = synthetic_run(6, seed=1, drafters=HOSTILE_TEXTS[:3], hostile=True)
    start = events[0]
    assert set(HOSTILE_TEXTS[:3]) <= set(check_lanes(trace_of(events)))
    plain = json.loads(events_json(events))["events"][0]
    assert plain == json.loads(json.dumps(event_to_plain(start)))


def test_a_scheduled_rounds_grants_are_in_table_and_trace() -> None:
    part = Scheduled("shared", 3, 2, 4, None, 1, 7, 5, 9, 8, 0.1, "plain", "it pays")
    events = [
        dataclasses.replace(event, scheduled=part)
        if isinstance(event, RoundCompleted) and event.round == 1
        else event
        for event in synthetic_run(2)
    ]
    unscheduled, scheduled = rows_of(events)
    # Two columns have the prefix `schedule_`.
    renamed = {"decision": "schedule_decision", "reason": "schedule_reason"}
    heads = {field: renamed.get(field, field) for field in dataclasses.asdict(part)}
    results = {field: scheduled[head] for field, head in heads.items()}
    assert results == {f: "" if v is None else str(v) for f, v in dataclasses.asdict(part).items()}
    assert {unscheduled[head] for head in heads.values()} == {""}
    first, second = (one["args"] for one in check_lanes(trace_of(events))["rounds"])
    assert second["scheduled"] == dataclasses.asdict(part) and "scheduled" not in first
