"""Engines and nodes that go silent are disconnected."""

import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from socket import create_connection, create_server
from typing import Any

import pytest
import zmq

from core.errors import NodeError
from core.models.loading.load import LoadedModels
from core.remote_ssms import client, zmq_transport
from core.remote_ssms.keys import CurveKeys
from core.remote_ssms.listener import NodeListener
from tests.core.remote_ssms.served import node_at_address, pool_to, server_of


@pytest.fixture
def silent_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is longer than a busy machine's pauses."""
    monkeypatch.setattr(zmq_transport, "HEARTBEAT_MS", 200)
    monkeypatch.setattr(zmq_transport, "SILENCE_MS", 1000)


@pytest.mark.usefixtures("silent_in_a_second")
@pytest.mark.parametrize("has_key", [True, False])
def test_a_node_that_drafts_for_long_is_not_disconnected(
    models: LoadedModels, keys: CurveKeys, has_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PROGRESS_S", 0.4)
    key, server, drafted = keys if has_key else None, server_of(models), threading.Event()
    handle = server.handle

    def handle_late(*message: Any) -> bytes | None:
        drafted.wait(10)
        return handle(*message)

    with node_at_address(server, key) as address, ExitStack() as stack:
        stack.callback(drafted.set)
        first, second = (stack.enter_context(closing(pool_to([address], key))) for _ in range(2))
        first.connect(())
        server.handle = handle_late  # type: ignore[method-assign]
        first._arrivals.send_hello(0)
        messages: list[str] = []
        with pytest.raises(
            NodeError, match="a connection is there, but no answer came within 1.5 s"
        ):
            second.connect((), wait_s=1.5, say=messages.append)
        assert messages[-1] == f"Waiting for node {address} (busy?)"
        first._arrivals.poll()
        assert first.links[0].ready and first.links[0].is_connected
        drafted.set()
        assert second.connect(()).infos


@pytest.mark.usefixtures("silent_in_a_second")
def test_an_idle_engine_notices_a_node_that_goes_silent(models: LoadedModels) -> None:
    with (
        node_at_address(server_of(models), None) as node,
        relay_to(node) as (address, cut),
        closing(pool_to([address], None)) as pool,
    ):
        pool.connect(())
        pool._arrivals.poll(pool._transport.now() + 1.5)
        assert pool.links[0].ready, "the node stays while heartbeats are answered"
        cut.set()
        pool._arrivals.poll(pool._transport.now() + 5)
        assert not pool.links[0].ready and not pool.links[0].is_connected


@pytest.mark.usefixtures("soon_silent")
def test_a_node_disconnects_an_engine_that_goes_silent(models: LoadedModels) -> None:
    node = NodeListener(server_of(models), "127.0.0.1:0", None)
    monitor = node._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    ended = threading.Event()
    thread = threading.Thread(target=node.serve, args=(ended.is_set,))
    thread.start()
    try:
        with relay_to(node.address) as (address, cut), closing(pool_to([address], None)) as pool:
            assert pool.connect(()).infos
            assert not monitor.poll(500), "the engine stays while it sends heartbeats"
            cut.set()
            assert monitor.poll(3000)
    finally:
        ended.set()
        thread.join()
        node._router.disable_monitor()
        monitor.close()
        node.close()


@contextmanager
def relay_to(address: str) -> Iterator[tuple[str, threading.Event]]:
    """Relays bytes until the yielded event is set."""
    host, _, port = address.partition(":")
    cut, ended = threading.Event(), threading.Event()
    with (
        create_server(("127.0.0.1", 0)) as listener,
        create_connection((host, int(port))) as node_end,
    ):

        def relay() -> None:
            engine_end, _ = listener.accept()
            ends = {engine_end: node_end, node_end: engine_end}
            with engine_end:
                while not ended.wait(0.01):
                    for end in select.select([] if cut.is_set() else ends, [], [], 0)[0]:
                        ends[end].sendall(end.recv(1 << 16))

        thread = threading.Thread(target=relay)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", cut
        finally:
            ended.set()
            thread.join()
