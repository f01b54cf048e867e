"""CompiledForward: the lean pass as one call of machine code, on a CPU.

Of a small model's pass in torch most is the time between its products. Here the whole of it is
compiled once (`core/models/compiled/kernel.py`): nothing is allotted, launched or checked in
between, padded queries cost nothing, and weights are read in the order in which they lie.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from core.errors import UnsupportedModelError
from core.models.compiled.asking import Query, asked_by, asked_in
from core.models.compiled.compiling import COMPILER_FAULTS
from core.models.compiled.described import BLOCK, Asked, Drafted, Scratch, Shape, Told
from core.models.compiled.drafts import drafts
from core.models.compiled.kernel import kernel
from core.models.compiled.packing import Array, bits, packed, shape_of, turning
from core.models.forward import MaskKind
from core.models.kv_cache import KVArena, LayerShape, SlotPlan
from core.models.lean import LeanWeights
from core.models.rotation import FIRST_POSITIONS
from core.models.rows import Batch

__all__ = ["CompiledForward", "Room"]

# Of weights; handing a part of a pass to another thread costs what reading so many takes.
WORTH_A_THREAD = 1 << 22
# As many arrivals as nobody waits for.
ABANDONED = 1 << 62


class Room(NamedTuple):
    """What drafts take at most: tokens of one pass, rows of logits, nodes of one draft, slots of a
    row."""

    tokens: int
    rows: int
    nodes: int
    slots: int


class CompiledForward:
    """See Forward. Of several models that lie on one another, row r is of member r modulo their
    number. All arithmetic is in float32; a model in bfloat16 keeps weights, keys and values so.
    Weights are laid out here: what is changed in them later is not seen."""

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
        self._crew.kernel, self._crew.drafts = kernel(keep), drafts(keep)
        count = self._shape.members
        arena = KVArena(self.shapes, self.dtype, self.device)
        arena.reserve(count, 1)
        row, seen = np.zeros((count, 1), np.int64), np.ones((count, 1, 1), np.bool_)
        plan = SlotPlan(tuple(range(count)), (0,) * count, (1,) * count, 1, 1)
        workers, self._crew.workers = self._crew.workers, 1
        try:
            with torch.inference_mode():
                self.logits(Batch(row, row, seen, seen, plan, False), arena)
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
        one._crew.kernel, one._crew.drafts = self._crew.kernel, self._crew.drafts
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

    def answers(
        self, members: Sequence[Sequence[Query]], wanted: Sequence[int], arena: KVArena
    ) -> torch.Tensor:
        """Logits (wanted, V) float32 of each member's queries; see `asked_by`. The arena has room
        for all of their slots."""
        return self._passed(asked_by(members, wanted), arena)

    def drafts(self, told: Told, room: Room, arena: KVArena) -> tuple[Drafted, torch.Tensor]:
        """Drafts made as one call (`core.models.compiled.drafts`), and the logits (rows, V)
        float32 that they were made by. The arena has room for `room.slots` in each row."""
        self._check(told.text)
        self._reach(room.slots)
        seats, levels = told.widths.shape
        found = Drafted(
            np.empty(room.rows * self._shape.outputs, np.float32),
            np.empty((seats, room.nodes, 3), np.int64),
            np.empty((seats, room.nodes), np.int64),
            np.empty((seats, room.nodes + 1), np.int64),
            np.empty((seats, 3), np.int64),
            np.zeros(levels + 1),
        )
        scratch = _scratch(self._shape, room.tokens, levels)
        task = (self._shape, self._weights, told, _store(arena), scratch, found)
        self._crew.run("drafts", task, scratch.arrived)
        return found, self._known(found.logits.reshape(room.rows, -1))

    def _passed(self, asked: Asked, arena: KVArena) -> torch.Tensor:
        self._check(asked.tokens)
        self._reach(len(asked.full) // len(asked.tokens))  # no position is past its slot
        found = np.empty((len(asked.wanted), self._shape.outputs), np.float32)
        scratch = _scratch(self._shape, len(asked.tokens))
        task = (self._shape, self._weights, asked, _store(arena), scratch, found.reshape(-1))
        self._crew.run("kernel", task, scratch.arrived)
        return self._known(found)

    def _known(self, found: Array) -> torch.Tensor:
        """Logits of the tokens that there are; outputs are padded."""
        logits = torch.from_numpy(found)
        return logits if self._shape.outputs == self._vocabulary else logits[:, : self._vocabulary]

    def _check(self, tokens: Array) -> None:
        """The machine code looks up whatever it is told to. IndexError, as torch says it."""
        # Seen as whole numbers without a sign, negative ones are the largest of all.
        if tokens.view(np.uint64).max() >= self._shape.vocabulary:
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
        self.drafts: Callable[..., None] | None = None
        self._others: ThreadPoolExecutor | None = None
        self._busy = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Crew, (self.workers,)

    def run(self, name: str, task: tuple[Any, ...], arrived: Array) -> None:
        """One call at a time, of `kernel` or `drafts`: of two the workers would wait for each
        other."""
        with self._busy:
            made = self._made(name)
            if self.workers == 1:
                made(*task, (0, 1))
            else:
                self._shared(made, task, arrived)

    def _made(self, name: str) -> Callable[..., None]:
        if name == "kernel":
            self.kernel = self.kernel or kernel(True)
            return self.kernel
        self.drafts = self.drafts or drafts(True)
        return self.drafts

    def _shared(self, made: Callable[..., None], task: tuple[Any, ...], arrived: Array) -> None:
        """Who fails, or is interrupted, lets the others go on to their end: they would wait for
        ever."""
        if self._others is None:
            self._others = ThreadPoolExecutor(self.workers - 1, "pass")
        parts: list[Future[None]] = []
        made_whole = False
        try:
            for worker in range(1, self.workers):
                part = (worker, self.workers)
                parts.append(self._others.submit(_part, made, task, part, arrived))
            made(*task, (0, self.workers))
            made_whole = True
        finally:
            if not made_whole:
                arrived[:] = ABANDONED
                wait(parts)
        if arrived[0] >= ABANDONED:
            for one in parts:
                one.result()


def _part(
    made: Callable[..., None], task: tuple[Any, ...], part: tuple[int, int], arrived: Array
) -> None:
    made_whole = False
    try:
        made(*task, part)
        made_whole = True
    finally:
        if not made_whole:
            arrived[:] = ABANDONED


def _store(arena: KVArena) -> tuple[Array, Array, tuple[int, int]]:
    keys, values = (bits(stack).reshape(-1) for stack in arena.stacked)
    return keys, values, (arena.rows, arena.slots)


def _scratch(shape: Shape, tokens: int, passes: int = 1) -> Scratch:
    attended = shape.heads * shape.size
    back = -(-shape.hidden // BLOCK) * BLOCK
    projected = -(-(attended + 2 * shape.kv_heads * shape.size) // BLOCK) * BLOCK
    sizes = projected, attended, back, 2 * shape.inner, shape.inner
    parts = (np.empty(tokens * size, np.float32) for size in sizes)
    return Scratch._make((*parts, np.zeros(passes, np.int64)))
