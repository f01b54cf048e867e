"""Wires: whole messages of any size, in order, and no waiting for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from core.drafters.wire import HEAD, Wire


@pytest.fixture
def wire() -> Iterator[tuple[Wire, Wire]]:
    one, other = Wire.pair()
    with closing(one), closing(other):
        yield one, other


def test_messages_come_whole_and_in_order(wire: tuple[Wire, Wire]) -> None:
    one, other = wire
    sent = [b"x" * 3_000_000, {"a": (1, 2.5)}, None, torch.arange(100_000)]
    sender = threading.Thread(target=lambda: [one.send(message) for message in sent])
    sender.start()  # they do not fit into the sockets' buffers
    first, second, third, fourth = (other.receive() for _ in sent)
    sender.join()
    assert (first, second, third) == tuple(sent[:3]) and torch.equal(fourth, torch.arange(100_000))
    assert not other.waits(forever=False)
    one.send("more")
    assert other.waits(forever=False) and other.waits(forever=True) and other.receive() == "more"


def test_the_other_ends_end(wire: tuple[Wire, Wire]) -> None:
    one, other = wire
    one._end.sendall((9).to_bytes(HEAD) + b"half")
    one.close()
    assert other.waits(forever=True)
    with pytest.raises(EOFError):
        other.receive()
    with pytest.raises(OSError):
        for _ in range(2):  # the first may still be buffered
            other.send(b"x" * 1_000_000)


@pytest.mark.parametrize("doing", ["receive", "send"])
def test_it_waits_as_long_as_there_is_hope(wire: tuple[Wire, Wire], doing: str) -> None:
    one, _ = wire
    hopes = iter([True, True, False])
    one.be_patient(0.01, lambda: next(hopes))
    with pytest.raises(TimeoutError):
        one.receive() if doing == "receive" else one.send(b"x" * 3_000_000)
    assert next(hopes, None) is None
