"""The socket of a node: a ROUTER in front of a NodeServer, with CURVE if there are keys.

A separate thread checks the engines' keys, so that an engine can connect while the node drafts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils import z85

from core.config.nodes import address_of, check_encrypted, ip_address
from core.errors import ConfigError
from core.remote_ssms.keys import CurveKeys
from core.remote_ssms.server import NodeServer
from core.remote_ssms.zmq_transport import set_limits

__all__ = ["NodeListener", "check_bindable"]

# Limit on the answers queued for an engine.
QUEUED = 64
ZAP_ADDRESS, ZAP_VERSION = "inproc://zeromq.zap.01", b"1.0"
POLL_MS = 500
"""While no message comes, `serve` calls `is_over` at this interval."""


def check_bindable(address: str) -> None:
    """Raises ConfigError for an address that cannot be bound. The address is released again."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        set_limits(socket, address, QUEUED)
        _bind(socket, address)


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    host, port = address_of("listen", address)
    try:
        socket.bind(f"tcp://{ip_address(host)}:{port}")
    except (OSError, zmq.ZMQError) as error:
        allowed = f"an address that can be bound ({error})"
        raise ConfigError.of("listen", address, allowed) from error


class _Waiting:
    """`interrupted` of `NodeServer.handle`: set while a message waits at the socket."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def is_set(self) -> bool:
        return bool(self._socket.poll(0))


class NodeListener:
    """Binds at once. Raises ConfigError for an address that cannot be bound, or that needs keys if
    there are none."""

    def __init__(self, server: NodeServer, address: str, keys: CurveKeys | None) -> None:
        host, _ = address_of("listen", address)
        check_encrypted("listen", host, None if keys is None else "given")
        self._server = server
        self._context: zmq.Context[Any] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        router = self._router
        set_limits(router, address, QUEUED)
        # An engine that reconnects replaces its old connection, which may not have timed out yet.
        router.router_handover = True
        # The node sends no heartbeats: libzmq 4.3.5 aborts at a heartbeat to a closed connection
        # that still has unread frames (`!_io_error` in stream_engine_base.cpp).
        router.heartbeat_ivl = 0
        # No limit on received frames: a full queue would delay the answer to a heartbeat, perhaps
        # until the connection is closed and libzmq aborts.
        router.rcvhwm = 0
        if keys is not None:
            # Before the socket accepts connections: otherwise every key would be accepted.
            _admit_engines(self._context, keys.engine_public)
            router.curve_server = True
            router.curve_secretkey = keys.node_secret
            router.curve_publickey = keys.node_public
            router.zap_domain = b"nodes"
        try:
            _bind(router, address)
        except ConfigError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """HOST:PORT, with the port that was bound for port 0."""
        endpoint = self._router.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        return endpoint.decode().removeprefix("tcp://").rstrip("\0")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the node's SSMs."""
        return self._server.names

    def serve(self, is_over: Callable[[], bool]) -> None:
        """Serves until `is_over()`, which is called before each wait of at most POLL_MS for a
        message."""
        while not is_over():
            if self._router.poll(POLL_MS):
                self._answer()
            else:
                self._server.forget_unused()

    def close(self) -> None:
        """Releases the address and closes the server."""
        self._router.close()
        self._context.term()  # also ends the thread that checks keys
        self._server.close()

    def _answer(self) -> None:
        parts = self._router.recv_multipart()
        if len(parts) != 2:
            return  # an engine sends one frame, after its identity
        client, frame = parts
        answer = self._server.handle(client, frame, _Waiting(self._router))
        if answer is not None:
            # ROUTER drops answers to a client that has disconnected or does not read.
            self._router.send_multipart([client, answer], zmq.NOBLOCK)


def _admit_engines(context: zmq.Context[Any], engine_public: bytes) -> None:
    """Starts a thread that answers ZAP (RFC 27) until the context ends: 200 for the engine's key,
    400 for any other key."""
    handler = context.socket(zmq.REP)
    handler.linger = 0
    handler.bind(ZAP_ADDRESS)

    def admit() -> None:
        with handler, suppress(zmq.ContextTerminated):
            while True:
                # Version, request id, domain, address, identity, mechanism, client's public key.
                parts = handler.recv_multipart()
                request_id, key = parts[1], parts[-1]
                is_valid = parts[5] == b"CURVE" and z85.encode(key) == engine_public
                status = (b"200", b"OK") if is_valid else (b"400", b"another key")
                handler.send_multipart([ZAP_VERSION, request_id, *status, b"engine", b""])

    threading.Thread(target=admit, name="node-keys", daemon=True).start()
