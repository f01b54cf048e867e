"""CompiledForward: a forward pass on a CPU in native code.

In torch, most of a small model's pass is overhead between matrix products.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from core.errors import UnsupportedModelError
from core.models.forward import MaskKind
from core.models.kv_cache import KVArena, LayerShape, SlotPlan
from core.models.layer_ops import FIRST_POSITIONS
from core.models.layer_stream import HostLayers, LayerStream
from core.models.lean import LeanWeights
from core.models.native.compiling import COMPILER_FAULTS
from core.models.native.drafting import draft_step, empty_batch, empty_outputs, slice_inputs
from core.models.native.kernel_args import (
    BLOCK,
    BatchInputs,
    DraftBatch,
    DraftOutputs,
    ModelSizes,
    PackedWeights,
    Workspace,
)
from core.models.native.layers import ATTENTION_HALF, GATED_HALF, WHOLE_LAYERS, kernel
from core.models.native.packing import Array, pack_weights, rotation_tables, round_up, shape_of
from core.models.native.weight_formats import kind_of_array
from core.models.native.workspace import BufferCache, DraftLimits, empty_inputs, pack_inputs
from core.models.rows import Batch

__all__ = ["CompiledForward", "DraftResult", "Ready"]

# Bytes of weights that are worth one more thread: starting a thread takes as long as reading them.
MIN_BYTES_PER_THREAD = 1 << 22
# Written to the barrier's count when a thread fails: more arrivals than any thread waits for.
ABANDONED = 1 << 62
Ready = Callable[[int], None]
"""Called with a level before the children of that level are chosen."""
Segment = tuple[PackedWeights, tuple[int, int, int]]
"""The arguments of one call of the kernel in a pass: its weights and its `steps`."""
Reduce = Callable[[torch.Tensor], object]
"""Adds up a tensor over the ranks of an LLM, in place."""


class DraftResult(NamedTuple):
    """Drafts; the logits (rows, V), float32, from which their tokens were chosen; and the start and
    end of each pass, in seconds of time.perf_counter."""

    outputs: DraftOutputs
    logits: torch.Tensor
    passes: tuple[tuple[float, float], ...]


class CompiledForward:
    """See Forward. With stacked models, row r of the arena belongs to member r modulo the number of
    members. Arithmetic is float32; a bfloat16 model keeps matrices, keys and values in bfloat16,
    and rounds activations to bfloat16 if weights are multiplied in pairs or tiles
    (`weight_formats`). Weights except the embedding are copied here: later changes to them have no
    effect."""

    def __init__(
        self,
        weights: LeanWeights,
        masks: MaskKind,
        layers: tuple[LayerStream, type[Any]] | None = None,
    ) -> None:
        """`layers`: for an offloaded model, the stream of its layers' packed matrices and their
        element type; the layers' matrices in `weights` are then on the device `meta`."""
        # With one mask for all layers, every layer has the window.
        is_windowed = [
            bool(masks.window) and (layer.sliding or not masks.by_layer_type)
            for layer in weights.layers
        ]
        self._lean = weights
        self._shape = shape_of(weights)
        self._stream = layers[0] if layers else None
        head_type = layers[1] if layers else None
        self._weights = pack_weights(
            weights, windowed=is_windowed, positions=FIRST_POSITIONS, head_type=head_type
        )
        if self._stream is not None and not weights.is_tied:
            self._lean = replace(weights, head=weights.head.to("meta"))  # the packed copy is used
        self._vocabulary = weights.head.shape[-1]
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        shape = LayerShape(weights.kv_heads, weights.head_size, weights.head_size)
        self.shapes: Sequence[LayerShape] = [shape] * len(weights.layers)
        # As many threads as torch has now, if there is work for them.
        most = self._packed_bytes // MIN_BYTES_PER_THREAD + 1
        self._pool = _WorkerPool(min(torch.get_num_threads(), most))
        # `WeightFormat.parts` (weight_formats.py): the workspace's size depends on it.
        self._parts = kind_of_array(self._weights.matrices.dtype.type).parts
        self._draft_step = draft_step()
        self._reduce: Reduce | None = None

    @property
    def workers(self) -> int:
        """Threads of a pass."""
        return self._pool.workers

    @property
    def kernels(self) -> tuple[Callable[..., None] | None, Callable[..., Any]]:
        """The compiled functions of a pass and of a draft's step."""
        return self._pool.kernel, self._draft_step

    @kernels.setter
    def kernels(self, kernels: tuple[Callable[..., None] | None, Callable[..., Any]]) -> None:
        self._pool.kernel, self._draft_step = kernels

    def try_out(self) -> None:
        """Compiles the kernels and tries them. Raises UnsupportedModelError if that fails."""
        try:
            self._compile_and_run()
        except COMPILER_FAULTS as error:
            raise UnsupportedModelError(f"its pass does not compile: {error}") from error

    def _compile_and_run(self) -> None:
        self._pool.kernel, self._draft_step = kernel(), draft_step()
        count = self._shape.members
        arena = KVArena(self.shapes, self.dtype, self.device)
        arena.reserve(count, 1)
        zeros, mask = np.zeros((count, 1), np.int64), np.ones((count, 1, 1), np.bool_)
        plan = SlotPlan(tuple(range(count)), (0,) * count, (1,) * count, 1, 1)
        # One thread is enough to compile and to try.
        workers, self._pool.workers = self._pool.workers, 1
        try:
            with torch.inference_mode():
                self.logits(Batch(zeros, zeros, mask, mask, plan, False), arena)
                self.drafts(empty_batch(), DraftLimits(1, 1, 1, 1), lambda _: None, arena)
        finally:
            self._pool.workers = workers

    def member(self, place: int, lean: LeanWeights) -> CompiledForward:
        """The pass of one stacked model, over views of the same weights."""
        one = copy.copy(self)
        one._lean = lean
        own, count = self._weights, self._shape.members
        one._shape = self._shape._replace(members=1)
        one._weights = own._replace(
            embedding=own.embedding.reshape(count, -1)[place],
            matrices=own.matrices.reshape(count, -1)[place],
            vectors=own.vectors.reshape(count, -1)[place],
        )
        # Fewer weights may be worth fewer threads.
        one._pool = _WorkerPool(
            min(self.workers, one._weights.matrices.nbytes // MIN_BYTES_PER_THREAD + 1)
        )
        one._pool.kernel = self._pool.kernel
        return one

    def with_streamed_layers(self, mbps: float) -> CompiledForward:
        """The same pass of one model, with layers copied from host memory at `mbps` (10^6
        bytes/s). The new pass shares everything else with this one."""
        one, matrices, layers = copy.copy(self), self._weights.matrices, self._shape.layers
        # The layers' matrices come first and are equally long; the head's stays in `_weights`.
        end = self._head_offset
        memory = torch.from_numpy(matrices[:end].view(np.uint8)).view(layers, -1)
        one._stream = LayerStream(HostLayers(list(memory)), 0, mbps, "host", self.device)
        one._weights = self._weights._replace(matrices=matrices[end:])
        return one

    def over_ranks(self, reduce: Reduce) -> CompiledForward:
        """The same pass of a model whose layers are divided among ranks: `reduce` adds up the
        products of all ranks after each half of a layer. The new pass releases the unpacked layers
        and head, and shares everything else with this one."""
        one, lean = copy.copy(self), self._lean
        one._reduce = reduce
        one._lean = replace(lean, layers=(), head=lean.head.to("meta"))
        return one

    @property
    def weight_bytes(self) -> int:
        num_bytes: int = self._packed_bytes + self._weights.vectors.nbytes
        if self._reduce is None and self._stream is None:
            return num_bytes + self._lean.bytes
        return num_bytes + self._lean.embedding.nbytes

    @property
    def stream(self) -> LayerStream | None:
        """The stream of the model's layers; None if they are not streamed."""
        return self._stream

    @property
    def _packed_bytes(self) -> int:
        layers = 0 if self._stream is None else self._stream.bytes
        return layers + int(self._weights.matrices.nbytes)

    @property
    def _head_offset(self) -> int:
        """Offset of the head in the packed matrices of one model."""
        matrices = self._weights.matrices
        each = kind_of_array(matrices.dtype.type).inputs
        return len(matrices) - self._shape.hidden * self._shape.outputs // each

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        inputs, places = pack_inputs(batch, self._shape.members)
        self._check(inputs.tokens)
        extent = len(inputs.full) // len(inputs.tokens)
        # A position is at most its slot (siblings share a position), and slots are below `extent`.
        self._reach(extent)
        with_padding = np.empty((len(inputs.logits_indices), self._shape.outputs), np.float32)
        self._run(inputs, arena, with_padding)
        logits = self._without_padding(with_padding)
        rows, width = batch.tokens.shape
        if batch.last_only:
            return logits[None]
        if places is None:
            return logits.view(rows, width, -1) if rows > 1 else logits[None]
        # The logits of padded queries are left uninitialized: nothing reads them.
        spread = logits.new_empty(rows * width, self._vocabulary)
        spread[places] = logits
        return spread.view(rows, width, -1)

    def drafts(
        self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready, arena: KVArena
    ) -> DraftResult:
        """Prefills the text that is not in the KV cache yet and drafts level by level.
        `ready(level)` is called before the children of that level are chosen. The arena must have
        `limits.slots` slots in each row."""
        self._check(draft_batch.text)
        self._reach(limits.slots)
        outputs = self._shape.outputs
        all_logits = np.empty((limits.rows, outputs), np.float32)
        result, flat = empty_outputs(draft_batch, limits, outputs), all_logits.reshape(-1)
        inputs = empty_inputs(limits, self._shape.members)
        passes: list[tuple[float, float]] = []
        row = 0
        # `draft_step` reads the last pass's logits and writes the next pass's inputs. It returns 0
        # tokens once all drafts have ended.
        while (
            sizes := self._draft_step(draft_batch, result, inputs, flat, outputs, len(passes), row)
        )[0]:
            num_logits = sizes[2]
            into = all_logits[row : row + num_logits]
            start = time.perf_counter()
            self._run(slice_inputs(inputs, sizes), arena, into)
            end = time.perf_counter()
            row += num_logits
            ready(len(passes))
            passes.append((start, end))
        return DraftResult(result, self._without_padding(all_logits), tuple(passes))

    def _run(self, inputs: BatchInputs, arena: KVArena, logits: Array) -> None:
        with closing(self._segments()) as segments:
            task = self._shape, self._parts, segments, self._reduce
            self._pool.run(task, inputs, arena, logits)

    def _segments(self) -> Generator[Segment]:
        """The kernel calls of a pass. If layers are streamed, each layer has a call; if layers are
        divided among ranks, each half of a layer has a call. In both cases, the last call is for
        the head. Otherwise one call runs all layers and the head."""
        layers = self._shape.layers
        if self._reduce is not None:
            yield from self._halves()
            return
        if self._stream is None:
            yield self._weights, (0, layers + 1, WHOLE_LAYERS)
            return
        # A local reference: `_reach` replaces `self._weights`.
        weights, storage_type = self._weights, self._weights.matrices.dtype
        for layer, layer_matrices in self._stream:
            matrices = layer_matrices.numpy().view(storage_type)
            yield weights._replace(matrices=matrices), (layer, layer + 1, WHOLE_LAYERS)
        yield weights, (layers, layers + 1, WHOLE_LAYERS)

    def _halves(self) -> Iterator[Segment]:
        weights, layers = self._weights, self._shape.layers
        size = self._head_offset // layers
        for step in range(layers + 1):
            # After the last layer only the head's matrix is left.
            at_step = weights._replace(matrices=weights.matrices[step * size :])
            yield at_step, (step, step + 1, ATTENTION_HALF)
            if step < layers:  # the last step is the head
                yield at_step, (step, step + 1, GATED_HALF)

    def _without_padding(self, with_padding: Array) -> torch.Tensor:
        """The vocabulary's logits: the kernel's outputs are padded to whole blocks."""
        logits = torch.from_numpy(with_padding)
        return logits if self._shape.outputs == self._vocabulary else logits[:, : self._vocabulary]

    def _check(self, tokens: Array) -> None:
        """Raises IndexError for an id outside the vocabulary: native code checks no bounds."""
        # In unsigned integers negative ids are large: one comparison finds both errors.
        if tokens.view(np.uint64).max(initial=0) >= self._shape.vocabulary:
            raise IndexError(
                f"token ids are {tokens.min()} to {tokens.max()}: "
                f"0 to {self._shape.vocabulary - 1} are allowed"
            )

    def _reach(self, position: int) -> None:
        positions = len(self._weights.cos) // self._shape.size
        if position >= positions:
            # Replaced, not grown in place: a running pass keeps its table.
            cos, sin = rotation_tables(self._lean, max(position + 1, 2 * positions))
            self._weights = self._weights._replace(cos=cos, sin=sin)


class _WorkerPool:
    """The threads that run a pass together: the caller's thread and the threads of an executor."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.kernel: Callable[..., None] | None = None
        self._others: ThreadPoolExecutor | None = None
        self._busy = threading.Lock()
        self._buffers = BufferCache()

    def run(
        self,
        model: tuple[ModelSizes, int, Iterable[Segment], Reduce | None],
        inputs: BatchInputs,
        arena: KVArena,
        logits: Array,
    ) -> None:
        """Runs a pass. Only one pass runs at a time: passes share buffers, and two passes at once
        would deadlock at a barrier. `model`: shape, `WeightFormat.parts`, calls, and the reduction
        between calls."""
        shape, parts, segments, reduce = model
        tokens, back = len(inputs.tokens), round_up(shape.hidden, BLOCK)
        sizes = tokens, len(inputs.full) // tokens, self.workers
        with self._busy:
            store, scratch, workspaces = self._buffers.of(shape, parts, sizes, arena)
            run_kernel = self.kernel
            assert run_kernel is not None, "compiled by `try_out`, or taken over from another"
            flat = logits.reshape(-1)
            for weights, steps in segments:
                if self.workers == 1:
                    task = (shape, weights, inputs, store, scratch, flat, steps)
                    run_kernel(*task, workspaces[0], (0, 1))
                else:
                    # A new barrier: a thread of the previous call may still poll the old count.
                    scratch = scratch._replace(arrived=np.zeros(1, np.int64))
                    task = (shape, weights, inputs, store, scratch, flat, steps)
                    self._run_parallel(run_kernel, task, workspaces, scratch.arrived)
                if reduce is not None and steps[0] < shape.layers:
                    reduce(torch.from_numpy(scratch.back[: tokens * back]))

    def _run_parallel(
        self,
        run_kernel: Callable[..., None],
        task: tuple[Any, ...],
        workspaces: Sequence[Workspace],
        arrived: Array,
    ) -> None:
        """Runs the kernel on all threads. A thread that fails releases the others from the
        barrier."""
        if self._others is None:
            # The calling thread is the first worker.
            self._others = ThreadPoolExecutor(self.workers - 1, "pass")
        parts: list[Future[None]] = []
        completed = False
        try:
            for worker in range(1, self.workers):
                arguments = (*task, workspaces[worker], (worker, self.workers))
                parts.append(self._others.submit(_run_part, run_kernel, arguments, arrived))
            run_kernel(*task, workspaces[0], (0, self.workers))
            completed = True
        finally:
            if not completed:
                arrived[0] = ABANDONED
            # Threads that arrive after a failure still add to the count.
            if arrived[0] >= ABANDONED:
                self._buffers = BufferCache()  # other threads may write to the old buffers
                wait(parts)
        if arrived[0] >= ABANDONED:
            for one in parts:
                one.result()


def _run_part(run_kernel: Callable[..., None], task: tuple[Any, ...], arrived: Array) -> None:
    completed = False
    try:
        run_kernel(*task)
        completed = True
    finally:
        if not completed:
            arrived[0] = ABANDONED
