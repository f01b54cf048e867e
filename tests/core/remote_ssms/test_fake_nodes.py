"""Nodes in this process, with the test's own clock."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from core import Engine, SamplingParams, SpeculationConfig
from core.errors import ConfigError, NodeError
from core.events import Drafted, Event, RoundCompleted
from core.remote_ssms import run_requests
from core.remote_ssms.client import RemotePool
from core.remote_ssms.messages import VERSION
from tests.core.engines import ids_of_events, open_rows, request, rounds_of, texts_of
from tests.core.remote_ssms.fake_transport import FakeTransport
from tests.core.remote_ssms.served import HASH, engine_over, pool_over, server_of
from tests.core.remote_ssms.settings import GREEDY, PARTS, SETTINGS, WARM, sent_rounds, states
from tests.fakes import loaded_tables

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
    engine, _ = engine_over(models, PARTS)
    # `max_tree_nodes` is given, since `auto` measures costs.
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
    requests = [
        request(f"w{i} w2", SamplingParams(12 + i, temperature=0.8, seed=i), SETTINGS[name])
        for i, name in enumerate(("cosine", "specinfer", "cosine", "minions"))
    ]
    expected = texts_of(Engine(models).generate_many(requests))
    assert texts_of(engine.generate_many(requests)) == expected
    assert max(len(one.runs) for one in sent_rounds(transport, 0)) > 1


def test_local_ssms_and_ssms_on_nodes_draft_together(models) -> None:
    pool, _ = pool_over(models, [server_of(models, ["ssm-2", "ssm-3"])])
    local_models = loaded_tables(models.llm, [models.ssms["same"]])
    engine = Engine(local_models, nodes=pool)
    for name in ("specinfer", "cosine", "credit"):
        # `auto` measures costs: a limit of 1 or 2 would leave some SSMs without tree nodes.
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


def test_a_round_sends_each_node_one_message(models) -> None:
    engine, transport = engine_over(models, PARTS)
    for name in ("specinfer", "minions"):
        before = [len(sent_rounds(transport, node)) for node in range(2)]
        events = list(engine.generate(request(sampling=WARM, config=SETTINGS[name])))
        drafted = sum(any(d.token_ids for d in e.drafts) for e in events if isinstance(e, Drafted))
        for node in range(2):
            rounds = sent_rounds(transport, node)[before[node] :]
            # A round without a draft request sends the node nothing.
            expected = sum(any(t.node == f"10.0.0.{node + 1}:7000" for t in e.nodes)
                        for e in rounds_of(events))  # fmt: skip
            assert len(rounds) == expected >= drafted
    # A hello at the start, and a farewell for each of two runs.
    extra = [len(transport.sent[n]) - len(sent_rounds(transport, n)) for n in range(2)]
    assert extra == [3, 3]


def test_a_rounds_message_has_only_the_new_tokens(models) -> None:
    engine, transport = engine_over(models, [("same",)])
    events = list(engine.generate(request(config=SETTINGS["specinfer"])))
    first, *others = sent_rounds(transport, 0)
    assert first.runs[0].start == 0 and first.runs[0].settings is not None
    assert all(one.runs[0].settings is None for one in others)
    committed = [len(e.token_ids) for e in rounds_of(events)]
    assert [len(one.runs[0].tokens) for one in others] == committed[: len(others)]


@pytest.mark.loses_drafters
def test_a_failing_ssm_is_dropped_by_name(models) -> None:
    engine, _ = engine_over(models, PARTS)

    def fail(feeds: object) -> None:
        raise RuntimeError("out of memory reading caf\udce9.bin")  # a path that is not UTF-8

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
    with pytest.raises(
        ConfigError, match=f"verify is '{verify}': it must be greedy or match .*same, ssm-2"
    ):
        list(engine.generate(request(sampling=WARM, config=config)))


def test_nodes_with_another_vocabulary_are_refused_by_name(models) -> None:
    for tokenizer, vocab, words in (("aa" * 32, 8, "tokenizer is aaaa"), (HASH, 0, "vocab_size")):
        transport = FakeTransport([server_of(models)])
        pool = RemotePool(transport, ["10.0.0.1:7000"], tokenizer, vocab)
        with pytest.raises(NodeError, match=f"node is '10.0.0.1:7000': .*{words}"):
            pool.connect(())


def test_another_version_is_refused_by_name(models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.remote_ssms.client.VERSION", VERSION + 1)
    message = f"version is {VERSION + 1}: {VERSION} is allowed by this node"
    with pytest.raises(NodeError, match=message):
        pool_over(models, [server_of(models)])


def test_a_missing_node_is_named(models) -> None:
    transport = FakeTransport([server_of(models)])
    transport.kill(0)
    pool = RemotePool(transport, ["10.0.0.1:7000"], HASH, 8)
    with pytest.raises(NodeError, match="no node answered there within 60 s"):
        pool.connect(())
    assert transport.now() == pytest.approx(60)


def test_ssms_of_one_name_are_distinguished(models) -> None:
    pool, _ = pool_over(models, [server_of(models), server_of(models)])
    assert [*pool.drafters] == ["same", "ssm-2", "ssm-3", "same-2", "ssm-2-2", "ssm-3-2"]
    engine = Engine(loaded_tables(models.llm), nodes=pool)
    run_request = request(sampling=WARM, config=SETTINGS["specinfer"])
    assert ids_of_events(engine.generate(run_request)) == ids_of_events(
        Engine(models).generate(run_request)
    )


def test_no_run_is_left_on_a_node(models) -> None:
    servers = [server_of(models, part) for part in PARTS]
    pool, transport = pool_over(models, servers)
    engine = Engine(loaded_tables(models.llm), nodes=pool)
    for name in SETTINGS:
        list(engine.generate(request(sampling=WARM, config=SETTINGS[name])))
    # A local SSM and SSMs on a node take turns.
    alone = server_of(models, ["ssm-2", "ssm-3"])
    mixed, _ = pool_over(models, [alone])
    mixed_engine = Engine(loaded_tables(models.llm, [models.ssms["same"]]), nodes=mixed)
    for seed in range(8):
        sampling = replace(WARM, seed=seed)
        config = SpeculationConfig(routing="cosine", routed_drafters=1)
        list(mixed_engine.generate(request(sampling=sampling, config=config)))
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


def test_a_text_longer_than_nodes_take_is_reported_once(
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
