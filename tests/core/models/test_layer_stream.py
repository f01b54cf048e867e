"""The order in which layers are read and used, the rate limit, and the GPU's events."""

import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import torch

from core.models import layer_stream
from core.models.layer_stream import CudaBuffer, HostLayers, LayerStream, merge_intervals

CPU = torch.device("cpu")
COUNT, SIZE = 6, 1000


class RecordingLayers(HostLayers):
    def __init__(self) -> None:
        super().__init__([torch.full((SIZE,), i, dtype=torch.uint8) for i in range(COUNT)])
        self.reads: list[int] = []
        self.changed = threading.Condition()

    def read(self, layer: int, into: torch.Tensor) -> None:
        super().read(layer, into)
        with self.changed:
            self.reads.append(layer)
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reads) >= count, 10)


def values(stream: LayerStream) -> list[tuple[int, int]]:
    return [(layer, int(data[0])) for layer, data in stream]


@pytest.mark.parametrize("resident", range(COUNT + 1))
def test_a_pass_has_every_layer_in_order(resident: int) -> None:
    stream = LayerStream(RecordingLayers(), resident * SIZE, 0, "host", CPU)
    for _ in range(3):
        assert values(stream) == [(i, i) for i in range(COUNT)]


def test_the_next_pass_begins_to_load_before_it_runs() -> None:
    source = RecordingLayers()
    stream = LayerStream(source, 0, 0, "host", CPU)
    values(stream)
    source.wait_for(COUNT + 2)
    assert source.reads == [*range(COUNT), 0, 1]
    values(stream)
    source.wait_for(2 * COUNT + 2)
    assert source.reads == [*range(COUNT), *range(COUNT), 0, 1]


def test_no_buffer_is_written_while_it_is_in_use() -> None:
    source = RecordingLayers()
    stream = LayerStream(source, 0, 0, "host", CPU)
    for layer, data in stream:
        source.wait_for(min(layer + 2, COUNT))  # the next layer is read meanwhile
        assert bool((data == layer).all())


@pytest.mark.parametrize("resident", [0, 3])
def test_resident_layers_are_spread_evenly(resident: int) -> None:
    source = RecordingLayers()
    values(LayerStream(source, resident * SIZE, 0, "host", CPU))
    assert source.reads[:resident] == ([1, 3, 5] if resident else [])


def test_a_pass_takes_as_long_as_its_bytes_at_the_rate() -> None:
    mbps = 0.05  # 6 layers of 1,000 bytes: 120 ms
    stream = LayerStream(RecordingLayers(), 0, mbps, "host", CPU)
    values(stream)
    ends = [time.perf_counter()]
    for _ in range(3):
        values(stream)
        ends.append(time.perf_counter())
    assert stream.info.least_ms == pytest.approx(120)
    assert (ends[-1] - ends[0]) / 3 > 0.115
    assert min(after - before for before, after in pairwise(ends)) < 0.16
    intervals = stream.take_times()
    # The stream's thread also reads between two passes.
    assert sum(end - start for start, end in intervals) > 0.4
    assert all(start >= intervals[-1][1] for start, _ in stream.take_times())


def test_layers_are_read_while_others_are_computed() -> None:
    mbps, layer_s = 0.025, 0.04  # 1,000 bytes take 40 ms
    stream = LayerStream(RecordingLayers(), 0, mbps, "host", CPU)
    ends = []
    for _ in range(4):
        for _layer in stream:
            time.sleep(layer_s)
        ends.append(time.perf_counter())
    in_turn_s = COUNT * (SIZE / (1e6 * mbps) + layer_s)
    assert min(after - before for before, after in pairwise(ends)) < in_turn_s / 1.6


def test_intervals_without_a_gap_are_merged() -> None:
    assert merge_intervals([(0, 1), (1.0005, 2), (3, 4)]) == [(0, 2), (3, 4)]


def test_a_closed_stream_raises() -> None:
    stream = LayerStream(RecordingLayers(), 0, 0, "host", CPU)
    stream.close()
    with pytest.raises(RuntimeError, match="closed"):
        values(stream)


class Gpu:
    """The part of torch.cuda that a buffer uses."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.streams, self.events, self.current = 0, 0, "compute"

    def Stream(self, device: Any) -> Any:  # noqa: N802
        return GpuStream(self, "copies")

    def Event(self, blocking: bool = False) -> Any:  # noqa: N802
        self.events += 1
        return GpuEvent(self, ("filled", "free")[(self.events - 1) % 2])

    @contextmanager
    def stream(self, one: Any) -> Any:
        self.current = one.name
        yield
        self.current = "compute"

    def current_stream(self, device: Any) -> Any:
        return GpuStream(self, self.current)


class GpuStream:
    def __init__(self, gpu: Gpu, name: str) -> None:
        self.gpu, self.name = gpu, name

    def wait_event(self, event: Any) -> None:
        self.gpu.log.append((self.name, "waits", event.name))


class GpuEvent:
    def __init__(self, gpu: Gpu, name: str) -> None:
        self.gpu, self.name = gpu, name

    def record(self, stream: Any) -> None:
        self.gpu.log.append((stream.name, "records", self.name))

    def synchronize(self) -> None:
        self.gpu.log.append(("host", "waits", self.name))


@pytest.mark.parametrize("staged", [False, True])
def test_on_a_gpu_events_order_copies_and_passes(
    staged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits for each copy in order to time it. The host also waits before it overwrites
    staged data."""
    gpu, source = Gpu(), RecordingLayers()
    monkeypatch.setattr(layer_stream.torch, "cuda", gpu)
    monkeypatch.setattr(layer_stream, "page_aligned", lambda size, _: torch.empty(size).byte())
    if staged:
        source = type("File", (), {"read": source.read, "size": SIZE})()  # type: ignore[assignment]
    buffer = CudaBuffer(SIZE, CPU)
    for layer in (2, 4):
        buffer.fill(source, layer)
        buffer.wait()
        assert int(buffer.use()[0]) == layer
        buffer.release()
    one_layer = [
        *([("host", "waits", "filled")] if staged else []),
        ("copies", "waits", "free"),
        ("copies", "records", "filled"),
        ("host", "waits", "filled"),
        ("compute", "waits", "filled"),
        ("compute", "records", "free"),
    ]
    assert gpu.log == 2 * one_layer
