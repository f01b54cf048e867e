"""A rank that writes `held_bytes()` to a file when its shard is loaded."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from core.models.ranks.follower import LeaderLink, follow
from core.models.ranks.messages import FromFollower, ShardReady

__all__ = ["held_bytes"]


def held_bytes() -> int:
    """Bytes of all CPU tensors and numpy arrays of this process. Shared memory counts once."""
    gc.collect()
    ranges = sorted({_memory_of(one) for one in _objects()})
    total = reached = 0
    for first, end in ranges:
        total += max(0, end - max(first, reached))
        reached = max(reached, end)
    return total


def _memory_of(one: object) -> tuple[int, int]:
    if issubclass(type(one), torch.Tensor):
        assert isinstance(one, torch.Tensor)
        if one.device.type != "cpu" or one.layout != torch.strided:
            return 0, 0
        storage = one.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if type(one) is not np.ndarray:
        return 0, 0
    while isinstance(one.base, np.ndarray):
        one = one.base
    return one.ctypes.data, one.ctypes.data + one.nbytes


def _objects() -> Iterator[object]:
    """`gc.get_objects` omits untracked objects, which the loop finds by reference."""
    objects: list[object] = gc.get_objects()
    yield from objects
    while objects:
        referents = {id(one): one for one in gc.get_referents(*objects)}
        unknown = [one for one in referents.values() if not gc.is_tracked(one)]
        yield from unknown
        objects = [one for one in unknown if type(one) in (tuple, dict)]


def main(folder: Path) -> int:
    send = LeaderLink.send

    def measure_and_send(link: LeaderLink, message: FromFollower) -> None:
        if isinstance(message, ShardReady):
            (folder / os.environ["RANK"]).write_text(str(held_bytes()))
        send(link, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeaderLink, "send", measure_and_send)
        return follow()


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    os._exit(code)  # threads of a broken process group may not end
