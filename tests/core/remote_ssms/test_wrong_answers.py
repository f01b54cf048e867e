"""Wrong and too large answers of nodes do not change any text."""

import itertools
import json
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from core import Engine, Request, SamplingParams
from core.events import RunCompleted, event_to_plain
from core.remote_ssms import replies
from core.remote_ssms.messages import Audition, DraftsMessage, StageTimes, from_node
from core.remote_ssms.server import NodeServer
from tests.core.engines import ids_of_events, request, rounds_of
from tests.core.remote_ssms.served import change_answers, engine_over, pool_over, server_of
from tests.core.remote_ssms.settings import PARTS, SETTINGS, WARM, rounds_while, states
from tests.fakes import loaded_tables

WRONG_DRAFTS: dict[str, dict[str, object]] = {
    "a token that is none": {"token_ids": [8]},
    "a parent that is later": {"parents": [1]},
    "no number": {"scores": [float("nan")]},
    "lists of different lengths": {"ranks": []},
    "more nodes than asked for": {
        "token_ids": [1] * 99, "parents": [*range(-1, 98)], "scores": [0.5] * 99, "ranks": [0] * 99,
    },
    "origins of other nodes": {"origins": [0, 0]},
    "an origin that is none": {"origins": [1 << 40]},
    "an origin that is before the first": {"origins": [-1]},
    "an origin of which no draft was requested": {"origins": [0]},
    "a likelihood above 1": {"likelihoods": [1e300]},
    "a likelihood without bound": {"likelihoods": [float("inf")]},
}  # fmt: skip


@pytest.mark.loses_drafters
@pytest.mark.parametrize("fault", WRONG_DRAFTS.values(), ids=WRONG_DRAFTS)
def test_drafts_that_cannot_be_verified_drop_their_ssm(models, fault: dict[str, object]) -> None:
    server = server_of(models, ["ssm-3"])
    reply = {"token_ids": [1], "parents": [-1], "scores": [0.5], "ranks": [0], "origins": []}

    def with_fault(message: DraftsMessage) -> DraftsMessage:
        runs = [
            replace_fields(run, drafts=[replace_fields(d, **(reply | fault)) for d in run.drafts])
            for run in message.runs
        ]
        return replace_fields(message, runs=runs)

    change_answers(server, DraftsMessage, with_fault)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    run_request = request(sampling=WARM, config=SETTINGS["specinfer"])
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
    (note,) = [note for one in rounds_of(events) for note in one.notes]
    assert note.startswith("drafter ssm-3 failed (NodeError: node 10.0.0.1:7000: ")


OUT_OF_BOUNDS = (float("nan"), float("inf"), -float("inf"), 1e300)


@pytest.mark.parametrize("value", OUT_OF_BOUNDS, ids=str)
@pytest.mark.parametrize("field", ["busy_ms", "temperature", "share", "log_probs", "ms"])
def test_numbers_out_of_bounds_make_a_message_invalid(models, field: str, value: float) -> None:
    server = server_of(models, ["ssm-3"])

    def with_value(message: DraftsMessage) -> DraftsMessage:
        if field == "busy_ms":
            return replace_fields(message, busy_ms=value)
        runs = []
        for run in message.runs:
            changes: dict[str, object] = {}
            if field in ("log_probs", "ms"):
                fault: object = value if field == "ms" else [value] * 8
                audition = Audition("ssm-3", [-1.0] * 8, 1.0)
                changes = {"auditions": [replace_fields(audition, **{field: fault})]}
            elif field == "temperature":
                changes = {"drafts": [replace_fields(d, temperature=value) for d in run.drafts]}
            else:
                stage = StageTimes("draft", 0.0, 1.0, value)
                changes = {"drafts": [replace_fields(d, stages=[stage]) for d in run.drafts]}
            runs.append(replace_fields(run, **changes))
        return replace_fields(message, runs=runs)

    change_answers(server, DraftsMessage, with_value)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    config = SETTINGS["credit" if field in ("log_probs", "ms") else "specinfer"]
    run_request = request(sampling=WARM, config=config)
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
    assert isinstance(events[-1], RunCompleted)
    assert states(events, 0)[-1] == "absent" and engine.nodes is not None
    assert "no message of version" in engine.nodes.links[0].refusal
    for event in events:
        json.dumps(event_to_plain(event), allow_nan=False)


@pytest.mark.parametrize("name", ["same", "ssm-3"])
@pytest.mark.parametrize("tokens", [3, 500])
def test_an_audition_of_other_tokens_ends_no_run(models, name: str, tokens: int) -> None:
    """The SSM `same` is not a drafter of the run."""
    server = server_of(models)
    fits = itertools.cycle([-6.0, 0.0])

    def with_audition(message: DraftsMessage) -> DraftsMessage:
        runs = []
        for run in message.runs:
            # Auditions that take no time are requested again and again.
            results = [replace_fields(one, ms=0.0) for one in run.auditions]
            fault = [Audition(name, [next(fits)] * tokens, 0.0)] if results else []
            runs.append(replace_fields(run, auditions=[*results, *fault]))
        return replace_fields(message, runs=runs)

    change_answers(server, DraftsMessage, with_audition)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm, []), nodes=pool)
    config = replace(SETTINGS["credit"], drafters=("ssm-2", "ssm-3"))
    run_request = Request("w1 w2 w3", SamplingParams(50, seed=1), config)
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request)), events[-1]


def server_with_one_other_answer(models, number: int, frame: bytes | None) -> NodeServer:
    """If `frame` is None, the answer never comes."""
    server = server_of(models, ["ssm-3"])
    original, rounds = server.handle, itertools.count(1)

    def handle(client: bytes, request_frame: bytes) -> bytes | None:
        answer = original(client, request_frame)
        drafts = answer is not None and isinstance(from_node(answer), DraftsMessage)
        return frame if drafts and next(rounds) == number else answer

    server.handle = handle
    return server


def test_after_an_invalid_frame_a_node_is_used_again(models) -> None:
    pool, transport = pool_over(models, [server_with_one_other_answer(models, 3, b"no message")])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    pause = {n: lambda: transport.pass_time(0.3) for n in range(1, 20)}
    result = states(rounds_while(engine, SETTINGS["specinfer"], pause), 0)
    assert result[:3] == ["in_time", "in_time", "absent"] and result[-1] == "in_time"


def test_an_answer_that_never_comes_is_given_up(models) -> None:
    pool, transport = pool_over(models, [server_with_one_other_answer(models, 2, None)])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    pause = {n: lambda: transport.pass_time(12.0) for n in range(1, 20)}
    result = states(rounds_while(engine, SETTINGS["specinfer"], pause), 0)
    assert result[:2] == ["in_time", "late"] and "absent" in result and result[-1] == "in_time"


def test_answers_above_the_limit_change_no_text_and_are_reported(
    models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = engine_over(models, PARTS)
    monkeypatch.setattr(replies, "LARGEST_FRAME", 10)
    run_request = request(sampling=WARM, config=SETTINGS["specinfer"])
    events = list(engine.generate(run_request))
    assert isinstance(events[-1], RunCompleted)
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
    notes = [note for one in rounds_of(events) for note in one.notes]
    assert len(notes) == 2, notes
    for number, note in enumerate(notes, 1):
        assert note.startswith(f"node 10.0.0.{number}:7000 refused the round (its answer has ")
        assert "bytes: at most 10 are sent" in note
