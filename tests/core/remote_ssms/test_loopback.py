"""Nodes over sockets, also in other processes and network namespaces."""

import faulthandler
import signal
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from socket import (
    IPPROTO_TCP,
    MSG_WAITALL,
    SO_LINGER,
    SOL_SOCKET,
    TCP_NODELAY,
    create_connection,
    create_server,
)
from typing import Any

import pytest
import zmq

from core import Engine, Request, SamplingParams, SpeculationConfig, connect_nodes
from core.__main__ import print_text
from core.config.nodes import NodeSettings
from core.errors import NodeError
from core.events import Event
from core.models.loading.load import LoadedModels
from core.remote_ssms import zmq_transport
from core.remote_ssms.keys import CurveKeys, read_keys, write_keys
from core.remote_ssms.listener import QUEUED
from core.remote_ssms.messages import (
    LARGEST_FRAME,
    VERSION,
    HelloMessage,
    RefusedMessage,
    encode,
    from_node,
)
from core.remote_ssms.zmq_transport import ZmqTransport, set_limits
from tests.core.engines import ids_of_events, request, rounds_of, texts_of, tokens_by_drafter
from tests.core.remote_ssms.missing import LONG, missing_node, until_rounds
from tests.core.remote_ssms.served import (
    HASH,
    Namespace,
    engine_over,
    namespace,
    node_at_address,
    node_process,
    opened_nodes,
    pool_to,
    server_of,
    start_node,
)
from tests.fakes import loaded_tables
from tests.laws.runs import prompts

WARM = SamplingParams(24, temperature=0.8, seed=1)


def test_the_text_over_sockets_is_that_of_one_process(
    models: LoadedModels, keys: CurveKeys
) -> None:
    one, two = server_of(models, ["same", "ssm-2"]), server_of(models, ["ssm-3"])
    with node_at_address(one, keys) as first, node_at_address(two, keys) as second:
        pool = pool_to([first, second], keys).connect(())
        engine = Engine(loaded_tables(models.llm), nodes=pool)
        for name in ("specinfer", "cosine"):
            for sampling in (SamplingParams(24, seed=1), WARM):
                run_request = request(sampling=sampling, config=SpeculationConfig.preset(name))
                events = list(engine.generate(run_request))
                assert ids_of_events(events) == ids_of_events(Engine(models).generate(run_request))
                trips = [trip for each in rounds_of(events) for trip in each.nodes]
                assert {trip.state for trip in trips} == {"in_time"}
                assert all(trip.round_trip_ms >= trip.busy_ms > 0 for trip in trips)
        engine.close()
        assert pool.connect(()).links[0].ready
        pool.close()


def test_another_key_is_refused(models: LoadedModels, keys: CurveKeys, tmp_path: Path) -> None:
    write_keys(str(tmp_path / "other"))
    other = read_keys(str(tmp_path / "other"))
    assert other is not None
    mixed = [
        other,
        CurveKeys(keys.node_secret, other.engine_secret),  # the node does not know this key
        None,
    ]
    server = server_of(models)
    with node_at_address(server, keys) as address:
        for wrong in mixed:
            pool = pool_to([address], wrong)
            with pytest.raises(NodeError, match=f"node is '{address}': "):
                pool.connect((), wait_s=0.5)
            pool.close()
        with closing(pool_to([address], keys)) as pool:
            assert pool.connect(()).infos
    assert not server._runs


def test_a_wrong_key_is_named_in_the_error(models: LoadedModels, keys: CurveKeys) -> None:
    wrong = CurveKeys(keys.node_secret, zmq.curve_keypair()[1])
    with node_at_address(server_of(models), keys) as address:
        pool = pool_to([address], wrong)
        with pytest.raises(NodeError, match="another key: --node-key-file"):
            pool.connect((), wait_s=5)
        pool.close()


def test_unrelated_keys_are_named_in_the_error(models: LoadedModels, keys: CurveKeys) -> None:
    """A node with unrelated keys ends the connection without a reason. So does a server that is no
    node."""
    other, messages = CurveKeys(*(zmq.curve_keypair()[1] for _ in range(2))), []
    with (
        node_at_address(server_of(models), keys) as address,
        closing(pool_to([address], other)) as pool,
        pytest.raises(
            NodeError, match="no handshake succeeded there within 0.5 s: the node has another key"
        ),
    ):
        pool.connect((), wait_s=0.5, say=messages.append)
    assert messages[-1] == f"Waiting for node {address} (another key?)"
    with closing(pool_to([address], keys)) as pool:
        with pytest.raises(NodeError, match="no node answered there within 0.3 s"):
            pool.connect((), wait_s=0.3)
        with node_at_address(server_of(models), keys, address):
            assert pool.connect(()).links[0].is_connected


@pytest.mark.parametrize("has_key", [True, False])
def test_a_server_that_is_no_node_is_named_in_the_error(keys: CurveKeys, has_key: bool) -> None:
    with create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError), listener.accept()[0] as socket:
                socket.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            closing(pool_to([address], keys if has_key else None)) as pool,
            pytest.raises(
                NodeError, match="no handshake succeeded there .*, or what listens there is no node"
            ),
        ):
            pool.connect((), wait_s=0.5)
        thread.join()


def test_a_node_still_serves_after_invalid_frames(models: LoadedModels) -> None:
    server = server_of(models)
    with node_at_address(server, None) as address:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(f"tcp://{address}")
        socket.send(b"\xc1")
        assert isinstance(from_node(socket.recv()), RefusedMessage)
        socket.send_multipart([b"a", b"b", b"c"])  # dropped
        socket.send(encode(HelloMessage(VERSION, HASH, 8)))
        assert not isinstance(from_node(socket.recv()), RefusedMessage)
        socket.send(bytes(LARGEST_FRAME + 1))  # the connection is ended
        context.destroy(linger=0)
        with closing(pool_to([address], None)) as pool:
            assert pool.connect(()).infos


@pytest.mark.usefixtures("soon_silent")
def test_a_node_still_serves_after_a_replaced_connection(
    models: LoadedModels,
) -> None:
    """The node sends no heartbeats: libzmq aborts at a heartbeat to a closed connection that still
    has unread frames."""
    with node_at_address(server_of(models), None) as address:
        hello = encode(HelloMessage(VERSION, HASH, 8))
        contexts = [zmq.Context(), zmq.Context()]
        sockets = []
        for context in contexts:
            socket = context.socket(zmq.DEALER)
            socket.identity = b"one engine"
            set_limits(socket, address, 16)
            socket.immediate, socket.reconnect_ivl = True, -1
            socket.connect(f"tcp://{address}")
            socket.send(hello)
            assert not isinstance(from_node(socket.recv()), RefusedMessage)
            sockets.append(socket)
        for _ in range(3):
            sockets[0].send(hello)
        time.sleep(0.1)
        contexts[0].destroy(linger=0)
        time.sleep(0.3)
        sockets[1].send(hello)
        assert sockets[1].poll(2000)
        contexts[1].destroy(linger=0)


@pytest.mark.usefixtures("soon_silent")
def test_a_node_that_floods_an_idle_engine_and_disconnects_does_not_end_the_engine() -> None:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    address = f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
    transport = ZmqTransport([address], None)
    assert transport.poll(transport.now() + 5)[0].change == "up"
    transport.send(0, b"hello")
    engine, _ = router.recv_multipart()
    for _ in range(200):
        router.send_multipart([engine, bytes(1000)])
    time.sleep(0.1)
    context.destroy(linger=0)
    time.sleep(0.3)
    assert transport.poll(transport.now() + 5)
    transport.close()


def test_a_frame_above_the_limit_ends_only_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a frame above the limit, libzmq by itself would not connect again."""
    monkeypatch.setattr(zmq_transport, "LARGEST_FRAME", 1000)
    monkeypatch.setattr(zmq_transport, "REOPEN_S", 0.1)
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.router_handover = True
    address = f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
    with closing(ZmqTransport([address], None)) as transport:

        def changes(count: int) -> list[str]:
            arrivals: list[str] = []
            deadline = transport.now() + 10
            while len(arrivals) < count and transport.now() < deadline:
                arrivals += [one.change for one in transport.poll(transport.now() + 0.2)]
            return arrivals

        assert changes(1) == ["up"]
        transport.send(0, b"hello")
        engine, _ = router.recv_multipart()
        router.send_multipart([engine, bytes(1001)])
        assert changes(2) == ["down", "up"]
        transport.send(0, b"hello")
        assert router.recv_multipart()[0] == engine
        router.send_multipart([engine, bytes(1000)])
        assert transport.poll(transport.now() + 10)[0].frame == bytes(1000)
    context.destroy(linger=0)


def test_an_engine_that_fills_a_nodes_queue_and_disconnects_does_not_end_the_node(
    models: LoadedModels,
) -> None:
    """With a limit on received frames, the node would answer the heartbeat late, on a closed
    connection, and libzmq would abort."""
    server, busy = server_of(models), threading.Event()
    handle = server.handle

    def handle_late(*message: Any) -> bytes | None:
        busy.wait(10)
        return handle(*message)

    server.handle = handle_late  # type: ignore[method-assign]
    with node_at_address(server, None) as address, closing(pool_to([address], None)) as pool:
        # Raw bytes, since with a real engine chance decides which frames are read together.
        host, _, port = address.partition(":")
        with create_connection((host, int(port))) as raw:
            raw.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(52, b"\0"))
            raw.sendall(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
            assert raw.recv(64, MSG_WAITALL)[0] == 0xFF
            frame, heartbeat = b"\x00\x04none", b"\x04\x07\x04PING\x00\x64"
            for _ in range(QUEUED):
                raw.sendall(frame)
                time.sleep(0.003)
            raw.sendall(3 * frame + heartbeat + frame)
            time.sleep(0.2)
            # The connection is reset, not ended: a reset is noticed even if nothing is read.
            raw.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.2)
        busy.set()
        assert pool.connect(()).infos


def test_a_node_that_refuses_an_engine_repeatedly_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ZeroMQ's thread must not wait for room in the monitor's queue."""
    monkeypatch.setattr(zmq_transport, "RECONNECT_MS", 1)
    monkeypatch.setattr(zmq_transport, "LONGEST_RECONNECT_MS", 1)
    context = zmq.Context()
    # If ZmqTransport did not lift this limit, few events would fill the monitor's queue.
    context.rcvhwm = 1
    monkeypatch.setattr(zmq_transport.zmq, "Context", lambda: context)
    with create_server(("127.0.0.1", 0), backlog=128) as other:
        other.settimeout(5)
        transport = ZmqTransport([f"127.0.0.1:{other.getsockname()[1]}"], None)
        transport.poll(transport.now())
        for _ in range(1_200):
            other.accept()[0].close()
        # If ZeroMQ's thread waits, `close` waits too.
        faulthandler.dump_traceback_later(10, exit=True)
        transport.close()
        faulthandler.cancel_dump_traceback_later()


def test_a_node_by_two_names_is_refused(models: LoadedModels) -> None:
    with node_at_address(server_of(models), None) as address:
        names = [address, address.replace("127.0.0.1", "localhost")]
        with closing(pool_to(names, None)) as pool:
            both = "(127.0.0.1|localhost):[0-9]+"
            with pytest.raises(NodeError, match=f"node is '{both}': the same node as {both},"):
                pool.connect((), wait_s=5)


def test_a_restarted_node_is_used_again(models: LoadedModels) -> None:
    run_request = request(sampling=SamplingParams(60, temperature=0.8, seed=2))
    expected = ids_of_events(Engine(models).generate(run_request))
    with node_at_address(server_of(models), None) as address:
        pool = pool_to([address], None).connect(())
        engine = Engine(loaded_tables(models.llm), nodes=pool)
        stream = engine.generate(run_request)
        events: list[Event] = until_rounds(stream, 3)
    with node_at_address(server_of(models), None, address):
        deadline = time.monotonic() + 10
        while not pool.links[0].ready and time.monotonic() < deadline:
            events += until_rounds(stream, 1) or [next(stream)]
            time.sleep(0.05)
        events += stream
    assert ids_of_events(events) == expected
    engine.close()


def test_the_command_line_prints_once_that_a_node_is_missing(
    models: LoadedModels, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, transport = engine_over(models, [[*models.ssms]])
    stream = engine.generate(request(sampling=WARM))
    events = until_rounds(stream, 2)
    transport.kill(0)
    print_text(iter([*events, *stream]), False)
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 2 and printed[0].startswith("node 10.0.0.1:7000 is not there: ")
    assert "tokens per LLM pass" in printed[1]


# -- processes --


@pytest.mark.nightly
def test_a_node_process_may_end_in_mid_run(bundled: Engine) -> None:
    names = ("ssm-code", "ssm-stories")
    first = start_node("127.0.0.1:0", *names)
    with opened_nodes(first, start_node("127.0.0.1:0", "ssm-docs")) as (one, two):
        for how in (signal.SIGSTOP, signal.SIGKILL):
            settings, end = NodeSettings((one, two)), partial(first.send_signal, how)
            with ExitStack() as restarted, missing_node(bundled, settings, end) as run:
                assert run.first_missed.end_ms > run.first_missed.start_ms, (
                    "a request had been sent"
                )
                if how == signal.SIGSTOP:
                    first.send_signal(signal.SIGCONT)
                else:
                    first.wait()
                    restarted.enter_context(node_process(one, *names))
                run.come_back()


@pytest.fixture(scope="module")
def two_machines(
    bundled: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[NodeSettings, list[list[str]], Namespace]]:
    key = str(tmp_path_factory.mktemp("keys") / "key")
    write_keys(key)
    parts = [[*bundled.models.ssms][number::2] for number in range(2)]
    assert sum(map(len, parts)) == 5
    with ExitStack() as stack:
        machines = [stack.enter_context(namespace(number)) for number in (1, 2)]
        nodes = [
            start_node(f"{machine.host}:7000", *part, within=machine.within, key_file=key)
            for machine, part in zip(machines, parts, strict=True)
        ]
        addresses = stack.enter_context(opened_nodes(*nodes))
        yield NodeSettings(addresses, key), parts, machines[0]


@pytest.mark.nightly
def test_a_link_may_go_down_in_mid_run(
    bundled: Engine, two_machines: tuple[NodeSettings, list[list[str]], Namespace]
) -> None:
    settings, _, far = two_machines
    with missing_node(bundled, settings, lambda: far.set_link("down")) as run:
        assert run.first_missed.end_ms > run.first_missed.start_ms, "a request had been sent"
        far.set_link("up")
        run.come_back()


@pytest.mark.nightly
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_two_machines_write_the_texts_of_one(
    bundled: Engine,
    two_machines: tuple[NodeSettings, list[list[str]], Namespace],
    temperature: float,
) -> None:
    settings, parts, _ = two_machines
    models = bundled.models
    without_ssms = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    with closing(Engine(without_ssms, nodes=connect_nodes(settings, without_ssms))) as engine:
        sampling = SamplingParams(48, temperature=temperature, seed=7)
        requests = [Request(prompt, sampling, LONG.speculation) for prompt in prompts(8)]
        accepted = Counter[str]()
        for first in range(0, len(requests), 4):
            group = requests[first : first + 4]
            events = list(engine.generate_many(group))
            assert texts_of(events) == texts_of(bundled.generate_many(group))
            accepted += tokens_by_drafter(events)[1]
    for part in parts:
        assert sum(accepted[name] for name in part) > 100
