"""Messages to and from a node."""

import math
import random
from pathlib import Path

import msgspec
import pytest

import core.models.ranks
import core.remote_ssms
from core.config.mechanisms import COMBINE_RULES, DRAFT_KINDS, ROUTING_RULES, WEIGHTS
from core.drafters.ssm_pool import SsmPool
from core.errors import ConfigError
from core.remote_ssms import replies
from core.remote_ssms.messages import (
    LARGEST_FRAME,
    MOST_RUNS,
    MOST_SSMS,
    MOST_TOKENS,
    VERSION,
    AheadDraftsMessage,
    AheadMessage,
    AheadRequest,
    DraftRequestMessage,
    DraftsMessage,
    FreeMessage,
    HelloMessage,
    MessageError,
    RefusedMessage,
    RoundMessage,
    RunRequest,
    RunSettings,
    StopLimitsMessage,
    ToNode,
    WelcomeMessage,
    encode,
    from_node,
    to_node,
)
from core.remote_ssms.server import MOST_CLIENTS, MOST_VOCABULARIES, NodeServer
from tests.core.engines import tables
from tests.core.remote_ssms.served import HASH, server_of
from tests.fakes import loaded_tables

CLIENT = b"client"
OPEN = RunSettings(0.8, 0, 1.0, 0.0, 1.0, 3, "coupled", "union", "paper", "all", False, [])
DRAFT_REQUEST = DraftRequestMessage("same", 0, "coupled", [1, 1], 2, 1.0, None)


@pytest.fixture
def server() -> NodeServer:
    llm, ssms = tables(2)
    return server_of(loaded_tables(llm, ssms))


def run_request(
    run: str = "run", start: int = 0, tokens: tuple[int, ...] = (1, 2, 3), **changes
) -> RunRequest:
    fields = {
        "settings": OPEN,
        "drafts": [DRAFT_REQUEST],
        "audition": 0,
        "to_score": [],
        "top_k": 0,
    }
    return RunRequest(run, start, [*tokens], **{**fields, **changes})


def answer(server: NodeServer, *run_requests: RunRequest):
    frame = server.handle(CLIENT, encode(RoundMessage(1, [*run_requests])))
    assert frame is not None
    return from_node(frame)


def say_hello(server: NodeServer) -> NodeServer:
    frame = server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, 8)))
    assert frame is not None and isinstance(from_node(frame), WelcomeMessage)
    return server


def frames() -> list[bytes]:
    later = run_request("later", 3, (4,), settings=None, audition=8, to_score=["same"], top_k=5)
    ahead = AheadRequest(run_request(drafts=[]), [4, 5, 6], [-1, 0, 0], [DRAFT_REQUEST], 20)
    messages: list[ToNode] = [
        HelloMessage(VERSION, HASH, 8),
        RoundMessage(7, [run_request(), later]),
        AheadMessage(8, [ahead]),
        FreeMessage(["run"]),
    ]
    return [encode(message) for message in messages]


def test_messages_arrive_as_they_were_sent() -> None:
    for frame in frames():
        assert encode(to_node(frame)) == frame
        with pytest.raises(MessageError):
            from_node(frame)


def test_random_and_truncated_messages_are_refused(server: NodeServer) -> None:
    rng = random.Random(1)
    say_hello(server)
    bad = [rng.randbytes(rng.randrange(200)) for _ in range(1000)]
    bad += [frame[:end] for frame in frames() for end in range(len(frame))]
    for frame in bad:
        reply = server.handle(CLIENT, frame)
        assert reply is not None and isinstance(from_node(reply), RefusedMessage), frame
    changed = 0
    for _ in range(1000):
        frame = bytearray(rng.choice(frames()))
        for _ in range(rng.randrange(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        reply = server.handle(rng.choice([CLIENT, b"other"]), bytes(frame))
        changed += reply is None or not isinstance(from_node(reply), RefusedMessage)
    assert len(server._runs) <= MOST_RUNS and changed < 1000
    assert len(server._clients) <= 2 and len(server._pools) <= MOST_VOCABULARIES
    reply = answer(say_hello(server), run_request("new"))
    assert reply.runs[0].length == 3 and reply.runs[0].drafts[0].token_ids, (
        "the node serves as before"
    )
    server.close()
    assert len(server._runs) == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_random_valid_messages_end_no_server_and_nothing_grows(seed: int) -> None:
    llm, ssms = tables(3)
    server = say_hello(server_of(loaded_tables(llm, ssms)))
    random_messages, drafted = RandomMessages(random.Random(seed)), 0
    for number in range(1, 1001):
        frame = server.handle(CLIENT, encode(random_messages.message(number)))
        if frame is not None:
            reply = from_node(frame)
            assert not isinstance(reply, RefusedMessage) or "failed" not in reply.reason
            drafted += isinstance(reply, DraftsMessage) and any(run.drafts for run in reply.runs)
        assert len(server._runs) <= len(RUNS) and len(server._clients) == 1
        assert len(server._pools) <= MOST_VOCABULARIES
        assert all(len(ssm.open_rows) <= len(server._runs) for ssm in ssms)
    assert drafted > 50, "some messages are served"
    assert answer(server, run_request("new")).runs[0].drafts[0].token_ids, (
        "the node serves as before"
    )


RUNS, SSMS = "abc", ("same", "ssm-2", "ssm-3")
NUMBERS = (0.0, 1.0, -1.0, 0.5, 100.0, 1e308, 1e-320, math.inf, -math.inf, math.nan)
KINDS = ("topk", "coupled", "fused", "best_first", *DRAFT_KINDS)


class RandomMessages:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._texts: dict[str, list[int]] = {}

    def message(self, number: int) -> ToNode:
        kind, runs = self._rng.random(), self._rng.sample(RUNS, self._choice(1, 1, 2, 3))
        if kind < 0.04:
            return FreeMessage([self._choice(*RUNS)])
        if kind < 0.08:
            return HelloMessage(VERSION, HASH, self._choice(8, 8, 9, 100))
        if kind < 0.6:
            return RoundMessage(number, [self._run(run) for run in runs])
        return AheadMessage(number, [self._ahead(run) for run in runs])

    def _choice(self, *values):
        return self._rng.choice(values)

    def _rarely(self) -> bool:
        return self._rng.random() < 0.1

    def _tokens(self, *counts: int) -> list[int]:
        return [self._rng.randrange(8) for _ in range(self._choice(*counts))]

    def _number(self, *usual: float) -> float:
        return self._choice(*NUMBERS) if self._rarely() else self._choice(*usual)

    def _open(self) -> RunSettings:
        return RunSettings(
            temperature=self._number(0.0, 0.8, 2.0),
            top_k=self._choice(0, 1, 5, 1 << 40),
            top_p=self._number(1.0, 0.5),
            min_p=self._number(0.0, 0.1),
            repetition_penalty=self._number(1.0, 1.5, 0.5),
            seed=self._rng.randrange(1 << 63),
            draft=self._choice("auto", *DRAFT_KINDS),
            combine=self._choice(*COMBINE_RULES),
            weights=self._choice(*WEIGHTS),
            routing=self._choice(*ROUTING_RULES),
            carry_over=self._choice(True, False),
            eos_ids=self._tokens(0, 1, 5),
        )

    def _draft(self) -> DraftRequestMessage:
        index = self._rng.randrange(len(SSMS))
        stop = StopLimitsMessage(
            self._choice(*NUMBERS),
            self._choice(None, 0, 3, 1 << 40),
            self._choice(None, [], [0.3, 2.0]),
        )
        return DraftRequestMessage(
            SSMS[index],
            255 if self._rarely() else index,
            self._choice(*KINDS),
            [
                250 if self._rarely() else self._choice(1, 2)
                for _ in range(self._choice(0, 1, 2, 3, 5))
            ],
            self._choice(1, 2, 8, 64, 250),
            self._choice(*NUMBERS),
            self._choice(None, None, stop),
        )

    def _drafts(self, *counts: int) -> list[DraftRequestMessage]:
        return [self._draft() for _ in range(self._choice(*counts))]

    def _run(self, run: str) -> RunRequest:
        text = self._texts.setdefault(run, [1, 2, 3])
        start = self._choice(0, max(0, len(text) - 1), len(text))
        text += self._tokens(0, 1, 2, 4)
        if self._rarely():
            del text[3:]
        return RunRequest(
            run,
            self._rng.randrange(40) if self._rarely() else start,
            text[start:],
            None if self._rarely() else self._open(),
            self._drafts(0, 1, 2, 3, 4),
            self._choice(0, 0, 1, 8, 512),
            [self._choice(*SSMS) for _ in range(self._choice(0, 1, 3))],
            self._choice(0, 0, 3, 50),
        )

    def _ahead(self, run: str) -> AheadRequest:
        tokens = self._tokens(0, 1, 3, 6)
        parents = [self._rng.randrange(-1, node) for node in range(len(tokens))]
        if self._rarely():
            parents = [self._rng.randrange(-3, 20) for _ in range(5)]
        return AheadRequest(
            self._run(run),
            tokens,
            parents,
            self._drafts(1, 2, 3),
            self._choice(0, 1, 2, 5, 100, 1 << 17),
        )


def test_a_run_is_named_once_in_a_message(server: NodeServer) -> None:
    """If a message named a run twice, one request could get the other's drafts."""
    say_hello(server)
    two = [DRAFT_REQUEST, msgspec.structs.replace(DRAFT_REQUEST, ssm="ssm-2", index=1)]
    answer(server, run_request(drafts=two))
    text = run_request(start=3, tokens=(), drafts=[])
    ahead = AheadMessage(2, [AheadRequest(text, [4], [-1], [one], 20) for one in two])
    for message in (ahead, RoundMessage(2, [run_request(), run_request()])):
        frame = server.handle(CLIENT, encode(message))
        assert frame is not None
        reply = from_node(frame)
        assert isinstance(reply, RefusedMessage) and "run is 'run' more than once" in reply.reason
    assert answer(server, run_request(start=3, tokens=(4,))).runs[0].drafts


@pytest.mark.parametrize("part", ["draft_runs", "draft_ahead", "audition"])
def test_an_error_in_a_round_drops_only_that_clients_runs(
    server: NodeServer, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    server.handle(b"other", encode(HelloMessage(VERSION, HASH, 8)))
    server.handle(b"other", encode(RoundMessage(1, [run_request("theirs")])))
    text = run_request(audition=8, to_score=["same"])
    answer(say_hello(server), text)
    message = AheadMessage(2, [AheadRequest(text, [4], [-1], [DRAFT_REQUEST], 20)])
    with monkeypatch.context() as patch:
        patch.setattr(SsmPool, part, lambda *_, **__: {}["missing"])
        frame = server.handle(
            CLIENT, encode(message if part == "draft_ahead" else RoundMessage(2, [text]))
        )
    assert frame is not None
    assert from_node(frame) == RefusedMessage(2, "drafting failed: KeyError: 'missing'")
    assert [client for client, _ in server._runs] == [b"other"]
    assert answer(server, run_request()).runs[0].drafts, "the node serves as before"


def test_the_clients_that_are_forgotten_are_the_idle_ones(server: NodeServer) -> None:
    say_hello(server)
    for number in range(2 * MOST_CLIENTS):
        assert isinstance(answer(server, run_request()), DraftsMessage)
        server.handle(b"%d" % number, encode(HelloMessage(VERSION, HASH, 8)))
    assert CLIENT in server._clients and len(server._clients) == MOST_CLIENTS


def test_an_answer_above_the_limit_is_sent_without_what_is_only_displayed(
    server: NodeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger frame would end the engine's connection."""
    say_hello(server)
    text = run_request(top_k=5)
    full = answer(server, text)
    assert full.runs[0].drafts[0].top
    monkeypatch.setattr(replies, "LARGEST_FRAME", len(encode(full)) - 20)
    short = answer(server, run_request("other", top_k=5))
    drafts = full.runs[0].drafts[0], short.runs[0].drafts[0]
    assert drafts[0].token_ids == drafts[1].token_ids and not drafts[1].top
    monkeypatch.setattr(replies, "LARGEST_FRAME", 10)
    refusal = answer(server, run_request("third"))
    assert isinstance(refusal, RefusedMessage) and refusal.number == 1
    assert "bytes: at most 10 are sent" in refusal.reason
    monkeypatch.undo()
    # Without the unsent answer's likelihoods, later likelihoods would be at wrong positions.
    assert not server._runs and answer(server, text).runs[0].drafts[0].top


def test_an_answer_ahead_above_the_limit_is_sent_without_outcomes(
    server: NodeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(say_hello(server), run_request())
    ahead = AheadRequest(
        run_request(start=3, tokens=(), settings=None), [4, 5], [-1, 0], [DRAFT_REQUEST], 20
    )

    def answer_ahead() -> AheadDraftsMessage:
        reply = from_node(server.handle(CLIENT, encode(AheadMessage(2, [ahead]))) or b"")
        assert isinstance(reply, AheadDraftsMessage)
        return reply

    full = answer_ahead()
    assert full.runs[0].outcomes
    monkeypatch.setattr(replies, "LARGEST_FRAME", len(encode(full)) - 50)
    short = answer_ahead()
    assert not short.runs[0].outcomes and short.runs[0].length == 3


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
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, ssm="other")]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, kind="sampled")]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, kind="no such kind")]},
        {"drafts": [msgspec.structs.replace(DRAFT_REQUEST, shape=[250, 250])]},
        {"to_score": ["other"], "audition": 8},
        {"settings": msgspec.structs.replace(OPEN, temperature=-1.0)},
        {"settings": msgspec.structs.replace(OPEN, combine="no such rule")},
    ],
)
def test_requests_that_no_engine_sends_are_refused_by_name(server: NodeServer, changes) -> None:
    wrong = run_request(**changes)
    reply = answer(say_hello(server), wrong, run_request("other"))
    refused, other = reply.runs if reply.runs[0].run == "run" else reply.runs[::-1]
    assert len(refused.drafts) == len(wrong.drafts) and not refused.auditions
    assert all(" is " in one.error and not one.token_ids for one in refused.drafts), refused
    assert other.drafts[0].token_ids and not other.drafts[0].error
    assert len(server._runs) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"start": -1},
        {"tokens": [1 << 40]},
        {"tokens": ["1"]},
        {"top_k": 1000},
        {"audition": 10_000},
        {"drafts": [DRAFT_REQUEST] * 17},
        {"run": ""},
        {"run": "r" * 201},
    ],
)
def test_fields_out_of_bounds_are_refused(change) -> None:
    with pytest.raises(MessageError):
        to_node(encode(RoundMessage(1, [msgspec.structs.replace(run_request(), **change)])))


def test_large_vocabularies_and_contexts_are_accepted(server: NodeServer) -> None:
    """Qwen 2 has a vocabulary of 151,936 tokens; some models have contexts of a million tokens."""
    frame = server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, 151_936)))
    welcome = from_node(frame or b"")
    assert isinstance(welcome, WelcomeMessage)
    (draft,) = answer(server, run_request()).runs[0].drafts
    assert draft.token_ids and not draft.error
    large = {"vocab_size": 262_144, "context_length": 1 << 20}
    ssms = [msgspec.structs.replace(one, **large) for one in welcome.ssms]
    welcome = msgspec.structs.replace(welcome, ssms=ssms)
    assert from_node(encode(welcome)) == welcome
    ahead = AheadMessage(
        8, [AheadRequest(run_request(drafts=[]), [4], [-1], [DRAFT_REQUEST], 1_000_000)]
    )
    assert to_node(encode(ahead)) == ahead
    with pytest.raises(MessageError):
        to_node(encode(HelloMessage(VERSION, HASH, 1 << 30)))


@pytest.mark.parametrize("device", ["", "cpu of node x", "cuda:0\n", "c" * 201])
def test_a_device_is_one_word(server: NodeServer, device: str) -> None:
    """The engine writes the node's address after the device."""
    welcome = from_node(server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, 8))) or b"")
    assert isinstance(welcome, WelcomeMessage)
    for allowed in ("cpu", "cuda:0", "mps"):
        welcome.ssms[0].device = allowed
        assert from_node(encode(welcome)) == welcome
    welcome.ssms[0].device = device
    with pytest.raises(MessageError):
        from_node(encode(welcome))


def test_a_message_with_an_additional_field_is_refused() -> None:
    fields = msgspec.msgpack.decode(encode(HelloMessage(VERSION, HASH, 8)))
    with pytest.raises(MessageError, match=f"version {VERSION}"):
        to_node(msgspec.msgpack.encode([*fields, 1]))


def test_a_client_without_hello_is_not_served(server: NodeServer) -> None:
    reply = answer(server, run_request())
    assert isinstance(reply, RefusedMessage) and "hello" in reply.reason and len(server._runs) == 0


def test_runs_clients_and_pools_are_bounded() -> None:
    llm, ssms = tables(2)
    server = say_hello(server_of(loaded_tables(llm, ssms)))
    for number in range(MOST_RUNS + 10):
        answer(server, run_request(f"run {number}"))
    assert len(server._runs) == len(ssms[0].open_rows) == MOST_RUNS
    for name in "abc":
        reply = answer(server, *(run_request(f"{name} {number}") for number in range(MOST_RUNS)))
        assert all(run.drafts for run in reply.runs)
        assert len(server._runs) == len(ssms[0].open_rows) == MOST_RUNS
    with pytest.raises(MessageError):
        to_node(
            encode(
                RoundMessage(1, [run_request(f"run {number}") for number in range(MOST_RUNS + 1)])
            )
        )
    for number in range(2 * MOST_CLIENTS):
        server.handle(b"%d" % number, encode(HelloMessage(VERSION, HASH, 8)))
    assert len(server._clients) == MOST_CLIENTS and len(server._runs) == 0
    for vocab in range(9, 20):
        server.handle(CLIENT, encode(HelloMessage(VERSION, HASH, vocab)))
    assert len(server._pools) <= MOST_VOCABULARIES


def test_unused_vocabulary_sizes_are_replaced(server: NodeServer) -> None:
    say_hello(server)
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


def test_a_run_without_requests_is_forgotten() -> None:
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    now = [0.0]
    server = say_hello(NodeServer(models.ssms, models.tokenizer, HASH, lambda: now[0]))
    answer(server, run_request("old"))
    now[0] = 601.0
    answer(server, run_request("new"))
    assert len(server._runs) == 1 and len(ssms[0].open_rows) == 1
    now[0] = 1202.0
    server.forget_unused()  # a node without requests calls this
    assert len(server._runs) == 0 and not ssms[0].open_rows


def test_after_a_gap_or_another_text_the_text_is_sent_again(server: NodeServer) -> None:
    say_hello(server)
    assert answer(server, run_request(start=3, settings=None)).runs[0].need == 0
    assert answer(server, run_request()).runs[0].length == 3
    assert answer(server, run_request(tokens=(1, 2, 3, 4))).runs[0].length == 4
    assert answer(server, run_request(start=5, tokens=(6,), settings=None)).runs[0].need == 0
    assert answer(server, run_request()).runs[0].need == -1
    # Another text under the same name, from the beginning.
    assert answer(server, run_request(tokens=(3, 2))).runs[0].length == 2
    assert len(server._runs) == 1


def test_code_that_reads_from_a_network_uses_no_pickle_and_no_eval() -> None:
    packages = [Path(one.__file__).parent for one in (core.remote_ssms, core.models.ranks)]
    files = [path for package in packages for path in package.glob("*.py")]
    assert len(files) > 20
    for path in files:
        text = path.read_text("utf-8")
        for word in ("pickle", "marshal", " eval(", " exec(", "recv_pyobj", "cloudpickle"):
            assert word not in text, (path, word)
