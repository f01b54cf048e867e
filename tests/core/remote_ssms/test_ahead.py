"""Drafting ahead on drafter nodes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import msgspec
import pytest

from core import Engine, SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.drafter_weights import LikelihoodHistory, LikelihoodWeights
from core.errors import ConfigError
from core.events import Drafted, Event, RoundCompleted
from core.models.loading.load import LoadedModels
from core.remote_ssms.ahead import AheadExchange, AheadRun
from core.remote_ssms.answers import DraftClock, local_timings
from core.remote_ssms.client import RemotePool
from core.remote_ssms.messages import (
    MOST_TOKENS,
    VERSION,
    AheadDraftsMessage,
    AheadMessage,
    AheadReply,
    AheadRequest,
    DraftReply,
    DraftRequestMessage,
    HelloMessage,
    MessageError,
    OutcomeDrafts,
    RoundMessage,
    RunRequest,
    RunSettings,
    StageTimes,
    encode,
    from_node,
    to_node,
)
from core.remote_ssms.remote_ssm import RemoteSsm
from core.remote_ssms.served_run import ahead_plan
from core.remote_ssms.server import NodeServer
from core.remote_ssms.zmq_transport import ZmqTransport
from core.trees.tree import TokenTree
from tests.core.engines import ids_of_events, request, rounds_of, tables, texts_of
from tests.core.remote_ssms.fake_transport import FakeTransport
from tests.core.remote_ssms.served import (
    HASH,
    change_answers,
    engine_over,
    node_at_address,
    pool_over,
    server_of,
)
from tests.fakes import loaded_tables, sequence_of

GREEDY = SamplingParams(32, seed=1)
WARM = SamplingParams(32, temperature=0.8, seed=1)
PARTS = (("same", "ssm-2"), ("ssm-3",))
ONE = (("same", "ssm-2", "ssm-3"),)
SPECINFER = replace(SpeculationConfig.preset("specinfer"), pipeline="ahead")
SETTINGS = {
    "specinfer": SPECINFER,
    "minions": replace(SpeculationConfig.preset("minions"), pipeline="ahead"),
    "best": replace(SpeculationConfig.preset("best"), pipeline="ahead"),
    "best_first": replace(SPECINFER, draft="best_first", length="confidence"),
    "credit": replace(SPECINFER, routing="credit", routed_drafters=1),
    "auto": replace(SPECINFER, pipeline="auto"),
    "log_pool": SpeculationConfig(combine="log_pool", pipeline="ahead"),
}


def states(events: list[Event]) -> list[str]:
    return [trip.state for one in rounds_of(events) for trip in one.nodes]


def messages(transport: FakeTransport, node: int, kind: type) -> list:
    return [m for m in map(to_node, transport.sent[node]) if isinstance(m, kind)]


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "match"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_that_of_one_process(
    models: LoadedModels, name: str, sampling: SamplingParams
) -> None:
    engine, _ = engine_over(models, PARTS)
    plain = request(sampling=sampling, config=SpeculationConfig.preset("autoregressive"))
    expected = ids_of_events(Engine(models).generate(plain))
    events = list(engine.generate(request(sampling=sampling, config=SETTINGS[name])))
    assert ids_of_events(events) == expected
    # Whether an outcome is foreseen depends on the text.
    if name in ("specinfer", "best_first"):
        assert "ahead" in states(events)
    if name == "log_pool":
        assert {*states(events)} == {"in_time"}


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "match"])
def test_drafts_made_ahead_are_those_of_their_round(
    models: LoadedModels, sampling: SamplingParams
) -> None:
    config = replace(SPECINFER, max_tree_nodes=24)

    def drafts(events: list[Event]) -> list[list[tuple]]:
        return [
            [(d.drafter, d.token_ids, d.parents, d.ranks) for d in e.drafts]
            for e in events
            if isinstance(e, Drafted)
        ]

    engine, _ = engine_over(models, PARTS)
    events = list(engine.generate(request(sampling=sampling, config=config)))
    local_request = request(sampling=sampling, config=replace(config, pipeline="off"))
    assert drafts(events) == drafts(list(Engine(models).generate(local_request)))
    from_ahead = [
        draft.drafted_ahead for e in events if isinstance(e, Drafted) for draft in e.drafts
    ]
    hits = [one for each in rounds_of(events) for one in each.ahead if one.hit]
    assert sum(from_ahead) == len(hits) > 1 and all(one.wasted_ms >= 0 for one in hits)


def test_a_round_whose_drafts_were_made_ahead_sends_no_request(models: LoadedModels) -> None:
    engine, transport = engine_over(models, ONE)
    events = list(engine.generate(request(sampling=GREEDY, config=SPECINFER)))
    result = states(events)
    assert len(messages(transport, 0, RoundMessage)) == result.count("in_time")
    assert result.count("ahead") > 2
    # The commit and the draft requests of a round with state `ahead` are sent with the next tree.
    sent_texts = [run.text for m in messages(transport, 0, AheadMessage) for run in m.runs]
    assert (
        sum(bool(text.tokens and text.drafts) for text in sent_texts) >= result.count("ahead") - 1
    )


def test_several_requests_have_the_texts_of_one_process(models: LoadedModels) -> None:
    engine, transport = engine_over(models, PARTS)
    names = ("specinfer", "minions", "best_first")
    requests = [
        request(f"w{i} w2", SamplingParams(24 + i, temperature=0.8, seed=i), SETTINGS[name])
        for i, name in enumerate(names)
    ]
    assert texts_of(engine.generate_many(requests)) == texts_of(
        Engine(models).generate_many(requests)
    )
    assert max(len(m.runs) for m in messages(transport, 0, AheadMessage)) > 1


def run_with_times(pass_s: float, trip_s: float) -> tuple[float, list[Event]]:
    """Returns the seconds for which rounds waited for the node, and the run's events."""
    llm, ssms = tables(3)
    engine, transport = engine_over(loaded_tables(llm, ssms), ONE)
    transport.delay(0, trip_s)
    forward, passes_s = llm.forward, 0.0

    def timed_forward(feeds):
        nonlocal passes_s
        transport.pass_time(pass_s)
        passes_s += pass_s
        return forward(feeds)

    llm.forward = timed_forward
    began = transport.now()
    events = list(engine.generate(request(sampling=GREEDY, config=SPECINFER)))
    return transport.now() - began - passes_s, events


def test_a_round_trip_shorter_than_the_pass_is_hidden() -> None:
    hidden, ahead = run_with_times(0.03, 0.02)
    waited, late = run_with_times(0.01, 0.02)
    assert ids_of_events(ahead) == ids_of_events(late)
    assert "ahead" not in states(late) and waited == pytest.approx(0.02 * len(states(late)))
    assert states(ahead).count("ahead") > 2
    assert hidden == pytest.approx(0.02 * states(ahead).count("in_time"))


@pytest.mark.parametrize("how", ["kill", "cut", "slow"])
def test_a_missing_node_changes_no_text(models: LoadedModels, how: str) -> None:
    engine, transport = engine_over(models, PARTS)
    sampling = SamplingParams(48, temperature=0.8, seed=4)
    run_request = request(sampling=sampling, config=SPECINFER)
    expected = ids_of_events(Engine(models).generate(run_request))
    change: Callable[[], object] = {
        "kill": lambda: transport.kill(0),
        "cut": lambda: transport.cut(0),
        "slow": lambda: transport.delay(0, 5.0),
    }[how]
    back: Callable[[], object] = {
        "kill": lambda: transport.start(0, server_of(models, PARTS[0])),
        "cut": lambda: (transport.cut(0, cut=False), transport.reconnect(0)),
        "slow": lambda: (transport.delay(0, 0.0), transport.pass_time(5.0)),
    }[how]
    events, count = [], 0
    for event in engine.generate(run_request):
        events.append(event)
        if isinstance(event, RoundCompleted):
            count += 1
            {4: change, 9: back}.get(count, lambda: None)()
    assert ids_of_events(events) == expected
    assert {"ahead", "in_time"} <= {*states(events)}
    assert {"absent", "late"} & {*states(events)}


def test_a_run_that_ended_before_its_answer_came_is_forgotten(models: LoadedModels) -> None:
    run_request = request(sampling=GREEDY, config=SPECINFER)
    # An end of text cannot be foreseen: the node drafts ahead during the last pass too.
    end = ids_of_events(Engine(models).generate(run_request))[12]
    engine, transport = engine_over(replace(models, eos_ids=(end,)), ONE)
    transport.delay(0, 0.02)
    list(engine.generate(run_request))
    pool = engine.nodes
    (link,), exchange = pool.links, pool._arrivals.ahead
    assert exchange._pending  # passes take no time here, so the last answer is under way
    transport.pass_time(1.0)
    pool._arrivals.poll()
    assert not (exchange._drafts or exchange._pending or link.held_tokens)


class Interrupting(FakeTransport):
    def send(self, node: int, frame: bytes) -> None:
        server = self._servers[node]
        assert server is not None
        handle, interrupted = server.handle, threading.Event()
        if len(messages(self, node, AheadMessage)) % 2:
            interrupted.set()
        server.handle = lambda client, sent: handle(client, sent, interrupted)
        super().send(node, frame)
        server.handle = handle


@pytest.mark.parametrize("how", ["in time", "interrupted", "overtaken"])
def test_every_likelihood_is_reported_once_at_its_position(
    models: LoadedModels, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probabilities of the last tokens are not observed: no later answer reports them."""
    observed: dict[tuple[str, int], float] = {}
    observe = LikelihoodWeights.observe_likelihoods

    def noting(
        self: LikelihoodWeights, results: Mapping[str, Sequence[float]], history: LikelihoodHistory
    ) -> None:
        for name, all_ in results.items():
            for position, probability in enumerate(all_, history.positions[name] - len(all_)):
                assert (name, position) not in observed
                observed[name, position] = probability
        observe(self, results, history)

    monkeypatch.setattr(LikelihoodWeights, "observe_likelihoods", noting)
    config = replace(SPECINFER, combine="vote", expansion=(1,), speculation_length=2)
    run_request = request(sampling=GREEDY, config=config)
    list(Engine(models).generate(replace(run_request, speculation=replace(config, pipeline="off"))))
    expected, observed = observed, {}

    transport_type = Interrupting if how == "interrupted" else FakeTransport
    pool, transport = pool_over(models, [server_of(models)], transport_type)
    transport.delay(0, 0.02)
    forward, passes = models.llm.forward, 0

    def timed_forward(feeds):
        nonlocal passes
        passes += 1
        transport.pass_time(0.01 if how == "overtaken" and passes % 3 == 0 else 0.03)
        return forward(feeds)

    models.llm.forward = timed_forward
    events = list(Engine(loaded_tables(models.llm), nodes=pool).generate(run_request))
    assert {"ahead", "in_time"} == {*states(events)}
    last = {name: max(place for one, place in observed if one == name) for name, _ in observed}
    places = {key for key in expected if key[1] <= last[key[0]]}
    assert observed == pytest.approx({key: expected[key] for key in places}, nan_ok=True)
    # For each SSM, two rounds of at most 3 tokens.
    assert len(expected) - len(observed) <= 3 * 2 * len(last)


def test_likelihoods_kept_of_a_node_are_bounded(models: LoadedModels) -> None:
    ssm, sequence = RemoteSsm(models.ssms["same"].info), sequence_of([1], SPECINFER)
    ssm.open(sequence)
    for part in (0.25, 0.5):
        ssm.observe(sequence.run_id, 1.0, [part] * MOST_TOKENS)
    assert ssm.likelihoods(sequence) == [0.5] * MOST_TOKENS


WRONG_DRAFTS = {
    "token": lambda draft: msgspec.structs.replace(draft, token_ids=[9] * len(draft.token_ids)),
    "parents": lambda draft: msgspec.structs.replace(draft, parents=[5] * len(draft.parents)),
    "scores": lambda draft: msgspec.structs.replace(draft, scores=[2.0] * len(draft.scores)),
    "index": lambda draft: msgspec.structs.replace(draft, index=200),
    "ssm": lambda draft: msgspec.structs.replace(draft, ssm="no such"),
    "likelihoods": lambda draft: msgspec.structs.replace(draft, likelihoods=[7.0]),
    "deep": lambda draft: msgspec.structs.replace(
        draft,
        token_ids=[*range(8)], parents=[*range(-1, 7)], scores=[0.5] * 8, ranks=[0] * 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG_DRAFTS)
def test_wrong_drafts_are_not_used_and_change_no_text(models: LoadedModels, fault: str) -> None:
    server = server_of(models)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm), nodes=pool)

    def change(message: AheadDraftsMessage) -> AheadDraftsMessage:
        for reply in message.runs:
            reply.verified = [WRONG_DRAFTS[fault](draft) for draft in reply.verified]
            for outcome in reply.outcomes:
                outcome.drafts = [WRONG_DRAFTS[fault](draft) for draft in outcome.drafts]
        return message

    change_answers(server, AheadDraftsMessage, change)
    run_request = request(sampling=WARM, config=replace(SPECINFER, weights="full_information"))
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
    assert fault in ("likelihoods",) or "ahead" not in states(events)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: msgspec.structs.replace(m, number=m.number + 1),
        lambda m: msgspec.structs.replace(m, runs=[]),
        lambda m: msgspec.structs.replace(
            m, runs=[msgspec.structs.replace(one, run="another") for one in m.runs]
        ),
        lambda m: msgspec.structs.replace(
            m, runs=[msgspec.structs.replace(one, need=0) for one in m.runs]
        ),
    ],
    ids=["number", "no runs", "another run", "need"],
)
def test_an_answer_to_no_request_is_not_used(models: LoadedModels, change: Callable) -> None:
    server = server_of(models)
    pool, _ = pool_over(models, [server])
    engine = Engine(loaded_tables(models.llm), nodes=pool)
    change_answers(server, AheadDraftsMessage, change)
    run_request = request(sampling=WARM, config=SPECINFER)
    events = list(engine.generate(run_request))
    assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
    assert "ahead" not in states(events)


def test_no_span_of_a_node_ends_before_its_start() -> None:
    clock = DraftClock(sent=10.0, received=11.0, busy_s=0.5)
    times = [(0.0, 100.0), (400.0, 100.0), (1e7, -1e7), (-1e7, 1e7)]
    spans = local_timings("same", [StageTimes("draft", *one, 1.0) for one in times], clock)
    assert len(spans) == len(times)
    assert all(10.0 <= span.start <= span.end <= 11.0 for span in spans)


# -- the node --

OPEN = RunSettings(0.0, 0, 1.0, 0.0, 1.0, 1, "topk", "union", "paper", "all", False, [])
DRAFT_REQUEST = DraftRequestMessage("same", 0, "topk", [1, 1, 1], 3, 1.0, None)
CLIENT = b"client"


def node(models: LoadedModels) -> NodeServer:
    server = server_of(models)
    assert server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, 8)))
    return server


def text(start: int, tokens: list[int], draft_requests: list[DraftRequestMessage]) -> RunRequest:
    return RunRequest("run", start, tokens, None if start else OPEN, draft_requests, 0, [], 0)


def draft_tokens(server: NodeServer, run: RunRequest) -> tuple[list[int], list[int]]:
    frame = server.handle(CLIENT, encode(RoundMessage(1, [run])))
    assert frame is not None
    (draft,) = from_node(frame).runs[0].drafts
    return draft.token_ids, draft.parents


def test_an_interrupted_draft_is_completed_in_its_round(models: LoadedModels) -> None:
    for passes in range(16):
        server, plain = node(models), node(models)
        tokens, parents = draft_tokens(server, text(0, [1, 2, 3], [DRAFT_REQUEST]))
        assert (tokens, parents) == draft_tokens(plain, text(0, [1, 2, 3], [DRAFT_REQUEST]))

        class Interrupted:
            left = passes

            def is_set(self) -> bool:
                self.left -= 1
                return self.left < 0

        ahead_request = AheadRequest(text(3, [], []), tokens, parents, [DRAFT_REQUEST], 20)
        answer = server.handle(CLIENT, encode(AheadMessage(2, [ahead_request])), Interrupted())
        assert answer is None or isinstance(from_node(answer), AheadDraftsMessage)
        # The whole draft and the SSM's own next token: an outcome that the SSM foresees.
        committed = [
            *tokens,
            draft_tokens(node(models), text(0, [1, 2, 3, *tokens], [DRAFT_REQUEST]))[0][0],
        ]
        both = [draft_tokens(one, text(3, committed, [DRAFT_REQUEST])) for one in (server, plain)]
        assert both[0] == both[1]
    assert answer is not None


@pytest.mark.parametrize(
    "change",
    [
        {"parents": [0, 1, 2]},
        {"parents": [-1]},
        {"parents": [-2, -2, -2]},
        {"token_ids": [8, 8, 8]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, kind="fused")]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, kind="sampled")]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, ssm="no such")]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, shape=[250, 250])]},
        {"text": text(3, [99], [])},
    ],
)
def test_invalid_requests_are_not_drafted(models: LoadedModels, change: dict) -> None:
    server = node(models)
    tokens, parents = draft_tokens(server, text(0, [1, 2, 3], [DRAFT_REQUEST]))
    fields = {
        "text": text(3, [], []),
        "token_ids": tokens,
        "parents": parents,
        "drafts": [DRAFT_REQUEST],
    }
    ahead_request = AheadRequest(**{**fields, "room": 20, **change})
    frame = server.handle(CLIENT, encode(AheadMessage(2, [ahead_request])))
    assert frame is not None
    (reply,) = from_node(frame).runs
    assert not reply.outcomes
    expected = draft_tokens(node(models), text(0, [1, 2, 3, 4], [DRAFT_REQUEST]))
    assert draft_tokens(server, text(3, [4], [DRAFT_REQUEST])) == expected


def test_messages_are_bounded() -> None:
    ahead_request = AheadRequest(text(3, [], []), [1], [-1], [DRAFT_REQUEST], 20)
    frame = encode(AheadMessage(2, [ahead_request]))
    assert encode(to_node(frame)) == frame
    for wrong in (
        {"drafts": []},
        {"room": -1},
        {"token_ids": [1] * 300},
        {"drafts": [DRAFT_REQUEST] * 17},
    ):
        with pytest.raises(MessageError):
            to_node(encode(AheadMessage(2, [msgspec.structs.replace(ahead_request, **wrong)])))
    answer = AheadDraftsMessage(2, 0.0, [])
    assert from_node(encode(answer)) == answer
    for wrong in ({"busy_ms": -1.0}, {"busy_ms": float("nan")}, {"number": -1}):
        with pytest.raises(MessageError):
            from_node(encode(msgspec.structs.replace(answer, **wrong)))
    for end in range(len(frame)):
        with pytest.raises(MessageError):
            to_node(frame[:end])


def test_a_draft_is_cut_to_the_room_of_the_text(models: LoadedModels) -> None:
    server = node(models)
    tokens, parents = draft_tokens(server, text(0, [1, 2, 3], [DRAFT_REQUEST]))
    (run,) = server._runs.values()
    ahead_request = AheadRequest(text(3, [], []), tokens, parents, [DRAFT_REQUEST], 3)
    plan = ahead_plan(ahead_request, run, 8)
    shapes = [[len(one.shape) for one in each.values()] for each in plan.requests]
    assert shapes == [[2], [1], [], []]
    with pytest.raises(ConfigError, match="parents"):
        ahead_plan(msgspec.structs.replace(ahead_request, parents=[-1]), run, 8)


def test_drafts_are_made_ahead_over_sockets(models: LoadedModels) -> None:
    with node_at_address(server_of(models), None) as address:
        transport = ZmqTransport([address], None)
        with closing(RemotePool(transport, [address], HASH, 8, 10.0).connect(())) as pool:
            engine = Engine(loaded_tables(models.llm), nodes=pool)
            forward, arrivals = models.llm.forward, pool._arrivals

            def slow(feeds):
                until = transport.now() + 2
                while arrivals.ahead._pending and transport.now() < until:
                    arrivals.poll(transport.now() + 0.02)
                return forward(feeds)

            models.llm.forward = slow
            for sampling in (GREEDY, WARM):
                run_request = request(sampling=sampling, config=SPECINFER)
                events = list(engine.generate(run_request))
                # At T = 0.8, these SSMs seldom foresee the tokens that the LLM draws.
                assert "ahead" in states(events) or sampling is WARM
                models.llm.forward = forward
                assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
                models.llm.forward = slow


def test_drafts_made_ahead_keep_to_the_budget_of_their_round(models: LoadedModels) -> None:
    exchange = AheadExchange(8)
    engine = Engine(models)
    sequence = engine.prepare(request(config=SPECINFER))
    length = len(sequence.tokens)
    draft_request = DraftRequest(sequence, 0, "topk", (1,) + (2,) * 3, 8, "same")
    run = AheadRun(sequence, TokenTree(), (draft_request,), (), {}, 20)
    draft = DraftReply("same", 0, [*range(8)], [-1] * 8, [0.1] * 8, [0] * 8, [], 1, [], 1.0, [], [])
    reply = AheadReply("run", length, -1, [], [OutcomeDrafts([5], 0.9, [draft])], [])
    for budget, is_used in ((8, True), (7, False)):
        reply.run = sequence.run_id
        exchange.record_sent(0, 1, 0.0, [run])
        message = AheadDraftsMessage(1, 1.0, [reply])
        assert exchange.accept(0, message, 0.1, 0.0, {"same": "same"}, in_round=False)
        sequence.tokens.append(5)
        now = replace(draft_request, budget=budget)
        result = exchange.ready_drafts(0, sequence, [now])
        assert (result is not None) == is_used
        sequence.tokens.pop()
