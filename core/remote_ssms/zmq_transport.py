"""ZmqTransport: one DEALER socket for each node, encrypted with CURVE if there are keys."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from core.config.nodes import ip_address
from core.remote_ssms.keys import CurveKeys
from core.remote_ssms.messages import LARGEST_FRAME
from core.remote_ssms.transport import Arrival

__all__ = ["ZmqTransport", "set_limits"]

# Bounds of the time between attempts to connect, which libzmq doubles each time.
RECONNECT_MS, LONGEST_RECONNECT_MS = 100, 1000
# A silent connection ends after SILENCE_MS; a round does not wait for that.
HEARTBEAT_MS, SILENCE_MS = 1000, 3000
REOPEN_S = 5.0
"""Time after which a connection that is down is opened again. libzmq itself does not reconnect
after a frame that is too long or of another protocol."""
QUEUED = 16
"""The most frames queued for a node."""
EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
CHANGES: Mapping[int, str] = MappingProxyType(
    {
        zmq.EVENT_HANDSHAKE_SUCCEEDED: "up",
        zmq.EVENT_DISCONNECTED: "down",
        zmq.EVENT_HANDSHAKE_FAILED_AUTH: "refused",
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "refused",
    }
)


class ZmqTransport:
    """See Transport. Nothing is opened before the first `send` or `poll`."""

    def __init__(self, addresses: Sequence[str], keys: CurveKeys | None) -> None:
        self._addresses = tuple(addresses)
        self._keys = keys
        # Kept after a reconnection: a node finds this engine's runs by the identity. Each address
        # has its own: two sockets with one identity at one node would replace each other for ever.
        self._identities = [secrets.token_bytes(16) for _ in self._addresses]
        self._context: zmq.Context[Any] | None = None
        self._sockets: list[zmq.Socket[Any]] = []
        self._monitors: list[zmq.Socket[Any]] = []
        self._poller = zmq.Poller()
        # When each connection that is down went down, or was last reopened.
        self._down_since: dict[int, float] = {}

    def now(self) -> float:
        return time.perf_counter()

    def send(self, node: int, frame: bytes) -> None:
        self._open()
        # Again: not connected, or QUEUED frames wait. The round continues without this node.
        with suppress(zmq.Again):
            self._sockets[node].send(frame, zmq.NOBLOCK)

    def poll(self, until: float) -> list[Arrival]:
        self._open()
        wait_ms = max(0.0, until - self.now()) * 1000
        # Rounded up: `poll` takes an integer, and 0 would spin until the deadline.
        ready = dict(self._poller.poll(int(wait_ms) + (wait_ms % 1 > 0)))
        arrivals: list[Arrival] = []
        # Changes first, so that a connection is known to be up before its frames are handled.
        for node, monitor in enumerate(self._monitors):
            if monitor in ready:
                arrivals += self._changes(node, monitor)
        for node, socket in enumerate(self._sockets):
            if socket in ready:
                arrivals += [Arrival(node, frame) for frame in _frames(socket)]
        self._reopen()
        return arrivals

    def _reopen(self) -> None:
        now = self.now()
        for node, since in self._down_since.items():
            if now - since >= REOPEN_S:
                endpoint = f"tcp://{self._addresses[node]}"
                with suppress(zmq.ZMQError):  # libzmq has given up this endpoint
                    self._sockets[node].disconnect(endpoint)
                self._sockets[node].connect(endpoint)
                self._down_since[node] = now

    def close(self) -> None:
        for socket in self._sockets:
            self._poller.unregister(socket)
            socket.disable_monitor()
            socket.close()
        for monitor in self._monitors:
            self._poller.unregister(monitor)
            monitor.close()
        self._sockets, self._monitors = [], []
        self._down_since.clear()
        if self._context is not None:
            self._context.term()
            self._context = None

    def _changes(self, node: int, monitor: zmq.Socket[Any]) -> list[Arrival]:
        changes = []
        while monitor.poll(0):
            event = int(recv_monitor_message(monitor)["event"])
            if event in CHANGES:
                changes.append(Arrival(node, change=CHANGES[event]))
                if CHANGES[event] == "up":
                    self._down_since.pop(node, None)
                else:
                    self._down_since.setdefault(node, self.now())
        return changes

    def _open(self) -> None:
        if self._context is not None:
            return
        self._context = zmq.Context()
        # Monitors' queues have no limit: a full queue would block ZeroMQ's only thread, and so the
        # heartbeats to all other nodes.
        self._context.rcvhwm = 0
        for address, identity in zip(self._addresses, self._identities, strict=True):
            socket = self._context.socket(zmq.DEALER)
            socket.identity = identity
            set_limits(socket, address, QUEUED)
            # No limit on received frames: libzmq 4.3.5 aborts at the next heartbeat if a connection
            # was closed with a full queue, see `listener.NodeListener`.
            socket.rcvhwm = 0
            socket.heartbeat_ivl, socket.heartbeat_timeout = HEARTBEAT_MS, SILENCE_MS
            # After this time the node ends the connection of a silent engine.
            socket.heartbeat_ttl = SILENCE_MS
            # Nothing is queued for a node that is not connected: the frame would come too late.
            socket.immediate = True
            socket.reconnect_ivl, socket.reconnect_ivl_max = RECONNECT_MS, LONGEST_RECONNECT_MS
            if self._keys is not None:
                socket.curve_serverkey = self._keys.node_public
                socket.curve_secretkey = self._keys.engine_secret
                socket.curve_publickey = self._keys.engine_public
            # Opened before the connection, whose first event would otherwise be missed.
            monitor = socket.get_monitor_socket(EVENTS)
            socket.connect(f"tcp://{address}")
            self._sockets.append(socket)
            self._monitors.append(monitor)
            self._poller.register(socket, zmq.POLLIN)
            self._poller.register(monitor, zmq.POLLIN)


def set_limits(socket: zmq.Socket[Any], address: str, queued: int) -> None:
    """Limits the bytes of a frame, the number of queued frames and the time of a handshake.
    `address`: HOST:PORT; the host decides whether the socket uses IPv6."""
    socket.linger = 0
    # A name that cannot be resolved now is resolved later, as IPv4.
    with suppress(OSError):
        socket.ipv6 = ip_address(address.rpartition(":")[0]).startswith("[")
    socket.maxmsgsize = LARGEST_FRAME
    socket.sndhwm = socket.rcvhwm = queued
    socket.handshake_ivl = SILENCE_MS


def _frames(socket: zmq.Socket[Any]) -> list[bytes]:
    frames: list[bytes] = []
    with suppress(zmq.Again):
        while len(frames) < QUEUED:
            frames.append(socket.recv(zmq.NOBLOCK))
    return frames
