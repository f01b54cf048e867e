"""LayerStream yields a model's layers in order, once for each pass.

Some layers may stay resident. A thread reads the other layers in every pass, into up to two
alternating buffers: while the pass computes on one buffer, the next layer is read into the other.
After the last layer, the thread reads the first layers of the next pass.
"""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from core.errors import MODEL_FAULTS
from core.events.parts import OffloadInfo

__all__ = [
    "CudaBuffer",
    "HostLayers",
    "LayerSource",
    "LayerStream",
    "memory_of",
    "page_aligned",
    "stream_of",
]

BUFFERS = 2
# Reads with a shorter gap between them are reported as one read.
GAP_S = 0.002
# The most reads whose times are kept between two calls of `take_times`.
MAX_TIMES = 4096
# O_DIRECT needs memory that is aligned to this many bytes.
PAGE = 4096


class LayerSource(Protocol):
    """A source of layers of equal size."""

    @property
    def count(self) -> int:
        """Number of layers."""
        ...

    @property
    def size(self) -> int:
        """Bytes of each layer."""
        ...

    def read(self, layer: int, into: torch.Tensor) -> None:
        """Fills `into` (uint8, page-aligned host memory) with a layer. Raises OSError and
        ModelLoadError."""
        ...


class HostLayers:
    """See LayerSource. `layers` (uint8) are in host memory, pinned for copies to a GPU."""

    def __init__(self, layers: Sequence[torch.Tensor]) -> None:
        self.layers = layers
        self.count, self.size = len(layers), len(layers[0])

    def read(self, layer: int, into: torch.Tensor) -> None:
        into.copy_(self.layers[layer])


def memory_of(bytes_: torch.Tensor) -> memoryview:
    """The memory of a uint8 tensor on the host."""
    array: Any = bytes_.numpy()
    return memoryview(array)


def page_aligned(size: int, device: torch.device | None = None) -> torch.Tensor:
    """Page-aligned bytes (uint8); pinned if `device` is a GPU."""
    if device is not None and device.type == "cuda":
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    memory = mmap.mmap(-1, max(1, -(-size // PAGE)) * PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults, and faster products
    return torch.frombuffer(memory, dtype=torch.uint8)[:size]


class HostBuffer:
    """A buffer in host memory, which the pass reads directly."""

    def __init__(self, size: int) -> None:
        self._data = page_aligned(size)

    def fill(self, source: LayerSource, layer: int) -> None:
        """Reads a layer; called by the reading thread."""
        source.read(layer, self._data)

    def wait(self) -> None:
        """Does nothing: `fill` is synchronous."""

    def use(self) -> torch.Tensor:
        """The layer's bytes, valid until `release`."""
        return self._data

    def release(self) -> None:
        """Does nothing: `_LayerReader.release` frees the buffer."""


class CudaBuffer:
    """A GPU buffer with the methods of HostBuffer. Layers that are not in host memory pass through
    pinned staging memory."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._data = torch.empty(size, dtype=torch.uint8, device=device)
        self._device = device
        self._staging: torch.Tensor | None = None
        cuda: Any = torch.cuda
        # `_copies` fills the buffer; the events order `_copies` and the compute stream.
        # `blocking`: the reading thread sleeps until a copy is complete, and takes no core.
        self._filled, self._free = cuda.Event(blocking=True), cuda.Event()
        self._copies = cuda.Stream(device)

    def fill(self, source: LayerSource, layer: int) -> None:
        if isinstance(source, HostLayers):
            host = source.layers[layer]
        else:
            if self._staging is None:
                self._staging = page_aligned(source.size, self._device)
            host = self._staging
            self._filled.synchronize()  # waits until the last copy has left the staging memory
            source.read(layer, host)
        with torch.cuda.stream(self._copies):
            self._copies.wait_event(self._free)
            self._data.copy_(host, non_blocking=True)
            self._filled.record(self._copies)

    def wait(self) -> None:
        self._filled.synchronize()

    def use(self) -> torch.Tensor:
        torch.cuda.current_stream(self._device).wait_event(self._filled)
        return self._data

    def release(self) -> None:
        self._free.record(torch.cuda.current_stream(self._device))


class LayerStream:
    """One iteration serves one pass: it yields (layer index, bytes) in order. The bytes are valid
    until the next layer is requested. After a pass that ended early, reading begins with the first
    layer again."""

    def __init__(
        self, source: LayerSource, resident: int, mbps: float, mode: str, device: torch.device
    ) -> None:
        """`resident`: memory in bytes for layers that stay on the device. `mbps`: limit on reading
        in 10^6 bytes/s, 0: none. `mode`: see OffloadInfo."""
        count, size = source.count, source.size
        num_resident = min(count, resident // size)
        # Resident layers are spread evenly: while the pass computes on many resident layers in a
        # row, the reader would wait for a free buffer.
        self._resident = {
            layer: _load(source, layer, device)
            for layer in range(count)
            if (layer + 1) * num_resident // count > layer * num_resident // count
        }
        self._count, self._bytes = count, count * size
        layers = [layer for layer in range(count) if layer not in self._resident]
        self._reader = _LayerReader(source, layers, 1e6 * mbps, device)
        self._end = weakref.finalize(self, self._reader.end)
        self.info = OffloadInfo(
            mode, count, len(layers), num_resident * size, len(layers) * size, float(mbps)
        )

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        self._reader.begin_pass()
        for layer in range(self._count):
            resident = self._resident.get(layer)
            if resident is not None:
                yield layer, resident
            else:
                buffer = self._reader.take()
                yield layer, buffer.use()
                buffer.release()
                self._reader.release()

    @property
    def bytes(self) -> int:
        """Bytes of all layers."""
        return self._bytes

    def take_times(self) -> list[tuple[float, float]]:
        """(start, end) of reads since the last call, in seconds of time.perf_counter. Reads less
        than GAP_S apart are merged."""
        return self._reader.take_times()

    def close(self) -> None:
        """Ends the reading thread. Idempotent."""
        self._end()


def stream_of(model: object) -> LayerStream | None:
    """The stream of the model's layers; None if they are not streamed."""
    stream: LayerStream | None = getattr(model, "stream", None)
    return stream


def _load(source: LayerSource, layer: int, device: torch.device) -> torch.Tensor:
    host = page_aligned(source.size)
    source.read(layer, host)
    return host if device.type == "cpu" else host.to(device)


class _LayerReader:
    """The reading thread and the state it shares with the thread of the passes. Has no reference to
    the LayerStream, which can be collected while the thread runs."""

    def __init__(
        self, source: LayerSource, layers: Sequence[int], rate: float, device: torch.device
    ) -> None:
        """`rate`: limit in bytes/s, 0: none."""
        self._source, self._layers, self._rate = source, layers, rate
        self._buffers = [
            HostBuffer(source.size) if device.type == "cpu" else CudaBuffer(source.size, device)
            for _ in range(min(BUFFERS, len(layers)))
        ]
        self._changed = threading.Condition()
        # Counts of layers read, taken and released since the epoch began. The n-th read, from 0,
        # fills buffer n modulo the number of buffers. `begin_pass` begins a new epoch unless the
        # counts can continue.
        self._read = self._taken = self._released = self._epoch = 0
        self._error: Exception | None = None
        self._times: deque[tuple[float, float]] = deque(maxlen=MAX_TIMES)
        self._reading_since: float | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def begin_pass(self) -> None:
        if not self._layers:
            return
        with self._changed:
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name="layers", daemon=True)
                self._thread.start()
            # After a complete pass the counts continue: the first layers are being read already.
            complete = self._taken == self._released and self._released % len(self._layers) == 0
            if self._error is not None or not complete:
                self._read = self._taken = self._released = 0
                self._epoch, self._error = self._epoch + 1, None
                self._changed.notify_all()

    def take(self) -> HostBuffer | CudaBuffer:
        """Waits for the next layer's buffer. On a GPU the copy may still run: `CudaBuffer.use`
        waits for it. If no further buffer will come, raises the error of the read, or RuntimeError
        after `end`."""
        with self._changed:
            while self._read == self._taken and self._error is None and not self._ended:
                self._changed.wait()
            if self._read == self._taken:
                raise self._error or RuntimeError("the stream of layers is closed")
            self._taken += 1
            return self._buffers[(self._taken - 1) % len(self._buffers)]

    def release(self) -> None:
        with self._changed:
            self._released += 1
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take_times(self) -> list[tuple[float, float]]:
        with self._changed:
            times = list(self._times)
            self._times.clear()
            if self._reading_since is not None:
                # The next call reports the rest of the current read.
                now = time.perf_counter()
                times.append((self._reading_since, now))
                self._reading_since = now
        return merge_intervals(times)

    def _run(self) -> None:
        due = 0.0
        while (next_read := self._next()) is not None:
            epoch, number, idle = next_read
            layer = self._layers[number % len(self._layers)]
            error = None
            if idle:  # otherwise `due` stays: the next sleep corrects a sleep that was too long
                due = max(due, time.perf_counter())
            try:
                self._buffers[number % len(self._buffers)].fill(self._source, layer)
                # Waits for the previous copy: else the times would cover only launches of copies.
                self._buffers[(number - 1) % len(self._buffers)].wait()
            except MODEL_FAULTS as failure:  # `take` raises the failure again
                error = failure
            if self._rate:
                due += self._source.size / self._rate
                time.sleep(max(0.0, due - time.perf_counter()))
            self._finish(epoch, error)

    def _next(self) -> tuple[int, int, bool] | None:
        """Waits for a free buffer. Returns the next read's epoch and number, and whether the reader
        was idle or an epoch begins. None once the stream is closed."""
        with self._changed:
            idle = self._read == 0
            while not self._ended and (
                self._error is not None or self._read - self._released >= len(self._buffers)
            ):
                self._changed.wait()
                idle = True
            if self._ended:
                return None
            self._reading_since = time.perf_counter()
            return self._epoch, self._read, idle

    def _finish(self, epoch: int, error: Exception | None) -> None:
        with self._changed:
            assert self._reading_since is not None
            self._times.append((self._reading_since, time.perf_counter()))
            self._reading_since = None
            if epoch != self._epoch:
                return  # belongs to a pass that ended early
            if error is None:
                self._read += 1
            else:
                self._error = error
            self._changed.notify_all()


def merge_intervals(times: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merges ascending intervals that are less than GAP_S apart."""
    merged: list[tuple[float, float]] = []
    for start, end in times:
        if merged and start - merged[-1][1] < GAP_S:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
