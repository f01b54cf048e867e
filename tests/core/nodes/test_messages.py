"""What a node reads from the network: data within bounds, or a refusal, and nothing grows."""

import random
from pathlib import Path

import msgspec
import pytest

import core.models.ranks
import core.nodes
from core.errors import ConfigError
from core.nodes.messages import (
    LARGEST_FRAME,
    MOST_RUNS,
    MOST_SSMS,
    MOST_TOKENS,
    VERSION,
    DraftAsk,
    FreeMessage,
    HelloMessage,
    MessageError,
    Open,
    RefusedMessage,
    RoundMessage,
    RunAsk,
    WelcomeMessage,
    encode,
    from_node,
    to_node,
)
from core.nodes.server import MOST_CLIENTS, MOST_VOCABULARIES, NodeServer
from tests.core.engines import tables
from tests.core.nodes.served import HASH, server_of
from tests.fakes import loaded_tables

CLIENT = b"client"
OPEN = Open(0.8, 0, 1.0, 0.0, 1.0, 3, "coupled", "union", "paper", "all", False, [])
ASK = DraftAsk("same", 0, "coupled", [1, 1], 2, 1.0, None)


@pytest.fixture
def server() -> NodeServer:
    llm, ssms = tables(2)
    return server_of(loaded_tables(llm, ssms))


def ask(run: str = "run", start: int = 0, tokens: tuple[int, ...] = (1, 2, 3), **changes) -> RunAsk:
    fields = {"opened": OPEN, "asks": [ASK], "audition": 0, "heard": [], "top_k": 0}
    return RunAsk(run, start, [*tokens], **{**fields, **changes})


def answer(server: NodeServer, *asks: RunAsk):
    frame = server.handle(CLIENT, encode(RoundMessage(1, [*asks])))
    assert frame is not None
    return from_node(frame)


def introduced(server: NodeServer) -> NodeServer:
    frame = server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, 8)))
    assert frame is not None and isinstance(from_node(frame), WelcomeMessage)
    return server


def frames() -> list[bytes]:
    """One of each message that an engine sends."""
    every = [ask(), ask(start=3, tokens=(4,), opened=None, audition=8, heard=["same"], top_k=5)]
    return [
        encode(m)
        for m in (HelloMessage(VERSION, HASH, 8), RoundMessage(7, every), FreeMessage(["run"]))
    ]


def test_messages_arrive_as_they_were_sent() -> None:
    for frame in frames():
        assert encode(to_node(frame)) == frame
        with pytest.raises(MessageError):
            from_node(frame)


def test_random_and_truncated_messages_are_refused(server: NodeServer) -> None:
    """1,000 random byte strings, every beginning of each message, and messages with random bytes
    changed: each is answered or dropped, and nothing of them is kept."""
    chance = random.Random(1)
    introduced(server)
    bad = [chance.randbytes(chance.randrange(200)) for _ in range(1000)]
    bad += [frame[:end] for frame in frames() for end in range(len(frame))]
    for frame in bad:
        reply = server.handle(CLIENT, frame)
        assert reply is not None and isinstance(from_node(reply), RefusedMessage), frame
    changed = 0
    for _ in range(1000):
        frame = bytearray(chance.choice(frames()))
        for _ in range(chance.randrange(1, 4)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        reply = server.handle(chance.choice([CLIENT, b"other"]), bytes(frame))
        changed += reply is None or not isinstance(from_node(reply), RefusedMessage)
    assert server.num_runs <= MOST_RUNS and changed < 1000
    assert len(server._clients) <= 2 and len(server._pools) <= MOST_VOCABULARIES
    reply = answer(introduced(server), ask("new"))
    assert reply.runs[0].length == 3 and reply.runs[0].drafts[0].token_ids, "it serves as before"
    server.close()
    assert server.num_runs == 0


def test_deep_and_large_messages_are_refused() -> None:
    for frame in (b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc1"):
        with pytest.raises(MessageError):
            to_node(frame)
    with pytest.raises(MessageError, match="at most"):
        to_node(bytes(LARGEST_FRAME + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": (1, 8)},
        {"start": MOST_TOKENS, "tokens": (1,)},
        {"asks": [msgspec.structs.replace(ASK, ssm="other")]},
        {"asks": [msgspec.structs.replace(ASK, kind="sampled")]},
        {"asks": [msgspec.structs.replace(ASK, kind="no such kind")]},
        {"asks": [msgspec.structs.replace(ASK, shape=[250, 250])]},
        {"heard": ["other"], "audition": 8},
        {"opened": msgspec.structs.replace(OPEN, temperature=-1.0)},
        {"opened": msgspec.structs.replace(OPEN, combine="no such rule")},
    ],
)
def test_asks_that_no_engine_sends_are_refused_by_name(server: NodeServer, changes) -> None:
    """Each draft of that run is refused; the other run of the message is drafted for."""
    wrong = ask(**changes)
    reply = answer(introduced(server), wrong, ask("other"))
    refused, other = reply.runs if reply.runs[0].run == "run" else reply.runs[::-1]
    assert len(refused.drafts) == len(wrong.asks) and not refused.auditions
    assert all(" is " in one.error and not one.token_ids for one in refused.drafts), refused
    assert other.drafts[0].token_ids and not other.drafts[0].error
    assert server.num_runs == 1


@pytest.mark.parametrize(
    "change",
    [
        {"start": -1},
        {"tokens": [1 << 40]},
        {"tokens": ["1"]},
        {"top_k": 1000},
        {"audition": 10_000},
        {"asks": [ASK] * 17},
        {"run": ""},
        {"run": "r" * 201},
    ],
)
def test_fields_out_of_bounds_are_no_message(change) -> None:
    with pytest.raises(MessageError):
        to_node(encode(RoundMessage(1, [msgspec.structs.replace(ask(), **change)])))


def test_longer_structs_are_another_version() -> None:
    """A field more than this version knows is refused, not ignored."""
    fields = msgspec.msgpack.decode(encode(HelloMessage(VERSION, HASH, 8)))
    with pytest.raises(MessageError, match=f"version {VERSION}"):
        to_node(msgspec.msgpack.encode([*fields, 1]))


def test_a_client_without_hello_is_not_served(server: NodeServer) -> None:
    reply = answer(server, ask())
    assert isinstance(reply, RefusedMessage) and "hello" in reply.reason and server.num_runs == 0


def test_what_is_kept_is_bounded() -> None:
    """Runs, and with each run its row of the SSM; whether they come one by one or at once."""
    llm, ssms = tables(2)
    server = introduced(server_of(loaded_tables(llm, ssms)))
    for number in range(MOST_RUNS + 10):
        answer(server, ask(f"run {number}"))
    assert server.num_runs == len(ssms[0].open_rows) == MOST_RUNS
    for name in "abc":
        reply = answer(server, *(ask(f"{name} {number}") for number in range(MOST_RUNS)))
        assert all(run.drafts for run in reply.runs)
        assert server.num_runs == len(ssms[0].open_rows) == MOST_RUNS
    with pytest.raises(MessageError):
        to_node(encode(RoundMessage(1, [ask(f"run {number}") for number in range(MOST_RUNS + 1)])))
    for number in range(2 * MOST_CLIENTS):
        server.handle(b"%d" % number, encode(HelloMessage(VERSION, HASH, 8)))
    assert len(server._clients) == MOST_CLIENTS and server.num_runs == 0
    for vocab in range(9, 20):
        server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, vocab)))
    assert len(server._pools) <= MOST_VOCABULARIES


def test_sizes_that_no_client_has_make_way(server: NodeServer) -> None:
    """A client that says other sizes than its first one locks nobody out."""
    introduced(server)
    for vocab in range(9, 20):
        server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, vocab)))
    frame = server.handle(b"another", encode(HelloMessage(VERSION, HASH, 100)))
    assert frame is not None and isinstance(from_node(frame), WelcomeMessage)


def test_more_ssms_than_a_message_holds_are_refused() -> None:
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    many = {f"ssm-{number}": ssms[0] for number in range(MOST_SSMS + 1)}
    with pytest.raises(ConfigError, match="ssm is 17: at most 16 SSMs"):
        NodeServer(many, models.tokenizer, HASH)


def test_a_run_that_nobody_asks_for_is_forgotten() -> None:
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    now = [0.0]
    server = introduced(NodeServer(models.ssms, models.tokenizer, HASH, lambda: now[0]))
    answer(server, ask("old"))
    now[0] = 601.0
    answer(server, ask("new"))
    assert server.num_runs == 1 and len(ssms[0].open_rows) == 1
    now[0] = 1202.0
    server.forget_unused()  # as a node that nothing is asked of does
    assert server.num_runs == 0 and not ssms[0].open_rows


def test_a_gap_or_another_text_is_asked_for_again(server: NodeServer) -> None:
    introduced(server)
    assert answer(server, ask(start=3, opened=None)).runs[0].need == 0
    assert answer(server, ask()).runs[0].length == 3
    # Sent twice: the second time the node has it already.
    assert answer(server, ask(tokens=(1, 2, 3, 4))).runs[0].length == 4
    assert answer(server, ask(start=5, tokens=(6,), opened=None)).runs[0].need == 0
    assert answer(server, ask()).runs[0].need == -1
    # Another text under the same name, from the beginning.
    assert answer(server, ask(tokens=(3, 2))).runs[0].length == 2
    assert server.num_runs == 1


def test_nothing_that_reads_from_a_network_can_call() -> None:
    packages = [Path(one.__file__).parent for one in (core.nodes, core.models.ranks)]
    files = [path for package in packages for path in package.glob("*.py")]
    assert len(files) > 20
    for path in files:
        text = path.read_text("utf-8")
        for word in ("pickle", "marshal", " eval(", " exec(", "recv_pyobj", "cloudpickle"):
            assert word not in text, (path, word)
