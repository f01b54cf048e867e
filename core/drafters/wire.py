"""Wire: messages between this process and one beside it, over a pair of sockets.

Pickled plainly, so that a tensor travels by value: `Connection.send` would hand tensors over as
shared descriptors, and ask for them back by another socket. Unlike a Connection, a wire need not
wait for ever: whoever is at the other end may have been stopped in the middle of a message.
"""

from __future__ import annotations

import pickle
import select
import socket
from collections.abc import Callable
from typing import Any

__all__ = ["Wire"]

HEAD = 8  # bytes of a number: how many follow


class Wire:
    """One end. `hope` is asked after each `patience` seconds (None: waits for ever) without a sign
    from the other end, whether to go on waiting."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._hope: Callable[[], bool] = lambda: False

    @classmethod
    def pair(cls) -> tuple[Wire, Wire]:
        """Two ends of one wire."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, descriptor: int) -> Wire:
        """The end with this number, from the process that began this one."""
        return cls(socket.socket(fileno=descriptor))

    def be_patient(self, patience: float | None, hope: Callable[[], bool]) -> None:
        """See the class."""
        self._end.settimeout(patience)
        self._hope = hope

    def fileno(self) -> int:
        """The descriptor, to be inherited."""
        return self._end.fileno()

    def close(self) -> None:
        """The other end hears of it."""
        self._end.close()

    def send(self, message: Any) -> None:
        """Raises OSError where nobody is at the other end, TimeoutError (an OSError) where nobody
        reads."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._all(len(body).to_bytes(HEAD) + body, self._end.send)

    def receive(self) -> Any:
        """Waits for a message, from the process at the other end alone. Raises EOFError, OSError,
        TimeoutError (an OSError)."""
        size = int.from_bytes(self._read(HEAD))
        return pickle.loads(self._read(size))

    def waits(self, *, forever: bool) -> bool:
        """Whether a message, or the other end's end, is there to be received; `forever`: waits."""
        found, _, _ = select.select([self._end], [], [], None if forever else 0)
        return bool(found)

    def _read(self, size: int) -> bytearray:
        body = bytearray(size)
        self._all(body, self._end.recv_into)
        return body

    def _all(self, body: bytes | bytearray, step: Callable[[memoryview], int]) -> None:
        """Repeats a step that does a part of it, until all is done."""
        left = memoryview(body)
        while left:
            try:
                done = step(left)
            except TimeoutError:
                if not self._hope():
                    raise
                continue
            if not done:
                raise EOFError("the other end is gone")
            left = left[done:]
