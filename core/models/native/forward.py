"""CompiledForward: the lean pass as one call of machine code, on a CPU.

Of a small model's pass in torch most is the time between its products. Here the whole of it is
compiled once (`core/models/native/layers.py`): nothing is allotted, launched or checked in
between, padded queries cost nothing, and weights are read in the order in which they lie.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from core.errors import UnsupportedModelError
from core.models.forward import MaskKind
from core.models.kv_cache import KVArena, LayerShape, SlotPlan
from core.models.layer_ops import FIRST_POSITIONS
from core.models.lean import LeanWeights
from core.models.native.compiling import COMPILER_FAULTS
from core.models.native.drafting import between, nothing_told, of_pass, sprouting
from core.models.native.kernel_args import Asked, Grown, Own, Shape, Told, Weights
from core.models.native.layers import kernel
from core.models.native.packing import Array, packed, shape_of, turning
from core.models.native.weight_formats import kind_of_array
from core.models.native.workspace import Grounds, Room, asked_in, blank_asked
from core.models.rows import Batch

__all__ = ["CompiledForward", "Drafted", "Ready"]

# Of weights; handing a part of a pass to another thread costs what reading so many takes.
WORTH_A_THREAD = 1 << 22
# As many arrivals as nobody waits for.
ABANDONED = 1 << 62
Ready = Callable[[int], None]


class Drafted(NamedTuple):
    """Drafts, the logits (rows, V) float32 that they were made by, and when each pass began and
    ended, in seconds of time.perf_counter; behind its end children are chosen by it."""

    grown: Grown
    logits: torch.Tensor
    passes: tuple[tuple[float, float], ...]


class CompiledForward:
    """See Forward. Of several models that lie on one another, row r is of member r modulo their
    number. All arithmetic is in float32, but that a model in bfloat16 keeps weights, keys and
    values so, and rounds to it what pairs and tiles of weights multiply. Weights are laid out here:
    what is changed in them later is not seen."""

    def __init__(self, weights: LeanWeights, masks: MaskKind) -> None:
        # Where the model takes one mask for all layers, its window holds in each of them.
        everywhere = bool(masks.window) and not masks.by_layer_type
        windowed = [bool(masks.window) and (one.sliding or everywhere) for one in weights.layers]
        self._lean = weights
        self._shape = shape_of(weights)
        self._weights = packed(weights, windowed=windowed, positions=FIRST_POSITIONS)
        self._vocabulary = weights.head.shape[-1]
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        shape = LayerShape(weights.kv_heads, weights.head_size, weights.head_size)
        self.shapes: Sequence[LayerShape] = [shape] * len(weights.layers)
        # As many as torch has now, if there is work for them: later torch may be kept to one.
        most = self._weights.matrices.nbytes // WORTH_A_THREAD + 1
        self._crew = _Crew(min(torch.get_num_threads(), most))
        self._parts = kind_of_array(self._weights.matrices.dtype.type).parts
        self._between = between(True)

    @property
    def workers(self) -> int:
        """Threads that make a pass."""
        return self._crew.workers

    def try_out(self) -> None:
        """Compiles, here and now and for all threads, and makes a pass of a token of each member.
        Where what is compiled cannot be kept it is not. UnsupportedModelError where it does not
        compile."""
        try:
            self._tried(keep=True)
        except COMPILER_FAULTS:  # what was kept is in pieces, or there is nowhere to keep it
            try:
                self._tried(keep=False)
            except COMPILER_FAULTS as error:
                raise UnsupportedModelError(f"its pass does not compile: {error}") from error

    def _tried(self, *, keep: bool) -> None:
        self._crew.kernel, self._between = kernel(keep), between(keep)
        count = self._shape.members
        arena = KVArena(self.shapes, self.dtype, self.device)
        arena.reserve(count, 1)
        row, seen = np.zeros((count, 1), np.int64), np.ones((count, 1, 1), np.bool_)
        plan = SlotPlan(tuple(range(count)), (0,) * count, (1,) * count, 1, 1)
        workers, self._crew.workers = self._crew.workers, 1
        try:
            with torch.inference_mode():
                self.logits(Batch(row, row, seen, seen, plan, False), arena)
                self.drafts(nothing_told(), Room(1, 1, 1, 1), lambda _: None, arena)
        finally:
            self._crew.workers = workers

    def member(self, place: int, lean: LeanWeights) -> CompiledForward:
        """The pass of one of those that lie on one another, over the same memory; `lean` are its
        weights as they are in that of all."""
        one = copy.copy(self)
        one._lean = lean
        own, count = self._weights, self._shape.members
        one._shape = self._shape._replace(members=1)
        one._weights = own._replace(
            embedding=own.embedding.reshape(count, -1)[place],
            matrices=own.matrices.reshape(count, -1)[place],
            vectors=own.vectors.reshape(count, -1)[place],
        )
        one._crew = _Crew(min(self.workers, one._weights.matrices.nbytes // WORTH_A_THREAD + 1))
        one._crew.kernel = self._crew.kernel
        return one

    @property
    def weight_bytes(self) -> int:
        laid: int = self._weights.matrices.nbytes + self._weights.vectors.nbytes
        return self._lean.bytes + laid

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        asked, places = asked_in(batch, self._shape.members)
        logits = self._passed(asked, arena)
        rows, width = batch.tokens.shape
        if batch.last_only:
            return logits[None]
        if places is None:
            return logits.view(rows, width, -1) if rows > 1 else logits[None]
        spread = logits.new_empty(rows * width, self._vocabulary)
        spread[places] = logits
        return spread.view(rows, width, -1)

    def drafts(self, told: Told, room: Room, ready: Ready, arena: KVArena) -> Drafted:
        """Drafts from the text that they lack to their last level, with no more between two passes
        than `core.models.native.drafting`, and `ready`, which is told from which level on children
        are chosen now. The arena has room for `room.slots` in each row."""
        self._check(told.text)
        self._reach(room.slots)
        outputs = self._shape.outputs
        found = np.empty((room.rows, outputs), np.float32)
        grown, flat = sprouting(told, room, outputs), found.reshape(-1)
        asked = blank_asked(room, self._shape.members)
        passes: list[tuple[float, float]] = []
        row = 0
        while (sizes := self._between(told, grown, asked, flat, outputs, len(passes), row))[0]:
            wanted = sizes[2]
            into = found[row : row + wanted]
            began = time.perf_counter()
            self._run(of_pass(asked, sizes), arena, into)
            ended = time.perf_counter()
            row += wanted
            ready(len(passes))
            passes.append((began, ended))
        return Drafted(grown, self._known(found), tuple(passes))

    def _passed(self, asked: Asked, arena: KVArena) -> torch.Tensor:
        self._check(asked.tokens)
        extent = len(asked.full) // len(asked.tokens)
        self._reach(extent)  # no position is past its slot
        found = np.empty((len(asked.wanted), self._shape.outputs), np.float32)
        self._run(asked, arena, found)
        return self._known(found)

    def _run(self, asked: Asked, arena: KVArena, logits: Array) -> None:
        self._crew.run(self._shape, self._parts, self._weights, asked, arena, logits)

    def _known(self, found: Array) -> torch.Tensor:
        """Logits of the tokens that there are; outputs are padded."""
        logits = torch.from_numpy(found)
        return logits if self._shape.outputs == self._vocabulary else logits[:, : self._vocabulary]

    def _check(self, tokens: Array) -> None:
        """The machine code looks up whatever it is told to. IndexError, as torch says it."""
        # Seen as whole numbers without a sign, negative ones are the largest of all.
        if tokens.view(np.uint64).max(initial=0) >= self._shape.vocabulary:
            raise IndexError(
                f"token ids are {tokens.min()} to {tokens.max()}: "
                f"0 to {self._shape.vocabulary - 1} are allowed"
            )

    def _reach(self, position: int) -> None:
        """The rotation's table grows as texts do."""
        held = len(self._weights.cos) // self._shape.size
        if position >= held:
            cos, sin = turning(self._lean, max(position + 1, 2 * held))
            self._weights = self._weights._replace(cos=cos, sin=sin)


class _Crew:
    """The threads that make a pass together: the caller's, and others that wait for work."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.kernel: Callable[..., None] | None = None
        self._others: ThreadPoolExecutor | None = None
        self._busy = threading.Lock()
        self._grounds = Grounds()

    def run(
        self,
        shape: Shape,
        parts: int,
        weights: Weights,
        asked: Asked,
        arena: KVArena,
        logits: Array,
    ) -> None:
        """One pass at a time: of two the workers would wait for each other, and all work on one
        ground."""
        tokens = len(asked.tokens)
        sizes = tokens, len(asked.full) // tokens, self.workers
        with self._busy:
            store, scratch, rooms = self._grounds.of(shape, parts, sizes, arena)
            self.kernel = made = self.kernel or kernel(True)
            if self.workers == 1:
                made(shape, weights, asked, store, scratch, logits.reshape(-1), rooms[0], (0, 1))
                return
            # A count of its own: of the pass before a worker may still be looking at that one's.
            scratch = scratch._replace(arrived=np.zeros(1, np.int64))
            task = (shape, weights, asked, store, scratch, logits.reshape(-1))
            self._shared(made, task, rooms, scratch.arrived)

    def _shared(
        self, made: Callable[..., None], task: tuple[Any, ...], rooms: Sequence[Own], arrived: Array
    ) -> None:
        """Who fails, or is interrupted, lets the others go on to their end: they would wait for
        ever."""
        if self._others is None:
            self._others = ThreadPoolExecutor(self.workers - 1, "pass")
        parts: list[Future[None]] = []
        made_whole = False
        try:
            for worker in range(1, self.workers):
                given = (*task, rooms[worker], (worker, self.workers))
                parts.append(self._others.submit(_part, made, given, arrived))
            made(*task, rooms[0], (0, self.workers))
            made_whole = True
        finally:
            if not made_whole:
                arrived[0] = ABANDONED
            if arrived[0] >= ABANDONED:
                self._grounds = Grounds()  # whoever is not at its end works on this one
                wait(parts)
        if arrived[0] >= ABANDONED:
            for one in parts:
                one.result()


def _part(made: Callable[..., None], task: tuple[Any, ...], arrived: Array) -> None:
    made_whole = False
    try:
        made(*task)
        made_whole = True
    finally:
        if not made_whole:
            arrived[0] = ABANDONED
