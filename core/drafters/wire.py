"""Messages between the two processes: pickled plainly, so that a tensor travels by value.

`Connection.send` would hand tensors over as shared descriptors, and ask for them back by a socket.
"""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["receive", "send"]


def send(pipe: Connection, message: Any) -> None:
    """Raises OSError where nobody is at the other end."""
    pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def receive(pipe: Connection) -> Any:
    """Waits for a message, from the process at the other end alone. Raises EOFError, OSError."""
    return pickle.loads(pipe.recv_bytes())
