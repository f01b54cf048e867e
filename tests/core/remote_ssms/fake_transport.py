"""A Transport to node servers in this process, for tests without sockets."""

from collections.abc import Sequence

from core.remote_ssms.server import NodeServer
from core.remote_ssms.transport import Arrival

__all__ = ["FakeTransport"]


class FakeTransport:
    """A transport whose clock is moved only by `poll` and `pass_time`."""

    CLIENT = b"engine"

    def __init__(self, servers: Sequence[NodeServer]) -> None:
        self._servers: list[NodeServer | None] = list(servers)
        self._delays = [0.0] * len(servers)
        self._is_cut = [False] * len(servers)
        self._clock = 0.0
        self._coming: list[tuple[float, Arrival]] = []
        self.sent: list[list[bytes]] = [[] for _ in servers]
        for node in range(len(servers)):
            self._schedule(node, Arrival(node, change="up"))

    def delay(self, node: int, seconds: float) -> None:
        self._delays[node] = seconds

    def cut(self, node: int, *, cut: bool = True) -> None:
        """Frames in both directions are lost, and no "down" is reported."""
        self._is_cut[node] = cut
        if cut:
            self._drop(node)

    def kill(self, node: int) -> None:
        self._servers[node] = None
        # A node whose "up" was not polled yet is not reported down.
        unreported = Arrival(node, change="up") in [arrival for _, arrival in self._coming]
        self._drop(node)
        if not unreported:
            self._schedule(node, Arrival(node, change="down"))

    def start(self, node: int, server: NodeServer) -> None:
        self._servers[node] = server
        self._schedule(node, Arrival(node, change="up"))

    def reconnect(self, node: int) -> None:
        if self._servers[node] is not None and not self._is_cut[node]:
            self._drop(node)
            self._schedule(node, Arrival(node, change="down"))
            self._schedule(node, Arrival(node, change="up"))

    def pass_time(self, seconds: float) -> None:
        self._clock += seconds

    def now(self) -> float:
        return self._clock

    def send(self, node: int, frame: bytes) -> None:
        self.sent[node].append(frame)
        server = self._servers[node]
        if server is None or self._is_cut[node]:
            return
        reply = server.handle(self.CLIENT, frame)
        if reply is not None:
            self._schedule(node, Arrival(node, reply), self._delays[node])

    def poll(self, until: float) -> list[Arrival]:
        self._coming.sort(key=lambda one: one[0])  # stable: equal times keep their order
        first = self._coming[0][0] if self._coming else until
        self._clock = max(self._clock, min(first, until))
        due = [arrival for at, arrival in self._coming if at <= self._clock]
        self._coming = [one for one in self._coming if one[0] > self._clock]
        return due

    def close(self) -> None:
        self._coming.clear()

    def _schedule(self, node: int, arrival: Arrival, delay: float = 0.0) -> None:
        self._coming.append((self._clock + delay, arrival))

    def _drop(self, node: int) -> None:
        self._coming = [one for one in self._coming if one[1].node != node]
