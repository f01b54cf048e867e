"""LoopAsks: what SSMs whose passes are one are asked for at once, told to a pass over tensors and
read from what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.device.drafting import ENDS, NO_TOKEN, Manner, ends_of, slip_shapes
from core.device.layout import Layout
from core.device.slips import Numbers, Slip
from core.drafters.base import Ask, Draft
from core.drafters.ssm import SsmDrafter
from core.drafters.state import SsmState
from core.models.crew import Crew, crew_of
from core.models.graphed import WIDTHS
from core.models.hf_model import HfModel
from core.noise import SeededNoise, bases_of
from core.tree import ROOT
from core.weights import needs_likelihoods

__all__ = ["LoopAsks", "Seat", "fill", "grew", "kept_nodes", "loops", "manner_of", "plain_draft"]

KINDS = ("topk", "coupled")
MOST_NODES = 64


@dataclass(frozen=True, slots=True)
class Seat:
    """One row of the pass: an SSM, what it is asked for, and what it keeps of the sequence."""

    name: str
    model: HfModel
    ask: Ask
    state: SsmState

    @property
    def first(self) -> int:
        """Tokens that the model has read."""
        return self.model.length(self.state.row)

    @property
    def missing(self) -> list[int]:
        """Tokens of the text that it has not."""
        return self.ask.sequence.tokens[self.first :]


@dataclass(frozen=True)
class LoopAsks:
    """`seats` in the order of the crew's rows: the members' for one sequence beside one another.
    `vocab_size` is the LLM's."""

    crew: Crew
    seats: tuple[Seat, ...]
    vocab_size: int

    @classmethod
    def of(
        cls, ssms: Mapping[str, SsmDrafter], asked: Mapping[str, Many[Ask]], vocab_size: int
    ) -> LoopAsks | None:
        """By name; None where their passes are not one, or not all of them are asked for the same
        sequences."""
        crew = crew_of([ssms[name].model for name in asked])
        sequences = {tuple(ask.sequence.run_id for ask in asks) for asks in asked.values()}
        if crew is None or len(sequences) != 1:
            return None
        names = {id(ssms[name].model): name for name in asked}
        order = [(names[id(member)], member) for member in crew.members]
        asks = {name: [ssms[name].fitted(ask) for ask in asked[name]] for name in asked}
        seats = tuple(
            Seat(name, model, asks[name][place], ssms[name].state(asks[name][place]))
            for place in range(len(sequences.pop()))
            for name, model in order
        )
        return cls(crew, seats, vocab_size)

    @cached_property
    def layout(self) -> Layout:
        """Of the deepest draft: the others are the beginnings of it."""
        return Layout(max((seat.ask.shape for seat in self.seats), key=len))

    @cached_property
    def width(self) -> int:
        """Tokens to catch up with that the pass has room for: all that a round commits, or more."""
        most = max(len(self.layout.shape) + 1, *(len(seat.missing) for seat in self.seats))
        return next(width for width in WIDTHS if width >= most)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What the slip of the pass holds."""
        return slip_shapes(len(self.seats), self.width, len(self.layout.shape))

    @property
    def rows(self) -> tuple[int, ...]:
        """Where the seats' rows lie in the crew's arena."""
        return tuple(seat.model.place(seat.state.row) for seat in self.seats)

    @property
    def slots(self) -> int:
        """That the pass uses, of any row."""
        return max(len(seat.ask.sequence.tokens) for seat in self.seats) + self.layout.fed

    @cached_property
    def manner(self) -> Manner:
        """How they choose, all of them alike."""
        return manner_of(self.seats[0].ask, self.vocab_size)


def loops(work: LoopAsks) -> bool:
    """Whether one pass over tensors makes these drafts: topk or coupled expansions of one form,
    from keyed noise, that no length policy stops, of SSMs that read on where they were."""
    shape = work.layout.shape
    return (
        0 < len(work.layout) <= MOST_NODES
        and max(shape) <= work.crew.vocab_size
        and all(_simple(seat) for seat in work.seats)
        and all(seat.ask.shape == shape[: len(seat.ask.shape)] for seat in work.seats)
        and len({manner_of(seat.ask, work.vocab_size) for seat in work.seats}) == 1
    )


def _simple(seat: Seat) -> bool:
    ask, state = seat.ask, seat.state
    sequence = ask.sequence
    return (
        ask.kind in KINDS
        and bool(ask.shape)
        and ask.stop is None
        and ask.beyond == 0
        and isinstance(sequence.noise, SeededNoise)
        and len(sequence.eos_ids) <= ENDS
        and not needs_likelihoods(sequence.speculation)
        and state.pending.root is None
        and state.ready is None
        and seat.model.pending(state.row) == 0
        and 0 < len(seat.missing) <= WIDTHS[-1]
    )


def manner_of(ask: Ask, vocab_size: int) -> Manner:
    """What of an ask decides how children are chosen."""
    return Manner(ask.kind == "coupled", ask.sequence.sampling.shape, vocab_size)


def fill(slip: Slip, seats: Many[Seat], *, noisy: bool) -> None:
    """Writes what the pass is told of each row; see `slip_shapes`."""
    told = slip.host
    told["tokens"][:] = 0
    for row, seat in enumerate(seats):
        missing = seat.missing
        told["tokens"][row, : len(missing)] = missing
        told["first"][row], told["count"][row] = seat.first, len(missing)
        told["depth"][row] = len(seat.ask.shape)
        told["ends"][row] = ends_of(seat.ask.sequence.eos_ids)
        temperature = np.float64(seat.state.calibration.temperature)
        told["temperature"][row] = temperature.view(np.int64)
    if noisy:
        known: dict[str, list[int]] = {}
        deep = told["bases"].shape[1]
        for row, seat in enumerate(seats):
            run_id = seat.ask.sequence.run_id
            if run_id not in known:
                known[run_id] = bases_of(seat.ask.sequence.noise, seat.ask.root_position + 1, deep)
            told["bases"][row] = known[run_id]


def plain_draft(layout: Layout, tokens: Numbers, scores: Numbers, ask: Ask) -> Draft:
    """A draft by the tokens (n,) and scores (n,) of the full tree, without its tensors: `rows` are
    the root's and the fed nodes'."""
    kept = kept_nodes(tokens)
    number = {ROOT: ROOT} | {node: i for i, node in enumerate(kept)}
    grown = [node for node in kept if grew(layout, tokens, node, ask)]
    levels = {layout.depths[node] for node in grown}
    return Draft(
        [int(tokens[node]) for node in kept],
        [number[layout.parents[node]] for node in kept],
        [float(scores[node]) for node in kept],
        [1.0] * len(kept),
        [layout.ranks[node] for node in kept],
        {ROOT: 0} | {number[node]: node + 1 for node in grown},
        passes=1 + len(levels),
    )


def kept_nodes(tokens: Numbers) -> list[int]:
    """The nodes of the full tree that a draft has, in its order."""
    return [node for node, token in enumerate(tokens.tolist()) if token != NO_TOKEN]


def grew(layout: Layout, tokens: Numbers, node: int, ask: Ask) -> bool:
    """Whether a node is there, and its children were asked for."""
    if tokens[node] == NO_TOKEN:
        return False
    return layout.depths[node] < len(ask.shape) and int(tokens[node]) not in ask.sequence.eos_ids
