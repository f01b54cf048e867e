"""Nodes in this process, on a clock of the test: texts, messages, and nodes that are missing."""

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from core import Engine, Request, SamplingParams, SpeculationConfig, Worker
from core.engine import worker as worker_module
from core.errors import ConfigError, NodeError
from core.events import Drafted, Event, RoundCompleted, RunCompleted, event_to_plain
from core.nodes import replies, run_requests
from core.nodes.client import RemotePool
from core.nodes.messages import (
    VERSION,
    Audition,
    DraftsMessage,
    RoundMessage,
    StageTimes,
    from_node,
    to_node,
)
from core.nodes.server import NodeServer
from tests.core.engines import ids_of_events, open_rows, request, rounds_of, texts_of
from tests.core.gated import all_of, until
from tests.core.nodes.fake_transport import FakeTransport
from tests.core.nodes.served import HASH, change_answers, engine_over, pool_over, server_of
from tests.fakes import loaded_tables

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


# -- texts --


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "match"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_that_of_one_process(models, name: str, sampling: SamplingParams) -> None:
    engine, transport = engine_over(models, PARTS)
    run_request = request(sampling=sampling, config=SETTINGS[name])
    plain = request(sampling=sampling, config=SpeculationConfig.preset("autoregressive"))
    expected = ids_of_events(Engine(models).generate(plain))
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == expected
    assert {trip.state for one in rounds_of(events) for trip in one.nodes} == {"in_time"}
    drafts = [draft for e in events if isinstance(e, Drafted) for draft in e.drafts]
    assert any(draft.token_ids for draft in drafts)
    transport.close()


@pytest.mark.parametrize("name", ["specinfer", "minions", "best_first", "weighted"])
def test_drafts_are_those_of_one_process(models, name: str) -> None:
    """Not only the text: what a node drafts is what the SSM would have drafted here."""
    engine, _ = engine_over(models, PARTS)
    # A budget that is given: `auto` measures.
    run_request = request(sampling=WARM, config=replace(SETTINGS[name], max_tree_nodes=24))

    def drafts(events: Iterator[Event]) -> list[list[tuple]]:
        return [
            [(d.drafter, d.token_ids, d.parents, d.scores, d.ranks) for d in e.drafts]
            for e in events
            if isinstance(e, Drafted)
        ]

    assert drafts(engine.generate(run_request)) == drafts(Engine(models).generate(run_request))


@pytest.mark.parametrize("schedule", ["each", "cosine", "shared"])
def test_several_requests_share_messages(models, schedule: str) -> None:
    engine, transport = engine_over(models, PARTS, schedule=schedule)
    asked = [
        request(f"w{i} w2", SamplingParams(12 + i, temperature=0.8, seed=i), SETTINGS[name])
        for i, name in enumerate(("cosine", "specinfer", "cosine", "minions"))
    ]
    expected = texts_of(Engine(models).generate_many(asked))
    assert texts_of(engine.generate_many(asked)) == expected
    assert max(len(one.runs) for one in sent_rounds(transport, 0)) > 1


def test_drafters_here_and_on_nodes_draft_together(models) -> None:
    pool, _ = pool_over(models, [server_of(models, ["ssm-2", "ssm-3"])])
    here = loaded_tables(models.llm, [models.ssms["same"]])
    engine = Engine(here, nodes=pool)
    for name in ("specinfer", "cosine", "credit"):
        # A budget that no clock decides: one of a node or two leaves some drafters nothing.
        run_request = request(sampling=WARM, config=replace(SETTINGS[name], max_tree_nodes=12))
        events = list(engine.generate(run_request))
        assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
        trips = sum(trip.drafts for one in rounds_of(events) for trip in one.nodes)
        names = {d.drafter for e in events if isinstance(e, Drafted) for d in e.drafts}
        assert name == "credit" or (trips and len(names) > 1)
    assert engine.models.drafter_names == ("same", "ssm-2", "ssm-3")


def test_likeliest_tokens_of_a_node_are_those_of_its_ssm(models) -> None:
    config = SpeculationConfig(
        record_top_k=3, expansion=(2, 2), speculation_length=3, max_tree_nodes=16
    )
    engine, _ = engine_over(models, PARTS)

    def top(engine: Engine) -> list[list[tuple]]:
        return [
            [(t.node, t.source, t.token_ids, t.probabilities) for t in e.top_k]
            for e in engine.generate(request(config=config))
            if hasattr(e, "top_k")
        ]

    result, expected = top(engine), top(Engine(models))
    assert len(result) == len(expected) > 2
    for ours, theirs in zip(result, expected, strict=True):
        assert [one[:3] for one in ours] == [one[:3] for one in theirs]
        assert any(source != "llm" for _, source, _, _ in ours)


# -- messages --


def test_one_message_a_node_a_round(models) -> None:
    """The commit of the last round is in the ask of this one, and so is the opening."""
    engine, transport = engine_over(models, PARTS)
    for name in ("specinfer", "minions"):
        before = [len(sent_rounds(transport, node)) for node in range(2)]
        events = list(engine.generate(request(sampling=WARM, config=SETTINGS[name])))
        drafted = sum(any(d.token_ids for d in e.drafts) for e in events if isinstance(e, Drafted))
        for node in range(2):
            rounds = sent_rounds(transport, node)[before[node] :]
            # A round after which nothing is drafted sends the node nothing.
            asked = sum(any(t.node == f"10.0.0.{node + 1}:7000" for t in e.nodes)
                        for e in rounds_of(events))  # fmt: skip
            assert len(rounds) == asked >= drafted
    # A hello at the start, and a farewell for each of two runs.
    extra = [len(transport.sent[n]) - len(sent_rounds(transport, n)) for n in range(2)]
    assert extra == [3, 3]


def test_a_round_brings_the_new_tokens_alone(models) -> None:
    engine, transport = engine_over(models, [("same",)])
    events = list(engine.generate(request(config=SETTINGS["specinfer"])))
    first, *others = sent_rounds(transport, 0)
    assert first.runs[0].start == 0 and first.runs[0].settings is not None
    assert all(one.runs[0].settings is None for one in others)
    committed = [len(e.token_ids) for e in rounds_of(events)]
    assert [len(one.runs[0].tokens) for one in others] == committed[: len(others)]


# -- missing nodes --


def rounds_while(
    engine: Engine,
    config: SpeculationConfig,
    changes: dict[int, Callable[[], object]],
    length: int = 40,
) -> list[Event]:
    """The events of a run; `changes[n]` is called after its n-th round."""
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


@pytest.mark.parametrize("name", ["specinfer", "cosine"])
@pytest.mark.parametrize("how", ["kill", "cut", "slow"])
def test_a_missing_node_changes_no_text(models, name: str, how: str) -> None:
    engine, transport = engine_over(models, PARTS)
    # Not `auto`: by what passes take on a busy machine some SSMs would have no share.
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
    assert ("late" if how == "slow" else "absent" if how == "kill" else "late") in result
    assert set(states(events, 1)) == {"in_time"}, "the other node's drafts are used"
    notes = [note for one in rounds_of(events) for note in one.notes if "10.0.0.1" in note]
    assert len(notes) == 2 and "drafts again" in notes[1], notes


def test_a_run_that_begins_while_a_node_is_missing_says_so(models) -> None:
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
    took = [after - before for before, after in zip(times, times[1:], strict=False)]
    # One round waits, to the deadline and no longer; then it gets no request until it answers.
    assert max(took) == pytest.approx(0.05) and sum(one > 0 for one in took) == 1


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


def test_a_node_slower_than_its_deadline_is_learned(models) -> None:
    """Late at first; its late answers tell how long it takes, and the deadline grows."""
    engine, transport = engine_over(models, [("same",)])
    transport.delay(0, 0.2)
    events = rounds_while(
        engine, SETTINGS["specinfer"], {n: lambda: transport.pass_time(0.2) for n in (1, 3)}
    )
    result = states(events, 0)
    assert result[0] == "late" and result[-1] == "in_time"


@pytest.mark.loses_drafters
def test_a_failing_ssm_is_dropped_by_name(models) -> None:
    engine, _ = engine_over(models, PARTS)

    def fail(feeds: object) -> None:
        raise RuntimeError("out of memory reading caf\udce9.bin")  # a path that is no UTF-8

    models.ssms["ssm-3"].forward = fail
    events = list(engine.generate(request(config=SETTINGS["specinfer"])))
    (note,) = [note for one in rounds_of(events) for note in one.notes]
    assert note.startswith("drafter ssm-3 failed (NodeError: node 10.0.0.2:7000: RuntimeError: out")
    assert "caf\\udce9.bin" in note
    names = [{d.drafter for d in e.drafts} for e in events if isinstance(e, Drafted)]
    assert all("ssm-3" not in one for one in names)


# -- refusals --


@pytest.mark.parametrize("draft", ["sampled", "sampled_iid"])
def test_drafts_that_are_drawn_are_refused_by_name(models, draft: str) -> None:
    engine, _ = engine_over(models, PARTS)
    config = SpeculationConfig(draft=draft, verify="match")
    with pytest.raises(ConfigError, match=f"draft is '{draft}': auto, topk.* with drafters on"):
        list(engine.generate(request(sampling=WARM, config=config)))


@pytest.mark.parametrize("verify", ["mss", "traversal"])
def test_rules_that_read_q_are_refused_by_name(models, verify: str) -> None:
    engine, _ = engine_over(models, PARTS)
    config = SpeculationConfig(verify=verify)
    with pytest.raises(ConfigError, match=f"verify is '{verify}': greedy or match .*same, ssm-2"):
        list(engine.generate(request(sampling=WARM, config=config)))


def test_nodes_of_another_kind_are_refused_by_name(models) -> None:
    for tokenizer, vocab, words in (("aa" * 32, 8, "tokenizer is aaaa"), (HASH, 0, "vocab_size")):
        transport = FakeTransport([server_of(models)])
        pool = RemotePool(transport, ["10.0.0.1:7000"], tokenizer, vocab)
        with pytest.raises(NodeError, match=f"node is '10.0.0.1:7000': .*{words}"):
            pool.connect(())


def test_another_version_is_refused_by_name(models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.nodes.client.VERSION", VERSION + 1)
    message = f"version is {VERSION + 1}: {VERSION} is that of this node"
    with pytest.raises(NodeError, match=message):
        pool_over(models, [server_of(models)])


def test_a_node_that_is_not_there_is_named(models) -> None:
    transport = FakeTransport([server_of(models)])
    transport.kill(0)
    pool = RemotePool(transport, ["10.0.0.1:7000"], HASH, 8)
    with pytest.raises(NodeError, match="no node answered there within 60 s"):
        pool.connect(())
    assert transport.now() == pytest.approx(60)


def test_a_node_may_come_later(models) -> None:
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


def test_ssms_of_one_name_are_distinguished(models) -> None:
    pool, _ = pool_over(models, [server_of(models), server_of(models)])
    assert [*pool.drafters] == ["same", "ssm-2", "ssm-3", "same-2", "ssm-2-2", "ssm-3-2"]
    engine = Engine(loaded_tables(models.llm), nodes=pool)
    run_request = request(sampling=WARM, config=SETTINGS["specinfer"])
    assert ids_of_events(engine.generate(run_request)) == ids_of_events(
        Engine(models).generate(run_request)
    )


def test_nothing_is_left_on_a_node(models) -> None:
    servers = [server_of(models, part) for part in PARTS]
    pool, transport = pool_over(models, servers)
    engine = Engine(loaded_tables(models.llm), nodes=pool)
    for name in SETTINGS:
        list(engine.generate(request(sampling=WARM, config=SETTINGS[name])))
    # SSMs here draft, those of the node are auditioned.
    alone = server_of(models, ["ssm-2", "ssm-3"])
    mixed, _ = pool_over(models, [alone])
    beside = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=mixed)
    for seed in range(8):
        sampling = replace(WARM, seed=seed)
        config = SpeculationConfig(routing="cosine", routed_drafters=1)
        list(beside.generate(request(sampling=sampling, config=config)))
    assert (
        not mixed._arrivals.open_runs and not mixed.links[0].held_tokens and len(alone._runs) == 0
    )
    events = engine.generate(request(sampling=WARM, config=SETTINGS["cosine"]))
    next(one for one in events if isinstance(one, RoundCompleted))
    events.close()  # cancelled
    pool.begin([])
    assert not pool._arrivals.open_runs and not any(link.held_tokens for link in pool.links)
    assert [len(server._runs) for server in servers] == [0, 0]
    assert all(model.open_rows == () for model in models.ssms.values())
    assert open_rows(engine) == [()]


def test_random_runs_with_random_failures(models) -> None:
    """Twenty runs in which nodes die, stall and return at random: the text never changes."""
    chance = random.Random(5)
    servers = [server_of(models, part) for part in PARTS]
    pool, transport = pool_over(models, servers)
    engine = Engine(loaded_tables(models.llm), nodes=pool)

    def change() -> None:
        node = chance.randrange(2)
        what = chance.randrange(5)
        if what == 0:
            transport.kill(node)
        elif what == 1:
            transport.kill(node)
            transport.start(node, server_of(models, PARTS[node]))
        elif what == 2:
            transport.cut(node, cut=chance.random() < 0.5)
            transport.reconnect(node)
        elif what == 3:
            transport.delay(node, chance.choice([0.0, 0.04, 0.3]))
        else:
            transport.pass_time(0.3)

    for seed in range(20):
        name = chance.choice([*SETTINGS])
        sampling = SamplingParams(20, temperature=chance.choice([0.0, 0.8]), seed=seed)
        run_request = Request("w1 w2 w3", sampling, SETTINGS[name])
        events: list[Event] = []
        for event in engine.generate(run_request):
            events.append(event)
            if isinstance(event, RoundCompleted) and chance.random() < 0.5:
                change()
        assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request)), name


# -- a node that sends wrong answers --


LIES: dict[str, dict[str, object]] = {
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
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_drafts_that_cannot_be_verified_drop_their_ssm(models, lie: dict[str, object]) -> None:
    server = server_of(models, ["ssm-3"])
    reply = {"token_ids": [1], "parents": [-1], "scores": [0.5], "ranks": [0], "origins": []}

    def with_lie(message: DraftsMessage) -> DraftsMessage:
        runs = [
            replace_fields(run, drafts=[replace_fields(d, **(reply | lie)) for d in run.drafts])
            for run in message.runs
        ]
        return replace_fields(message, runs=runs)

    change_answers(server, DraftsMessage, with_lie)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    run_request = request(sampling=WARM, config=SETTINGS["specinfer"])
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
    (note,) = [note for one in rounds_of(events) for note in one.notes]
    assert note.startswith("drafter ssm-3 failed (NodeError: node 10.0.0.1:7000: ")


NO_NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e300)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
@pytest.mark.parametrize("field", ["busy_ms", "temperature", "share", "log_probs", "ms"])
def test_numbers_that_are_none_are_no_message(models, field: str, value: float) -> None:
    """Of what is no draft: the node is left out, and no event has such a number."""
    server = server_of(models, ["ssm-3"])

    def with_value(message: DraftsMessage) -> DraftsMessage:
        if field == "busy_ms":
            return replace_fields(message, busy_ms=value)
        runs = []
        for run in message.runs:
            changes: dict[str, object] = {}
            if field in ("log_probs", "ms"):
                lie: object = value if field == "ms" else [value] * 8
                audition = Audition("ssm-3", [-1.0] * 8, 1.0)
                changes = {"auditions": [replace_fields(audition, **{field: lie})]}
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
    """A router compares what SSMs give to the same tokens. `same` does not draft for the run."""
    server = server_of(models)
    fits = itertools.cycle([-6.0, 0.0])

    def with_audition(message: DraftsMessage) -> DraftsMessage:
        runs = []
        for run in message.runs:
            # Free, so that they are requested again and again.
            results = [replace_fields(one, ms=0.0) for one in run.auditions]
            lie = [Audition(name, [next(fits)] * tokens, 0.0)] if results else []
            runs.append(replace_fields(run, auditions=[*results, *lie]))
        return replace_fields(message, runs=runs)

    change_answers(server, DraftsMessage, with_audition)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm, []), nodes=pool)
    config = replace(SETTINGS["credit"], drafters=("ssm-2", "ssm-3"))
    run_request = Request("w1 w2 w3", SamplingParams(50, seed=1), config)
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request)), events[-1]


def server_with_one_other_answer(models, number: int, frame: bytes | None) -> NodeServer:
    """A node whose answer to this round of drafts is `frame`; None: it never comes."""
    server = server_of(models, ["ssm-3"])
    honest, rounds = server.handle, itertools.count(1)

    def handle(client: bytes, asked: bytes) -> bytes | None:
        answer = honest(client, asked)
        drafts = answer is not None and isinstance(from_node(answer), DraftsMessage)
        return frame if drafts and next(rounds) == number else answer

    server.handle = handle
    return server


def test_after_one_bad_frame_a_node_is_introduced_again(models) -> None:
    pool, transport = pool_over(models, [server_with_one_other_answer(models, 3, b"no message")])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    pause = {n: lambda: transport.pass_time(0.3) for n in range(1, 20)}
    result = states(rounds_while(engine, SETTINGS["specinfer"], pause), 0)
    assert result[:3] == ["in_time", "in_time", "absent"] and result[-1] == "in_time"


def test_an_answer_that_never_comes_is_given_up(models) -> None:
    """The connection stays, as with a node whose one thread hangs."""
    pool, transport = pool_over(models, [server_with_one_other_answer(models, 2, None)])
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    pause = {n: lambda: transport.pass_time(12.0) for n in range(1, 20)}
    result = states(rounds_while(engine, SETTINGS["specinfer"], pause), 0)
    assert result[:2] == ["in_time", "late"] and "absent" in result and result[-1] == "in_time"


def test_answers_above_the_limit_change_no_text_and_are_said(
    models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is refused by its node; the run goes on, and says it once."""
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


def test_one_slow_answer_makes_no_round_slow(models) -> None:
    """However late a node was, a round waits for it a second at most, and not at all in vain."""
    engine, transport = engine_over(models, PARTS)
    transport.delay(0, 5.0)
    times = [transport.now()]
    pause = 6.0  # the answer to the round before is there

    def next_round() -> None:
        times.append(transport.now())
        transport.pass_time(pause)

    events = rounds_while(engine, SETTINGS["specinfer"], dict.fromkeys(range(1, 40), next_round))
    waits = [b - a - pause for a, b in zip(times[1:], times[2:], strict=False)]
    assert set(states(events, 0)) == {"late"} and len(waits) > 8
    assert max(waits) <= 1.0 + 1e-6 and sum(waits) < 2.0


def test_drafting_here_is_no_part_of_a_round_trip(models) -> None:
    """An answer that was there before it was read: its trip is work and wire."""
    pool, transport = pool_over(models, [server_of(models, ["ssm-2", "ssm-3"])])
    slow = models.ssms["same"].forward

    def forward(feeds):
        transport.pass_time(0.4)
        return slow(feeds)

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
        if isinstance(event, RunCompleted):  # nothing reads the transport meanwhile
            transport.kill(0)
            transport.start(0, server_of(models, PARTS[0]))

    with closing(Worker(engine, threads=1)) as worker:
        all_of(worker.submit(run_request, restart))
        until(lambda: engine.nodes.links[0].starts == 2)
        assert {*states(all_of(worker.submit(run_request)), 0)} == {"in_time"}


def test_a_text_longer_than_nodes_take_is_said_once(
    models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_requests, "MOST_TOKENS", 12)
    engine, _ = engine_over(models, PARTS)
    for _ in range(2):
        run_request = request(sampling=WARM, config=SETTINGS["specinfer"])
        events = list(engine.generate(run_request))
        assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
        assert states(events, 0) and len(states(events, 0)) < len(rounds_of(events))
        (note,) = [note for one in rounds_of(events) for note in one.notes]
        assert note.startswith("nodes take texts of at most ")


def test_a_node_has_not_drafted_for_longer_than_its_round_trip(models) -> None:
    server = server_of(models, ["ssm-3"])
    change_answers(server, DraftsMessage, lambda message: replace_fields(message, busy_ms=1e7))
    pool, transport = pool_over(models, [server])
    transport.delay(0, 0.01)
    engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=pool)
    events = list(engine.generate(request(config=SETTINGS["specinfer"])))
    trips = [trip for one in rounds_of(events) for trip in one.nodes]
    assert {trip.state for trip in trips} == {"in_time"}
    assert all(trip.busy_ms <= trip.round_trip_ms for trip in trips)
